//! Tests of a network with as many hosts as there can be.

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use causeway_network::{MOST_HOSTS, Network};

use crate::support::{PATIENCE, SILENCE, build, socket};

#[test]
fn each_host_of_the_largest_network_reaches_each_other_at_once() {
    let Some(network) = build(Network::builder().hosts(MOST_HOSTS)) else {
        return;
    };
    let sockets: Vec<_> = (network.hosts().iter())
        .map(|host| socket(host, SILENCE))
        .collect();
    let places: Vec<_> = (sockets.iter())
        .map(|socket| socket.local_addr().unwrap())
        .collect();
    for (from, own) in sockets.iter().zip(&places) {
        for (to, place) in sockets.iter().zip(&places) {
            reach(from, own, to, place);
        }
    }
}

/// Sends until the other host hears it: a network that learns where its hosts are may lose datagrams on a busy machine.
fn reach(from: &UdpSocket, own: &SocketAddr, to: &UdpSocket, place: &SocketAddr) {
    let until = Instant::now() + PATIENCE;
    loop {
        from.send_to(b"all", place).unwrap();
        // Late repetitions of others come first.
        while let Ok((_, heard)) = to.recv_from(&mut [0; 8]) {
            if heard == *own {
                return;
            }
        }
        assert!(Instant::now() < until, "{place} hears nothing from {own}");
    }
}
