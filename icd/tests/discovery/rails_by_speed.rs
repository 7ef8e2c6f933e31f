//! Large transfers to a node with two networks: the bytes cross the network that was measured to be fast.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use causeway::config::ServerSettings;
use causeway::transport::links::measure_link;
use causeway_links::{Dialled, FarNode, LinkEntry, LinkMemory, Terms, dial_any, lead};
use causeway_network::Host;
use causeway_proto::id::{SessionId, SessionSecret};

use crate::frames::servers::*;
use crate::stage::*;

pub(crate) const SIZE: usize = 24 << 20;
/// Commands, heartbeats and the kernel's own packets.
pub(crate) const SMALL: u64 = 2 << 20;

/// A client, and a node with a second network.
pub(crate) struct TwoNetworks {
    network: Stage,
    daemon: Daemon,
    state: tempfile::TempDir,
}

impl TwoNetworks {
    /// With this rate of the second network. The first has 100 Mbit/s.
    pub(crate) fn new(rate: &str) -> Option<TwoNetworks> {
        let network = network(2)?;
        let other = network.host(1).namespace();
        let cable = format!("ip link add eth1 type veth peer name eth1 netns {other}");
        run(network.host(0), &cable);
        for (number, host) in network.hosts().iter().enumerate() {
            let own = number + 1;
            run(host, &format!("ip address add 10.88.0.{own}/24 dev eth1"));
            run(host, "ip link set eth1 up");
            for (interface, rate) in [("eth0", "100mbit"), ("eth1", rate)] {
                let shaped =
                    format!("dev {interface} root tbf rate {rate} burst 256kb latency 50ms");
                run(host, &format!("tc qdisc replace {shaped}"));
                // Both are counted where the client receives and sends.
                if number == 0 && interface == "eth0" {
                    run(host, "nft add table inet rails");
                }
                if number == 0 {
                    count(host, interface);
                }
            }
        }
        let daemon = quiet(network.host(1), "A", &["--insecure".to_owned()]);
        Some(TwoNetworks {
            network,
            daemon,
            state: tempfile::tempdir().expect("a folder"),
        })
    }

    fn client(&self) -> &Host {
        self.network.host(0)
    }

    /// The node's addresses: that of the first network, and that of the second.
    fn addresses(&self) -> [SocketAddr; 2] {
        let first = self.network.host(1).address();
        let port = self.daemon.address.port();
        [(first, port).into(), ([10, 88, 0, 2], port).into()]
    }

    /// Measures the way to each address, as `causeway links --measure` does, and keeps the figures.
    pub(crate) fn measure(&self) -> Vec<LinkEntry> {
        let entries = self.addresses().map(|address| {
            let measured = self.client().enter(|| entry(address));
            measured.expect("the host's network")
        });
        let memory = LinkMemory::of_programs(&self.state.path().join("causeway"));
        memory.keep(entries.to_vec()).expect("kept");
        entries.to_vec()
    }

    pub(crate) fn configure(&self) {
        let [first, second] = self.addresses();
        let text = format!("[[server]]\naddress = [\"{first}\", \"{second}\"]\n");
        crate::stage::configure(&self.state.path().join("servers.toml"), &text);
    }

    /// Writes and reads a buffer on the client. Returns the bytes that have crossed each network.
    pub(crate) fn transfer(&self) -> [u64; 2] {
        let move_bytes = || {
            assert_eq!(names(), ["A"]);
            let cl = Fixture::on(devices()[0]);
            let buffer = cl.buffer(CL_MEM_READ_WRITE, SIZE);
            let before = self.crossed();
            let bytes = pattern(1, SIZE);
            cl.write(buffer, 0, &bytes);
            assert!(cl.read(buffer, 0, SIZE) == bytes);
            let after = self.crossed();
            ok!(clReleaseMemObject(buffer));
            [after[0] - before[0], after[1] - before[1]]
        };
        let crossed = self.client().enter(move_bytes).expect("the host's network");
        eprintln!(
            "{} KiB by eth0, {} KiB by eth1",
            crossed[0] >> 10,
            crossed[1] >> 10
        );
        crossed
    }

    /// The bytes that nftables has counted on each network, in both directions.
    fn crossed(&self) -> [u64; 2] {
        ["eth0", "eth1"].map(|interface| crossed(self.client(), interface))
    }
}

/// The bytes that nftables has counted on an interface of a host, in both directions.
pub(crate) fn crossed(host: &Host, interface: &str) -> u64 {
    let counters = ["in", "out"].map(|way| {
        let name = format!("list counter inet rails {interface}_{way}");
        let mut nft = host.command("nft");
        let output = nft.args(name.split(' ')).output().expect("nft runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let bytes = text.split("bytes ").nth(1).expect("a count");
        let bytes = bytes.split_whitespace().next().expect("a number");
        bytes.parse::<u64>().expect("a number")
    });
    counters.iter().sum()
}

pub(crate) fn run(host: &Host, line: &str) {
    let mut words = line.split(' ');
    let mut command = host.command(words.next().expect("a program"));
    let output = command.args(words).output().expect("it runs");
    assert!(output.status.success(), "{line}: {output:?}");
}

/// Has nftables count the bytes of an interface, in the table `rails`.
pub(crate) fn count(host: &Host, interface: &str) {
    for (way, hook, key) in [("in", "input", "iifname"), ("out", "output", "oifname")] {
        let name = format!("{interface}_{way}");
        run(host, &format!("nft add counter inet rails {name}"));
        let chain = format!("inet rails {name}_chain");
        let hook = format!("{{ type filter hook {hook} priority 0 ; }}");
        run(host, &format!("nft add chain {chain} {hook}"));
        run(
            host,
            &format!("nft add rule {chain} {key} {interface} counter name {name}"),
        );
    }
}

/// The figures of this host's way to an address of a node.
fn entry(address: SocketAddr) -> LinkEntry {
    let server = ServerSettings::at(address.to_string().parse().expect("an address"));
    let terms = Terms::new(Duration::from_millis(500), None).expect("valid");
    let asked = causeway::transport::ask(&[server.clone().into()]).remove(0);
    let uuid = asked.inventory.expect("an inventory").node_uuid.clone();
    let reply = eventually("the node is free", || {
        let reply =
            measure_link(&server, &terms, false, Default::default(), None).expect("an answer");
        reply.end
    });
    let far = FarNode {
        id: SessionId(reply.id[..].try_into().expect("an id")),
        secret: SessionSecret(reply.secret[..].try_into().expect("a secret")),
        fingerprint: None,
        addresses: vec![address.to_string()],
    };
    let deadline = Instant::now() + terms.limit();
    let Dialled { ends, addresses } = dial_any(&far, deadline).expect("it answers");
    let measured = lead(ends, &terms, deadline).expect("figures");
    let peer = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let entry = LinkEntry {
        stream_ms: 500,
        when: causeway_links::seconds_now(),
        ..LinkEntry::unmeasured(peer, addresses.0.ip(), addresses.1)
    };
    entry.with(&measured)
}

#[test]
fn bytes_of_large_transfers_cross_the_network_that_was_measured_fast() {
    own_process!(waits);
    let Some(networks) = TwoNetworks::new("1gbit") else {
        return;
    };
    // A busy machine may be too slow for the fast network.
    eventually("figures of two networks", || {
        let [slow, fast] = &networks.measure()[..] else {
            unreachable!("both were measured");
        };
        eprintln!("{} and {} bytes a second", slow.outward, fast.outward);
        (4 * slow.outward < fast.outward && 4 * slow.inward < fast.inward).then_some(())
    });
    networks.configure();
    let [by_slow, by_fast] = networks.transfer();
    assert!(by_slow < SMALL, "{by_slow} bytes crossed the slow network");
    assert!(
        by_fast > 2 * SIZE as u64,
        "{by_fast} bytes crossed the fast network"
    );
}
