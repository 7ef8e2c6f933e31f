//! `CL_DEVICE_BANDWIDTH_WWU` before the first transfer: what the user has measured.

use causeway_links::{Entry, LinkMemory};

use crate::frames::servers::*;
use crate::server_connection::read_much;

#[test]
fn a_measured_link_is_known_until_the_process_has_its_own_figure() {
    own_process!();
    let daemon = Daemon::start("[[device]]\nname = \"A\"");
    let state = tempfile::tempdir().expect("a folder");
    // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
    unsafe { std::env::set_var("XDG_STATE_HOME", state.path()) };
    configure(&daemon.address.to_string());
    let device = devices()[0];
    let uuid = server_info(server_of(device), CL_SERVER_UUID_WWU);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.expect("after 1970").as_secs();
    // Of two addresses, the one that the program uses counts, although the other one was measured later.
    let entry = |port: u16, outward, when| Entry {
        peer: uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
        name: "A".to_owned(),
        user: String::new(),
        from: daemon.address.ip(),
        to: match port {
            0 => ([192, 0, 2, 1], 7079).into(),
            port => (daemon.address.ip(), port).into(),
        },
        least_ns: 1,
        median_ns: 1,
        lost: 0,
        outward,
        inward: 124_000_000,
        stream_ms: 500,
        tls: false,
        when,
    };
    let entries = vec![
        entry(daemon.address.port(), 123_000_000, now - 60),
        entry(0, 50_000_000, now),
    ];
    let memory = LinkMemory::of_programs(&state.path().join("causeway"));
    memory.keep(entries).expect("kept");
    let bandwidth = || number(&device_info(device, CL_DEVICE_BANDWIDTH_WWU));
    assert_eq!(bandwidth(), 123_000_000);
    assert_eq!(
        number(&server_info(server_of(device), CL_SERVER_BANDWIDTH_WWU)),
        123_000_000
    );

    // ---- own figures
    read_much(device);
    let own = bandwidth();
    assert!(own > 0 && own != 123_000_000, "{own}");
}
