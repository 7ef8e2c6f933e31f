//! A node whose address changes while a program has a session on it: the session goes on at the new address.

use std::time::{Duration, Instant};

use crate::frames::servers::*;
use crate::stage::*;

#[test]
fn a_session_goes_on_when_its_node_gets_another_address() {
    own_process!(waits);
    let Some(network) = network(2) else { return };
    let certificates = Certificates::new();
    certificates.node("gpu1");
    certificates.configure("", "");
    let host = network.host(1);
    let _daemon = announced(host, "A", &certificates.flags("gpu1"));
    heard(network.host(0), &["gpu1"]);
    let program = || {
        assert_eq!(names(), ["A"]);
        let device = devices()[0];
        let cl = Fixture::on(device);
        let buffer = cl.buffer(CL_MEM_READ_WRITE, 1 << 16);
        cl.write(buffer, 0, &pattern(1, 1 << 16));
        readdress(host, "10.79.0.99");
        let begun = Instant::now();
        assert!(cl.read(buffer, 0, 1 << 16) == pattern(1, 1 << 16));
        let took = begun.elapsed();
        eprintln!("the session was away for {took:?}");
        assert!(took < Duration::from_secs(40), "{took:?}");
        assert!(is_available(device) && devices() == [device]);
        ok!(clReleaseMemObject(buffer));
    };
    network.host(0).enter(program).expect("the host's network");
}

#[test]
#[ignore = "three cuts in 20 s; run by name: under load, the session sometimes cannot be opened (-2)"]
fn a_session_stays_after_a_short_cut_though_its_node_announces_a_dead_address() {
    own_process!(waits);
    let Some(network) = network(2) else { return };
    let certificates = Certificates::new();
    certificates.node("gpu1");
    certificates.configure("", "");
    let log = certificates.path("log");
    let file = std::fs::File::create(&log).expect("a file");
    let lines = tracing_subscriber::fmt().with_writer(std::sync::Mutex::new(file));
    lines.with_ansi(false).init();
    // A second address of the node, which the client cannot reach.
    for (number, command) in [
        (1, "address add 10.79.0.77/16 dev eth0"),
        (0, "route add blackhole 10.79.0.77/32"),
    ] {
        let mut ip = network.host(number).command("ip");
        let output = ip.args(command.split(' ')).output();
        assert!(output.expect("ip runs").status.success(), "{command}");
    }
    let _daemon = announced(network.host(1), "A", &certificates.flags("gpu1"));
    let found = heard(network.host(0), &["gpu1"]);
    let dead = std::net::Ipv4Addr::new(10, 79, 0, 77);
    let is_dead = |of: &causeway_discovery::Place| of.address == dead && of.is_on_link;
    assert!(found[0].places.iter().any(is_dead), "{found:?}");
    let text = || std::fs::read_to_string(&log).expect("the log");
    let program = || {
        assert_eq!(names(), ["A"]);
        let cl = Fixture::on(devices()[0]);
        let buffer = cl.buffer(CL_MEM_READ_WRITE, 1 << 16);
        cl.write(buffer, 0, &pattern(1, 1 << 16));
        for cut in 1..4 {
            network.link(0, 1).cut().expect("nft");
            eventually("the break", || {
                let breaks = text().matches("the session has no connection").count();
                (breaks >= cut).then_some(())
            });
            network.link(0, 1).mend().expect("nft");
            assert!(cl.read(buffer, 0, 1 << 16) == pattern(1, 1 << 16));
        }
        ok!(clReleaseMemObject(buffer));
    };
    network.host(0).enter(program).expect("the host's network");
    assert!(!text().contains("the session has moved"), "{}", text());
}
