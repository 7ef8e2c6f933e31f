//! Tests of links between nodes with TLS after a session was opened again.

use crate::frames::servers::*;
use crate::walls::*;

// A session that is opened again has another certificate, which the other end of a link has to know.
#[test]
fn a_link_to_a_session_that_was_opened_again_is_direct() {
    own_process!();
    secured::secure();
    let flags = secured::arguments();
    let mut daemons = ["A", "B"].map(|name| {
        let settings = format!("[[device]]\nname = \"{name}\"");
        Daemon::start_flagged("127.0.0.1:0", &settings, &flags)
    });
    // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
    unsafe { std::env::set_var("CAUSEWAY_REEXECUTE", "1") };
    configure(
        &daemons
            .each_ref()
            .map(|of| of.address.to_string())
            .join(","),
    );
    let devices = eventually("two devices", || <[_; 2]>::try_from(devices()).ok());
    let alone = devices.map(Fixture::on);
    let buffers = alone.each_ref().map(|cl| (cl, cl.buffer_of(b"before")));
    let check = || {
        for (cl, buffer) in &buffers {
            assert_eq!(cl.read(*buffer, 0, 6), b"before");
        }
    };
    check();
    for daemon in &mut daemons {
        daemon.crash();
        daemon.start_again(&flags);
    }
    check();
    assert_eq!(
        Shared::new(devices).play(),
        0,
        "bytes went through the client"
    );
}
