//! A program that is cut off from its node and from the manager hears of it, and its device is another's.
//!
//! The program has a host of its own in a network of two; the manager and the node have the other.

use causeway_network::{Host, Network};

use crate::cluster::{Cluster, LeaseState, played, this};
use crate::frames::servers::*;

/// Without sessions a lease ends within a second, without renewals within two.
const SOON: &str = "[policy.timing]\ngrace = 1000\nlease = 2000\n";

/// Does it where the host is.
fn on<T: Send>(host: &Host, what: impl FnOnce() -> T + Send) -> T {
    host.enter(what).expect("its network")
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
    let mut program = cluster.program_by(here.command(this()), "1");
    eventually("a device", || {
        (program.code("use") == CL_SUCCESS).then_some(())
    });
    assert_eq!(program.ask("wait"), "waits");

    // ---- nothing arrives any more, and nobody is told
    network.link(0, 1).cut().expect("cut");
    assert!(program.answer().parse::<cl_int>().expect("a code") < 0);
    assert_eq!(program.code("round"), CL_DEVICE_NOT_AVAILABLE);
    program.hears("is lost");
    let next = on(there, || other.wait_for("1")).expect("a place");
    on(there, || next.granted()).expect("the device");
    assert_ne!(program.code("again"), CL_SUCCESS);

    // ---- mended: what was lost stays lost, and another lease may be had when there is one
    network.link(0, 1).mend().expect("mended");
    assert_eq!(program.code("round"), CL_DEVICE_NOT_AVAILABLE);
    // Nobody renews the other's.
    eventually("another lease", || {
        (program.code("again") == CL_SUCCESS).then_some(())
    });
    program.end();
    on(there, || cluster.see(&[] as &[LeaseState]));
}
