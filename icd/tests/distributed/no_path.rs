//! Tests two nodes that work on one buffer. If they cannot reach each other, or not any more, its bytes go through
//! the client. Otherwise no byte does.

use std::net::SocketAddr;
use std::ptr::null_mut;

use causeway::stub::server::peer;

use crate::frames::servers::*;
use crate::walls::*;

#[test]
fn the_client_carries_what_two_nodes_cannot_exchange_and_nothing_else() {
    own_process!();
    // Some devices map their memory for transfers, and others use a ring of pinned memory.
    let settings = |name: &str, unified: bool| {
        format!("[[device]]\nname = \"{name}\"\nunified_memory = {unified}")
    };
    let walled = [("A", true), ("B", false), ("C", false)];
    let walled = walled.map(|(name, unified)| Daemon::start_apart(&settings(name, unified)));
    let open = Daemon::start(&settings("D", true));
    let (walls, mut addresses): (Vec<_>, Vec<_>) = walled.iter().map(Wall::before).unzip();
    addresses.push(open.address);
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    configure(&addresses.join(","));
    let devices = eventually("four devices", || {
        let devices = devices();
        (devices.len() == 4).then_some(devices)
    });
    let [a, b, c, d] = devices[..] else {
        unreachable!("as many were asked for");
    };
    let all_ways = 3 * BYTES as u64;

    // A path that breaks, is tried again without success, and comes back.
    let pair = Shared::new([a, b]);
    assert_eq!(pair.play(), 0);
    for _ in 0..2 {
        let direct = peer::changes();
        walls.iter().for_each(|wall| wall.close());
        eventually("another route", || (peer::changes() > direct).then_some(()));
        assert!(walls.iter().any(|wall| wall.has_refused()));
        assert!(pair.play() >= all_ways);
        walls.iter().for_each(|wall| wall.open());
        eventually("the direct route", || (pair.play() == 0).then_some(()));
    }
    walls.iter().for_each(|wall| wall.close());

    // A path that never existed. Transfers wait while the nodes look for it.
    assert!(Shared::new([c, b]).play() >= all_ways);

    // A path that only the second node can dial.
    assert_eq!(Shared::new([d, a]).play(), 0);

    // A node is lost while its bytes are in flight to the other, or before. The other node goes on.
    let there = pair.add(1, 1, None);
    let here = pair.add(0, 1, Some(there));
    ok!(clFlush(pair.queues[0]));
    let [_a, b, _c] = walled;
    b.kill();
    let status = eventually("an end of the command", || {
        let status = status_of(here);
        (status <= CL_COMPLETE).then_some(status)
    });
    let codes = [
        CL_COMPLETE,
        CL_DEVICE_NOT_AVAILABLE,
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
    ];
    assert!(codes.contains(&status), "{status}");
    pair.write(0, &vec![1; WORDS]);
    let changed = pair.add(0, 1, None);
    let got = pair.read(0, changed);
    assert_eq!(got[..=CHANGED], [&[2; CHANGED][..], &[1]].concat());
    for event in [there, here, changed] {
        ok!(clReleaseEvent(event));
    }
}

fn status_of(event: cl_event) -> cl_int {
    let mut status = 77;
    let (name, to) = (CL_EVENT_COMMAND_EXECUTION_STATUS, (&raw mut status).cast());
    ok!(clGetEventInfo(event, name, 4, to, null_mut()));
    status
}
