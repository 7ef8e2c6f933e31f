//! A node with two networks, one ten times as fast: once transfers have shown that, their bytes cross the fast one only.

use causeway_network::Host;

use crate::frames::servers::*;
use crate::scene::Scene;
use crate::stage::*;

const SIZE: usize = 64 << 20;
/// Commands, heartbeats and the kernel's own packets of a round.
const SMALL: u64 = 4 << 20;

/// The bytes that have crossed an interface of a host, in both directions.
fn crossed(host: &Host, interface: &str) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev").expect("procfs");
    let text = host.enter(read).expect("the host's network");
    let of_it = |line: &&str| line.trim_start().starts_with(&format!("{interface}:"));
    let line = text.lines().find(of_it).expect("the interface");
    let (_, figures) = line.split_once(':').expect("figures");
    let figures: Vec<u64> = (figures.split_whitespace())
        .map(|figure| figure.parse().expect("a number"))
        .collect();
    figures[0] + figures[8]
}

#[test]
fn bytes_of_large_transfers_cross_the_fast_network() {
    own_process!(waits);
    let Some(scene) = Scene::new(2, &["gpu1"]) else {
        return;
    };
    let to = scene.host(1).namespace();
    scene.on(
        0,
        &format!("ip link add eth1 type veth peer name eth1 netns {to}"),
    );
    for number in 0..2 {
        scene.on(
            number,
            &format!("ip address add 10.88.0.{}/24 dev eth1", number + 1),
        );
        scene.on(number, "ip link set eth1 up");
        for (interface, rate) in [("eth0", "150mbit"), ("eth1", "1500mbit")] {
            let line = format!(
                "tc qdisc add dev {interface} root tbf rate {rate} burst 1mb latency 100ms"
            );
            scene.on(number, &line);
        }
    }
    scene.certificates.configure("", "");
    let daemon = announced(scene.host(1), "A", &scene.certificates.flags("gpu1"));
    eventually("both addresses are heard", || {
        let found = heard(scene.host(0), &["gpu1"]);
        (found[0].places.len() > 1).then_some(())
    });
    let program = || {
        assert_eq!(names(), ["A"]);
        let cl = Fixture::on(devices()[0]);
        let buffer = cl.buffer(CL_MEM_READ_WRITE, SIZE);
        let figures = || ["eth0", "eth1"].map(|name| crossed(scene.host(0), name));
        let mut number = 0;
        let mut round = || {
            number += 1;
            let before = figures();
            let bytes = pattern(number, SIZE);
            cl.write(buffer, 0, &bytes);
            assert!(cl.read(buffer, 0, SIZE) == bytes);
            let after = figures();
            let grown = [after[0] - before[0], after[1] - before[1]];
            eprintln!(
                "round {number}: {} KiB by eth0, {} KiB by eth1",
                grown[0] >> 10,
                grown[1] >> 10
            );
            grown
        };
        let first = round();
        assert!(
            first[0] > SMALL,
            "nobody knows yet that it is slow: {first:?}"
        );
        eventually("the slow network carries no large transfer", || {
            (round()[0] < SMALL).then_some(())
        });
        let last = round();
        assert!(last[0] < SMALL && last[1] > 2 * SIZE as u64, "{last:?}");
        ok!(clReleaseMemObject(buffer));
    };
    scene.host(0).enter(program).expect("the host's network");
    drop(daemon);
}
