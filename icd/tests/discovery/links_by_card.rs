//! Two nodes with two networks, whose slow one the client uses: links between workers, and measurements, take the network
//! whose cards are fast.

use std::ptr::{null, null_mut};

use causeway::config::ServerSettings;
use causeway::transport::links::measure_link;
use causeway_network::Host;

use crate::cards::{carry, told, with_cards};
use crate::frames::servers::*;
use crate::measured::{no_claim, terms};
use crate::rails_by_speed::{SIZE, SMALL, count, crossed, run};
use crate::stage::*;

const CARDS: [(&str, u32); 2] = [("eth0", 1_000), ("eth1", 10_000)];
/// The nodes' hosts; host 0 is the client.
const NODES: [usize; 2] = [1, 2];

/// Three hosts on a network. The nodes have another one.
fn networks() -> Option<Stage> {
    let network = network(3).filter(|_| crate::cards::can_be_shown())?;
    let [one, other] = NODES.map(|of| network.host(of));
    let cable = format!(
        "ip link add eth1 type veth peer name eth1 netns {}",
        other.namespace()
    );
    run(one, &cable);
    for (number, host) in [(1, one), (2, other)] {
        run(
            host,
            &format!("ip address add 10.88.0.{number}/24 dev eth1"),
        );
        run(host, "ip link set eth1 up");
    }
    NODES
        .iter()
        .for_each(|of| carry(network.host(*of), &["eth0", "eth1"]));
    run(one, "nft add table inet rails");
    ["eth0", "eth1"]
        .iter()
        .for_each(|interface| count(one, interface));
    Some(network)
}

/// Writes a buffer by the first device, and moves it to the second one, whose node gets it from the first.
fn move_buffer(devices: [cl_device_id; 2], counted: &dyn Fn() -> [u64; 2]) -> [u64; 2] {
    let context = make!(clCreateContext(
        null(),
        2,
        devices.as_ptr(),
        None,
        null_mut()
    ));
    let context = context.expect("a context of two nodes");
    let queue = |device| make!(clCreateCommandQueue(context, device, 0)).expect("a queue");
    let queues = devices.map(queue);
    let buffer = make!(clCreateBuffer(context, CL_MEM_READ_WRITE, SIZE, null_mut()));
    let buffer = buffer.expect("a buffer");
    let (bytes, mut read) = (pattern(1, SIZE), vec![0_u8; SIZE]);
    let from = bytes.as_ptr().cast();
    ok!(clEnqueueWriteBuffer(
        queues[0],
        buffer,
        CL_TRUE,
        0,
        SIZE,
        from,
        0,
        null(),
        null_mut()
    ));
    let before = counted();
    ok!(clEnqueueMigrateMemObjects(
        queues[1],
        1,
        &raw const buffer,
        0,
        0,
        null(),
        null_mut()
    ));
    ok!(clFinish(queues[1]));
    let after = counted();
    let to = read.as_mut_ptr().cast();
    ok!(clEnqueueReadBuffer(
        queues[1],
        buffer,
        CL_TRUE,
        0,
        SIZE,
        to,
        0,
        null(),
        null_mut()
    ));
    assert!(read == bytes);
    ok!(clReleaseMemObject(buffer));
    for queue in queues {
        ok!(clReleaseCommandQueue(queue));
    }
    ok!(clReleaseContext(context));
    [0, 1].map(|of| after[of] - before[of])
}

/// Whether the first node measures the link to the other one by an address that begins so.
fn is_measured_by(start: &str, hosts: [&Host; 3], daemons: &[Daemon; 2]) -> bool {
    // A busy machine may take more than the time after which the next address is dialled as well.
    (0..3).any(|_| {
        let by = measured_by(hosts, daemons);
        eprintln!("measured by {by}");
        by.starts_with(start)
    })
}

/// The address by which the first node measures the link to the other one.
fn measured_by(hosts: [&Host; 3], daemons: &[Daemon; 2]) -> String {
    let [client, ..] = hosts;
    let servers = NODES.map(|of| {
        let port = daemons[of - 1].address.port();
        let address = format!("{}:{port}", hosts[of].address());
        ServerSettings::at(address.parse().expect("an address"))
    });
    let terms = terms(100);
    let ask = |server: &ServerSettings, end| {
        let asked = client.enter(|| measure_link(server, &terms, false, no_claim(), end));
        asked.expect("the host's network").expect("an answer")
    };
    let figures = || {
        let end = ask(&servers[1], None).end?;
        ask(&servers[0], Some(end)).link
    };
    eventually("free nodes", figures).to
}

#[test]
fn links_and_measurements_take_the_network_with_the_faster_cards() {
    own_process!(waits);
    let Some(network) = networks() else { return };
    let hosts = [0, 1, 2].map(|of| network.host(of));
    let start = |cards: &[(&str, u32)]| {
        NODES.map(|of| {
            let name = ["A", "B"][of - 1];
            with_cards(cards, || quiet(hosts[of], name, &["--insecure".to_owned()]))
        })
    };
    // Nodes that tell no speeds are measured by the address that comes first.
    let unknown = start(&[]);
    let first = format!("{}:", hosts[2].address());
    assert!(is_measured_by(&first, hosts, &unknown));
    drop(unknown);
    let daemons = start(&CARDS);
    for (daemon, of) in daemons.iter().zip(NODES) {
        let address = format!("{}:{}", hosts[of].address(), daemon.address.port());
        told(hosts[0], &address, CARDS.len());
    }
    assert!(is_measured_by("10.88.0.2:", hosts, &daemons));
    let server = |of: usize| {
        let (host, port) = (hosts[of].address(), daemons[of - 1].address.port());
        format!("[[server]]\naddress = \"{host}:{port}\"\nshared_memory = false\n")
    };
    let folder = tempfile::tempdir().expect("a folder");
    crate::stage::configure(
        &folder.path().join("servers.toml"),
        &NODES.map(server).concat(),
    );
    let counted = || ["eth0", "eth1"].map(|interface| crossed(hosts[1], interface));
    let program = || {
        // On a busy machine, the first list may come before a node's answer.
        eventually("two nodes", || (names() == ["A", "B"]).then_some(()));
        let devices = devices().try_into().expect("two devices");
        move_buffer(devices, &counted)
    };
    let crossed = hosts[0].enter(program).expect("the host's network");
    eprintln!("bytes of the link by eth0 and eth1: {crossed:?}");
    assert!(
        crossed[1] > SIZE as u64 && crossed[0] < SMALL,
        "{crossed:?}"
    );
}
