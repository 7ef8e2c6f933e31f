//! Tests of the counters of each link.

use std::time::Duration;

use causeway_network::{Network, Shape};

use crate::support::{PATIENCE, build, dial, send, sink};

#[test]
fn each_pair_and_direction_is_counted() {
    let delayed = Shape::delayed(Duration::from_micros(200));
    let Some(network) = build(Network::builder().hosts(3).link(1, 2, delayed)) else {
        return;
    };
    let bytes = 8 << 20;
    for (from, to) in [(0, 1), (1, 2)] {
        let before = network.traffic().unwrap();
        let port = sink(network.host(to), 0);
        let address = network.host(to).address();
        send(
            dial(network.host(from), address, port, PATIENCE).unwrap(),
            bytes,
        );
        let crossed = network.traffic().unwrap().since(&before);
        let forth = crossed.bytes(from, to);
        let payload = bytes as u64;
        assert!((payload..payload * 11 / 10).contains(&forth), "{forth}");
        assert!(crossed.bytes(to, from) > 0 && crossed.bytes(to, from) < payload / 10);
        let others = [(0, 1), (0, 2), (1, 2)]
            .into_iter()
            .filter(|pair| *pair != (from, to));
        for (a, b) in others {
            assert_eq!(crossed.between(a, b), 0, "{a} and {b}");
        }
    }
    assert!(network.link(0, 1).bytes().unwrap() > bytes as u64);
    assert!(network.host(0).interface().unwrap().sent > bytes as u64);
}

#[test]
fn a_host_talking_to_itself_crosses_nothing() {
    let Some(network) = build(Network::builder()) else {
        return;
    };
    let here = network.host(0);
    let port = sink(here, 0);
    send(dial(here, here.address(), port, PATIENCE).unwrap(), 100_000);
    let traffic = network.traffic().unwrap();
    assert_eq!((traffic.between(0, 1), traffic.bytes(0, 0)), (0, 0));
}
