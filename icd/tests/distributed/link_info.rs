//! `clGetLinkInfoWWU`: the route between two devices, and what the process, its user and its nodes know of the link.

use std::net::SocketAddr;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use causeway_links::{LinkEntry, LinkMemory, seconds_now};

use crate::frames::servers::*;
use crate::walls::*;

const NO_AGE: u64 = u64::MAX;
/// The age of the figures that a node keeps.
const MEASURED_AGO: Duration = Duration::from_secs(3_600);

#[test]
fn a_link_tells_its_route_and_what_is_known_of_it() {
    own_process!();
    let settings = |name: &str| format!("[[device]]\nname = \"{name}\"");
    let open = ["A", "B"].map(|name| Daemon::start(&settings(name)));
    let walled = ["C", "D"].map(|name| Daemon::start_apart(&settings(name)));
    let (walls, mut addresses): (Vec<_>, Vec<_>) = walled.iter().map(Wall::before).unzip();
    walls.iter().for_each(|wall| wall.close());
    addresses.extend(open.each_ref().map(|daemon| daemon.address));
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    configure(&addresses.join(","));
    let devices = eventually("four devices", || {
        let devices = devices();
        (devices.len() == 4).then_some(devices)
    });
    let [c, d, a, b] = devices[..] else {
        unreachable!("as many were asked for");
    };
    arguments_are_checked(a, b);
    assert_eq!(route(a, a), CL_LINK_ROUTE_SAME_SERVER_WWU);
    assert_eq!(figures(a, a), (0, 0, NO_AGE));

    // ---- what the user has had measured at a node
    keep_figures([a, b], &open);
    let [smaller, larger] = by_uuid([a, b]);
    assert_eq!(route(a, b), CL_LINK_ROUTE_DIRECT_WWU);
    // A busy node may answer too late. Then it is asked again.
    let begin = Instant::now();
    while figures(smaller, larger).1 == 0 {
        assert!(begin.elapsed() < PATIENCE, "the nodes do not answer");
    }
    for (from, to, bandwidth) in [(smaller, larger, 111), (larger, smaller, 222)] {
        let (round_trip, kept, age) = figures(from, to);
        assert_eq!((round_trip, kept), (300_000, bandwidth));
        let ago = MEASURED_AGO.as_nanos() as u64;
        let most = ago + PATIENCE.as_nanos() as u64;
        assert!((ago..most).contains(&age), "{age}");
    }
    assert_eq!(figures(a, c), (0, 0, NO_AGE), "nobody knows anything");

    // ---- what transfers have shown
    let pair = Shared::new([a, b]);
    pair.write(0, &vec![1; WORDS]);
    let changed = pair.add(1, 1, None);
    assert_eq!(
        pair.read(1, changed)[..=CHANGED],
        [&[2; CHANGED][..], &[1]].concat()
    );
    ok!(clReleaseEvent(changed));
    let (round_trip, learnt, age) = figures(a, b);
    assert_eq!(round_trip, 300_000);
    assert!(learnt > 1_000_000, "{learnt}");
    assert!(age < PATIENCE.as_nanos() as u64, "{age}");
    let (_, kept, age) = figures(b, a);
    assert!(kept == 111 || kept == 222, "no bytes went back: {kept}");
    assert!(age >= MEASURED_AGO.as_nanos() as u64);

    // ---- a transfer that waits for another command says nothing
    let known = figures(a, b).1;
    let held = pair.user_event();
    let gate = pair.add(0, 1, Some(held));
    let last = pair.add(1, 1, Some(gate));
    ok!(clSetUserEventStatus(held, CL_COMPLETE));
    drop(pair.read(1, last));
    for event in [held, gate, last] {
        ok!(clReleaseEvent(event));
    }
    assert_eq!(figures(a, b).1, known);

    // ---- through the client
    let apart = Shared::new([c, d]);
    assert!(apart.play() > 0);
    assert_eq!(route(c, d), CL_LINK_ROUTE_VIA_CLIENT_WWU);
    let (round_trip, bandwidth, age) = figures(c, d);
    let of = |name| [c, d].map(|device| number(&device_info(device, name)));
    let bandwidths = of(CL_DEVICE_BANDWIDTH_WWU);
    assert_eq!(bandwidth, bandwidths[0].min(bandwidths[1]));
    assert!(bandwidth > 0 && age < PATIENCE.as_nanos() as u64);
    let round_trips = of(CL_DEVICE_ROUND_TRIP_TIME_WWU);
    assert_eq!(round_trip, round_trips[0] + round_trips[1]);
}

/// Round trip, bandwidth and age.
fn figures(from: cl_device_id, to: cl_device_id) -> (u64, u64, u64) {
    let of = |name| number(&link_info(from, to, name));
    (
        of(CL_LINK_ROUND_TRIP_TIME_WWU),
        of(CL_LINK_BANDWIDTH_WWU),
        of(CL_LINK_AGE_WWU),
    )
}

fn route(from: cl_device_id, to: cl_device_id) -> cl_link_route {
    number(&link_info(from, to, CL_LINK_ROUTE_WWU)) as cl_link_route
}

fn uuid(device: cl_device_id) -> Vec<u8> {
    server_info(server_of(device), CL_SERVER_UUID_WWU)
}

fn by_uuid(mut devices: [cl_device_id; 2]) -> [cl_device_id; 2] {
    devices.sort_by_key(|device| uuid(*device));
    devices
}

/// Writes figures into the file of the node with the smaller uuid, which dials when the tool measures.
fn keep_figures(devices: [cl_device_id; 2], daemons: &[Daemon; 2]) {
    let [smaller, larger] = by_uuid(devices).map(uuid);
    let at = devices.iter().position(|device| uuid(*device) == smaller);
    let dials = &daemons[at.expect("one of both")];
    let peer = larger.iter().map(|byte| format!("{byte:02x}")).collect();
    let entry = LinkEntry {
        least_ns: 300_000,
        outward: 111,
        inward: 222,
        when: seconds_now() - MEASURED_AGO.as_secs(),
        ..LinkEntry::unmeasured(peer, dials.address.ip(), dials.address)
    };
    let uuid = smaller.try_into().expect("16 bytes");
    let memory = LinkMemory::of_node(dials.state(), &uuid);
    memory.keep(vec![entry]).expect("kept");
}

fn arguments_are_checked(a: cl_device_id, b: cl_device_id) {
    let foreign: cl_device_id = platform();
    let route = CL_LINK_ROUTE_WWU;
    for (from, to) in [(null_mut(), b), (a, null_mut()), (foreign, b), (a, foreign)] {
        let code = link_info_code(from, to, route, 0, null_mut(), null_mut());
        assert_eq!(code, CL_INVALID_DEVICE);
    }
    let code = link_info_code(a, b, CL_SERVER_NAME_WWU, 0, null_mut(), null_mut());
    assert_eq!(code, CL_INVALID_VALUE, "another object's name");
    let mut few = [0u8; 8];
    for (name, size) in [
        (CL_LINK_ROUTE_WWU, 4),
        (CL_LINK_ROUND_TRIP_TIME_WWU, 8),
        (CL_LINK_BANDWIDTH_WWU, 8),
        (CL_LINK_AGE_WWU, 8),
    ] {
        let mut needed = 0;
        let room = few.as_mut_ptr().cast();
        let code = link_info_code(a, a, name, size - 1, room, &raw mut needed);
        assert_eq!((code, needed), (CL_INVALID_VALUE, size), "too little room");
        assert_eq!(few, [0; 8], "nothing is written");
        let code = link_info_code(a, a, name, 0, null_mut(), null_mut());
        assert_eq!(code, CL_SUCCESS, "nothing is asked for");
    }
}
