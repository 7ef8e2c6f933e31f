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
