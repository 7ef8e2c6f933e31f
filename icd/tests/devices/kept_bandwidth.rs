//! `CL_DEVICE_BANDWIDTH_WWU` before the first transfer: what the user has measured.

use std::net::SocketAddr;

use causeway_links::{LinkEntry, LinkMemory, seconds_now};

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
    let now = seconds_now();
    let peer: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    // Of two addresses, the one that the program uses counts, although the other one was measured later.
    let entry = |to: SocketAddr, outward, when| LinkEntry {
        outward,
        inward: 124_000_000,
        when,
        ..LinkEntry::unmeasured(peer.clone(), daemon.address.ip(), to)
    };
    let entries = vec![
        entry(daemon.address, 123_000_000, now - 60),
        entry(([192, 0, 2, 1], 7079).into(), 50_000_000, now),
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
