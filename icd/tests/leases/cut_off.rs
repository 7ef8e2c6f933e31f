//! Tests a program that loses its connection to the node and the manager: it notices, and its device goes to another
//! program.
//!
//! The program has its own host in a network of two. The manager and the node share the other.

use causeway_network::{Host, Network};

use crate::cluster::{Cluster, LeaseState, played, this};
use crate::frames::servers::*;

/// A lease without sessions ends within a second, and one without renewals within two.
const SOON: &str = "[policy.timing]\ngrace = 1000\nlease = 2000\n";

/// The program and the node wait for each other for this time. By default they wait for a minute.
const BRIEF: &str = "resume = \"2s\"\nkeep = \"2s\"\n";

/// Runs `what` in the network of a host.
fn on<T: Send>(host: &Host, what: impl FnOnce() -> T + Send) -> T {
    host.enter(what).expect("the host's network")
}

#[test]
fn who_is_cut_off_hears_of_it_and_his_device_is_another_s() {
    if played() {
        return;
    }
    let network = match Network::builder().hosts(2).build() {
        Err(error) if error.is_unavailable() => {
            eprintln!("skipped: {error}");
            return;
        }
        network => network.expect("a network"),
    };
    let (here, there) = (network.host(0), network.host(1));
    let cluster = on(there, || Cluster::start_at(there.address(), SOON));
    let _node = on(there, || cluster.node("[[device]]\nname = \"A\""));
    let (other, _) = on(there, || cluster.manager.user("other")).expect("a user");
    let mut program = cluster.program_by(here.command(this()), "1", BRIEF);
    eventually("a device", || {
        (program.code("use") == CL_SUCCESS).then_some(())
    });
    assert_eq!(program.ask("wait"), "waits");

    // ---- nothing arrives any more, and no end is notified
    network.link(0, 1).cut().expect("cut");
    assert!(program.answer().parse::<cl_int>().expect("a code") < 0);
    assert_eq!(program.code("round"), CL_DEVICE_NOT_AVAILABLE);
    program.hears("is lost");
    let next = on(there, || other.wait_for("1")).expect("a place");
    on(there, || next.granted()).expect("the device");
    assert_ne!(program.code("again"), CL_SUCCESS);

    // ---- mended: lost objects stay lost, and the program may get another free lease
    network.link(0, 1).mend().expect("mended");
    assert_eq!(program.code("round"), CL_DEVICE_NOT_AVAILABLE);
    // Nobody renews the other program's lease.
    eventually("another lease", || {
        (program.code("again") == CL_SUCCESS).then_some(())
    });
    program.end();
    on(there, || cluster.see(&[] as &[LeaseState]));
}
