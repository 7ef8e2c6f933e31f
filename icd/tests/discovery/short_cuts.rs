//! A node that also announces an address that leads nowhere, while its network fails for moments: the session stays
//! where it is.
//!
//! A module of its own, because the library reads its settings once per process.

use crate::frames::servers::*;
use crate::stage::*;

#[test]
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
    let is_dead = |of: &causeway_discovery::ClaimedAddress| of.address == dead && of.may_be_dialled;
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
