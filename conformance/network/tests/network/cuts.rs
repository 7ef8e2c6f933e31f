//! Tests of cuts, blocked ports, and hosts that can be dialed from one side only.

use std::io::ErrorKind;

use causeway_network::Network;

use crate::support::{PATIENCE, SILENCE, build, dial, echo, ping, send, sink, socket};

#[test]
fn a_cut_stops_one_link_and_mending_restores_it() {
    let Some(network) = build(Network::builder().hosts(3)) else {
        return;
    };
    let here = socket(network.host(0), PATIENCE);
    let (cut, whole) = (echo(network.host(1)), echo(network.host(2)));
    assert!(ping(&here, cut).is_some());
    network.link(0, 1).cut().unwrap();
    network.link(0, 1).cut().unwrap();
    assert!(ping(&here, whole).is_some());
    here.set_read_timeout(Some(SILENCE)).unwrap();
    assert!(ping(&here, cut).is_none());
    network.link(0, 1).mend().unwrap();
    network.link(0, 1).mend().unwrap();
    here.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(ping(&here, cut).is_some());
}

#[test]
fn a_cut_of_one_direction_leaves_the_other() {
    let Some(network) = build(Network::builder()) else {
        return;
    };
    let (here, there) = (network.host(0), network.host(1));
    let (sender, receiver) = (socket(here, SILENCE), socket(there, PATIENCE));
    network.one_way(1, 0).cut().unwrap();
    sender
        .send_to(b"there", receiver.local_addr().unwrap())
        .unwrap();
    let (_, from) = receiver.recv_from(&mut [0; 16]).unwrap();
    receiver.send_to(b"back", from).unwrap();
    assert!(sender.recv_from(&mut [0; 16]).is_err());
}

#[test]
fn a_connection_survives_a_cut_that_is_mended() {
    let Some(network) = build(Network::builder()) else {
        return;
    };
    let port = sink(network.host(1), 0);
    let stream = dial(network.host(0), network.host(1).address(), port, PATIENCE).unwrap();
    network.link(0, 1).cut().unwrap();
    let sending = std::thread::spawn(move || send(stream, 1 << 20));
    network.link(0, 1).mend().unwrap();
    sending.join().unwrap();
}

#[test]
fn an_unplugged_host_hears_nobody() {
    let Some(network) = build(Network::builder()) else {
        return;
    };
    let here = socket(network.host(0), SILENCE);
    let there = echo(network.host(1));
    network.host(1).unplug().unwrap();
    assert!(ping(&here, there).is_none());
    network.host(1).plug().unwrap();
    let back = (0..50).any(|_| ping(&here, there).is_some());
    assert!(back);
}

#[test]
fn dialling_can_be_refused_one_way() {
    let Some(network) = build(Network::builder()) else {
        return;
    };
    let (a, b) = (network.host(0), network.host(1));
    let (at_a, at_b) = (sink(a, 0), sink(b, 0));
    let open = dial(b, a.address(), at_a, PATIENCE).unwrap();
    network.one_way(1, 0).refuse_dialling().unwrap();
    let refused = dial(b, a.address(), at_a, SILENCE).unwrap_err();
    assert!(matches!(
        refused.kind(),
        ErrorKind::TimedOut | ErrorKind::WouldBlock
    ));
    send(dial(a, b.address(), at_b, PATIENCE).unwrap(), 100_000);
    send(open, 100_000);
    network.one_way(1, 0).allow_dialling().unwrap();
    send(dial(b, a.address(), at_a, PATIENCE).unwrap(), 10);
}

#[test]
fn ports_are_blocked_silently_or_with_a_reset() {
    let Some(network) = build(Network::builder()) else {
        return;
    };
    let (a, b) = (network.host(0), network.host(1));
    let (closed, other) = (sink(b, 0), sink(b, 0));
    b.block_port(closed).unwrap();
    let refused = dial(a, b.address(), closed, SILENCE).unwrap_err();
    assert!(matches!(
        refused.kind(),
        ErrorKind::TimedOut | ErrorKind::WouldBlock
    ));
    b.refuse_port(closed).unwrap();
    let refused = dial(a, b.address(), closed, PATIENCE).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    send(dial(a, b.address(), other, PATIENCE).unwrap(), 10);
    b.open_port(closed).unwrap();
    send(dial(a, b.address(), closed, PATIENCE).unwrap(), 10);
}
