//! Tests that links between nodes with TLS outlive their connections.

use causeway::stub::server::peer;

use crate::frames::servers::*;
use crate::walls::*;

#[test]
fn a_link_over_tls_is_mended_wherever_its_connections_break() {
    own_process!();
    secured::secure();
    let daemons = [true, false].map(|unified| {
        let settings = format!("[[device]]\nname = \"A\"\nunified_memory = {unified}");
        let mut flags = secured::arguments();
        flags.extend(["--advertise", "127.0.0.1:1"].map(str::to_owned));
        Daemon::start_flagged("127.0.0.1:0", &settings, &flags)
    });
    let walls = daemons.each_ref().map(Wall::before);
    configure(&walls.each_ref().map(|(_, at)| at.to_string()).join(","));
    let devices = eventually("two devices", || <[_; 2]>::try_from(devices()).ok());
    // From the first connections on.
    walls.iter().for_each(|(wall, _)| wall.break_after(3 << 20));
    let pair = Shared::new(devices);
    for _ in 0..2 {
        pair.play();
    }
    let breaks: usize = walls.iter().map(|(wall, _)| wall.breaks()).sum();
    assert!(breaks >= 6 * BYTES / (2 * (3 << 20)), "{breaks}");
    // A link that breaks for longer, and is mended.
    walls
        .iter()
        .for_each(|(wall, _)| wall.break_after(u64::MAX));
    eventually("the direct route", || (pair.play() == 0).then_some(()));
    let direct = peer::changes();
    walls.iter().for_each(|(wall, _)| wall.close());
    eventually("another route", || (peer::changes() > direct).then_some(()));
    assert!(pair.play() >= 3 * BYTES as u64);
    walls.iter().for_each(|(wall, _)| wall.open());
    eventually("the direct route", || (pair.play() == 0).then_some(()));
}

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
