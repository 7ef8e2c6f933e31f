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
