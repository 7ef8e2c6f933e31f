//! A found node is known again by its uuid: at another address and after a restart, with the same handles.

use crate::frames::servers::*;
use crate::stage::*;

#[test]
fn a_node_that_comes_back_at_another_address_has_the_same_handles() {
    own_process!(waits);
    let Some(network) = network(3) else { return };
    let certificates = Certificates::new();
    for name in ["gpu1", "gpu2"] {
        certificates.node(name);
    }
    certificates.configure("resume = \"0s\"", "");
    let host = network.host(1);
    let flags = [certificates.flags("gpu1"), vec!["--announce".to_owned()]].concat();
    let mut daemon = announced(host, "A", &certificates.flags("gpu1"));
    heard(network.host(0), &["gpu1"]);
    let program = || {
        assert_eq!(names(), ["A"]);
        let device = devices()[0];
        is_used(device);
        device as usize
    };
    let device = network.host(0).enter(program).expect("the host's network");
    daemon.crash();
    // Without its address, the host could not say that the session has ended.
    let is_lost = || {
        eventually("the loss", || {
            (!is_available(device as cl_device_id)).then_some(())
        })
    };
    network.host(0).enter(is_lost).expect("the host's network");
    readdress(host, "10.79.0.99");
    // Another node takes the old address and port. It has another name, so it is another server.
    let old = host.address();
    let taken = network.host(2);
    let output = taken
        .command("ip")
        .args(["address", "add", &format!("{old}/16"), "dev", "eth0"])
        .output();
    assert!(output.expect("ip runs").status.success());
    let listen = format!("0.0.0.0:{}", daemon.address.port());
    let flags_of_other = [certificates.flags("gpu2"), vec!["--announce".to_owned()]].concat();
    let start = || Daemon::start_flagged(&listen, "[[device]]\nname = \"B\"", &flags_of_other);
    let _other = taken.enter(start).expect("the host's network");
    host.enter(|| daemon.start_again(&flags))
        .expect("the host's network");
    heard(network.host(0), &["gpu1", "gpu2"]);
    let program = || {
        eventually("both nodes", || {
            let devices = devices();
            let is_same = devices
                .first()
                .is_some_and(|first| *first as usize == device);
            (is_same && is_available(devices[0]) && names() == ["A", "B"]).then_some(())
        });
        is_used(devices()[0]);
    };
    network.host(0).enter(program).expect("the host's network");
    let memory =
        causeway::config::remembered::NodeMemory::at(certificates.path("causeway/nodes.toml"));
    let nodes = memory.nodes().expect("the file is whole");
    let address = format!("10.79.0.99:{}", daemon.address.port());
    assert_eq!(nodes[0].addresses[0].as_str(), address, "{nodes:?}");
}
