//! Tests a leased node that advertises two addresses: lanes use both, and one that dies costs neither bytes nor an error.

use std::net::SocketAddr;
use std::sync::Arc;

use causeway_cutter::{Forwarder, Purpose, Target};

use crate::cluster::Cluster;
use crate::frames::servers::*;

const SIZE: usize = 96 << 20;
/// An address dies when so many bytes have crossed it since the transfer began.
const DIES_AFTER: u64 = 8 << 20;

#[test]
fn all_addresses_of_a_leased_node_that_lead_to_it_are_used() {
    own_process!();
    let cluster = Cluster::start("");
    let hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
    let certificate = cluster.manager.certificates.server("node", &hosts);
    certificate.expect("a certificate of all addresses");
    let ways = [2, 3].map(|host| {
        let listen = SocketAddr::from(([127, 0, 0, host], 0));
        Arc::new(Forwarder::start_on(listen, None).expect("a free port"))
    });
    let other = cluster.plain("[[device]]\nname = \"P\"");
    // The last one leads to another node.
    let addresses = [ways[0].address(), ways[1].address(), other.address];
    let mut flags = cluster.manager.node_arguments();
    for address in addresses {
        flags.extend(["--advertise".to_owned(), address.to_string()]);
    }
    let node = Daemon::start_flagged("127.0.0.1:0", "[[device]]\nname = \"A\"", &flags);
    for way in &ways {
        way.set_target(Target::Tcp(node.address));
    }
    cluster.manager.see_devices(1).expect("it comes");
    cluster.configure("", "1");
    // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
    unsafe { std::env::set_var("CAUSEWAY_SHARED_MEMORY", "0") };

    assert_eq!(names(), ["A"]);
    let device = devices()[0];
    let cl = Fixture::on(device);
    let buffer = cl.buffer(CL_MEM_READ_WRITE, SIZE);
    cl.write(buffer, 0, &pattern(1, SIZE));
    let lanes = || ways.each_ref().map(|way| way.connected(Purpose::Lane));
    assert_eq!(lanes(), [1, 1]);
    for (round, dying) in [(2, 0), (3, 1)] {
        let bytes = pattern(round, SIZE);
        let way = Arc::clone(&ways[dying]);
        let crossed = move |way: &Forwarder| way.counts().up + way.counts().down;
        let until = crossed(&way) + DIES_AFTER;
        let dies = std::thread::spawn(move || {
            while crossed(&way) < until {
                std::thread::yield_now();
            }
            way.close();
        });
        cl.write(buffer, 0, &bytes);
        dies.join().expect("it has died");
        assert!(cl.read(buffer, 0, SIZE) == bytes);
        assert!(is_available(device));
        assert_eq!(lanes()[dying], 0);
        ways[dying].open();
        eventually("the address is used again", || {
            (lanes() == [1, 1]).then_some(())
        });
    }
    ok!(clReleaseMemObject(buffer));
}
