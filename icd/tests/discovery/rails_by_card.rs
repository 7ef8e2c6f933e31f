//! Large transfers to nodes with several networks that nobody has measured: the bytes cross the network whose cards are
//! fast at both ends.

use causeway_network::Host;

use crate::cards::{carry, told, with_cards};
use crate::frames::servers::*;
use crate::rails_by_speed::{SIZE, SMALL, count, crossed, run};
use crate::stage::*;

/// The networks beside `eth0`: the interface, and the first part of its addresses.
const MORE: [(&str, &str); 2] = [("eth1", "10.88.0"), ("eth2", "10.89.0")];
const ALL: [&str; 3] = ["eth0", "eth1", "eth2"];
const SLOW: u32 = 1_000;
const FAST: u32 = 10_000;

/// A client and a host of nodes, with networks of 1, 10 and 1 Gbit/s.
fn networks() -> Option<Stage> {
    let network = network(2).filter(|_| crate::cards::can_be_shown())?;
    let other = network.host(1).namespace();
    for (interface, _) in MORE {
        let cable =
            format!("ip link add {interface} type veth peer name {interface} netns {other}");
        run(network.host(0), &cable);
    }
    for (number, host) in network.hosts().iter().enumerate() {
        for (interface, net) in MORE {
            let own = number + 1;
            run(
                host,
                &format!("ip address add {net}.{own}/24 dev {interface}"),
            );
            run(host, &format!("ip link set {interface} up"));
        }
        for (interface, rate) in ALL.into_iter().zip(["1gbit", "10gbit", "1gbit"]) {
            let shape = format!("root tbf rate {rate} burst 1mb latency 50ms");
            run(host, &format!("tc qdisc replace dev {interface} {shape}"));
        }
    }
    network.hosts().iter().for_each(|host| carry(host, &ALL));
    run(network.host(0), "nft add table inet rails");
    ALL.iter()
        .for_each(|interface| count(network.host(0), interface));
    Some(network)
}

/// The addresses of a daemon on the second host, on these networks.
fn addresses(host: &Host, daemon: &Daemon, networks: [usize; 2]) -> String {
    let port = daemon.address.port();
    let text = |of: usize| match of {
        0 => format!("\"{}:{port}\"", host.address()),
        of => format!("\"{}.2:{port}\"", MORE[of - 1].1),
    };
    networks.map(text).join(", ")
}

/// Writes and reads a buffer of a device. Returns the bytes that have crossed each network.
fn transfer(client: &Host, device: cl_device_id) -> [u64; 3] {
    let cl = Fixture::on(device);
    let buffer = cl.buffer(CL_MEM_READ_WRITE, SIZE);
    let of_all = || ALL.map(|interface| crossed(client, interface));
    let before = of_all();
    let bytes = pattern(1, SIZE);
    cl.write(buffer, 0, &bytes);
    assert!(cl.read(buffer, 0, SIZE) == bytes);
    let after = of_all();
    ok!(clReleaseMemObject(buffer));
    [0, 1, 2].map(|of| after[of] - before[of])
}

#[test]
fn bytes_cross_the_network_whose_cards_are_fast_at_both_ends() {
    own_process!(waits);
    let Some(network) = networks() else { return };
    let (client, nodes) = (network.host(0), network.host(1));
    // Of the first node, its own card is slow; of the second, the client's. The third one has a network without a card.
    let cards: [&[(&str, u32)]; 3] = [
        &[("eth0", SLOW), ("eth1", FAST)],
        &[("eth1", FAST), ("eth2", FAST)],
        &[("eth1", FAST)],
    ];
    let insecure = ["--insecure".to_owned()];
    let names_of_nodes = ["A", "B", "C"];
    let start = |of: usize| with_cards(cards[of], || quiet(nodes, names_of_nodes[of], &insecure));
    let daemons = [0, 1, 2].map(start);
    for (daemon, cards) in daemons.iter().zip(cards) {
        let address = format!("{}:{}", nodes.address(), daemon.address.port());
        told(client, &address, cards.len());
    }
    let ways = [[0, 1], [2, 1], [0, 1]];
    let server = |of: usize| {
        let addresses = addresses(nodes, &daemons[of], ways[of]);
        format!("[[server]]\naddress = [{addresses}]\nshared_memory = false\n")
    };
    let folder = tempfile::tempdir().expect("a folder");
    crate::stage::configure(
        &folder.path().join("servers.toml"),
        &[0, 1, 2].map(server).concat(),
    );
    let program = || {
        // On a busy machine, the first list may come before a node's answer.
        eventually("three nodes", || (names() == names_of_nodes).then_some(()));
        let crossed = devices().into_iter().map(|device| transfer(client, device));
        crossed.collect::<Vec<_>>()
    };
    let own = [("eth0", FAST), ("eth1", FAST), ("eth2", SLOW)];
    let crossed = with_cards(&own, || client.enter(program));
    let crossed = crossed.expect("the host's network");
    eprintln!("bytes by eth0, eth1 and eth2: {crossed:?}");
    let all = 2 * SIZE as u64;
    for [by_eth0, by_eth1, by_eth2] in &crossed[..2] {
        assert!(*by_eth1 > all && by_eth0 + by_eth2 < SMALL, "{crossed:?}");
    }
    // Where one speed is not known, both networks count as equal.
    let [by_eth0, by_eth1, by_eth2] = crossed[2];
    assert!(by_eth0 > SMALL && by_eth1 > SMALL, "{crossed:?}");
    assert!(by_eth2 < SMALL, "{crossed:?}");
}
