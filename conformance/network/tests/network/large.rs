//! Tests of a network with as many hosts as there can be.

use std::collections::BTreeSet;

use causeway_network::{MOST_HOSTS, Network};

use crate::support::{PATIENCE, build, socket};

#[test]
fn each_host_of_the_largest_network_reaches_each_other_at_once() {
    let Some(network) = build(Network::builder().hosts(MOST_HOSTS)) else {
        return;
    };
    let sockets: Vec<_> = (network.hosts().iter())
        .map(|host| socket(host, PATIENCE))
        .collect();
    let places: Vec<_> = (sockets.iter())
        .map(|socket| socket.local_addr().unwrap())
        .collect();
    for socket in &sockets {
        for place in &places {
            socket.send_to(b"all", place).unwrap();
        }
    }
    for socket in &sockets {
        let heard = (0..MOST_HOSTS).map(|_| socket.recv_from(&mut [0; 8]).unwrap().1);
        assert_eq!(heard.collect::<BTreeSet<_>>().len(), MOST_HOSTS);
    }
}
