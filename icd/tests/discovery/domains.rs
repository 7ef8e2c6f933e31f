//! Nodes of a domain, by a real DNS server (`dnsmasq`): also a slow one and a silent one.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use causeway_network::{Host, Shape};

use crate::frames::servers::*;
use crate::programs::{Listed, Program};
use crate::stage::*;

const DNSMASQ: &str = "/usr/sbin/dnsmasq";
const SERVICE: &str = "_causeway._tcp.lab.example.org";

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server that knows a domain with these nodes: names, keys, addresses and ports.
fn serve(host: &Host, nodes: &[(&str, String, String, u16)]) -> Server {
    let mut command: Command = host.command(DNSMASQ);
    command.args([
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--no-resolv",
        "--no-hosts",
        "--pid-file=",
        "--user=root",
        "--local=/lab.example.org/",
    ]);
    for (name, keys, address, port) in nodes {
        command.args([
            format!("--ptr-record={SERVICE},{name}.{SERVICE}"),
            format!("--srv-host={name}.{SERVICE},{name}.lab.example.org,{port}"),
            format!("--txt-record={name}.{SERVICE},{keys}"),
            format!("--host-record={name}.lab.example.org,{address}"),
        ]);
    }
    let child = command.stderr(Stdio::null()).spawn();
    let server = Server(child.expect("dnsmasq starts"));
    let is_there = || {
        let asked = host.enter(|| std::net::TcpStream::connect((host.address(), 53)));
        asked.expect("the host's network").ok()
    };
    eventually("dnsmasq", is_there);
    server
}

#[test]
fn nodes_of_a_domain_are_found_by_dns() {
    if !std::path::Path::new(DNSMASQ).exists() {
        eprintln!("skipped: dnsmasq-base is not installed");
        return;
    }
    let Some(network) = network(4) else { return };
    let certificates = Certificates::new();
    certificates.user("alice");
    // More than a packet of 512 bytes has room for.
    let names: Vec<String> = (0..40).map(|number| format!("gpu{number:02}")).collect();
    for name in &names[..2] {
        certificates.node(name);
    }
    let host = |number: usize| network.host(number);
    let daemons = [1, 2].map(|number| {
        let name = &names[number - 1];
        quiet(host(number), name, &certificates.flags(name))
    });
    let nodes: Vec<_> = (names.iter().enumerate())
        .map(|(number, name)| {
            let at = host(number.min(1) + 1);
            let daemon = &daemons[number.min(1)];
            let mut keys = said(9, None);
            keys.id = uuid_of(host(0), at, daemon, &certificates, &names[number.min(1)]);
            let keys = keys.to_txt().into_iter().filter(|(key, _)| *key != "run");
            let keys: Vec<String> = keys.map(|(key, value)| format!("{key}={value}")).collect();
            // The others of the domain are away: nobody listens there.
            let port = if number < 2 { daemon.address.port() } else { 9 };
            (
                name.as_str(),
                keys.join(","),
                at.address().to_string(),
                port,
            )
        })
        .collect();
    let server = host(3);
    let _server = serve(server, &nodes);
    let config = certificates.path("servers.toml");
    let more = "[discovery]\ndomains = [\"lab.example.org\"]\n";
    std::fs::write(&config, certificates.settings("", more)).expect("written");
    // A busy machine takes longer than the first call waits.
    let run = |servers: &[String], awaits: usize| -> Listed {
        let resolv_conf = certificates.path("resolv.conf");
        let lines: String = servers
            .iter()
            .map(|of| format!("nameserver {of}\n"))
            .collect();
        std::fs::write(&resolv_conf, lines).expect("written");
        let state = tempfile::tempdir().expect("a folder");
        Program {
            host: host(0),
            config: config.clone(),
            state: state.path(),
            resolv_conf: Some(resolv_conf),
            awaits,
            asks_to_the_end: false,
        }
        .run()
    };
    let (good, nobody) = (server.address().to_string(), "10.79.0.200".to_owned());
    let both = ["gpu00", "gpu01"];
    let listed = run(std::slice::from_ref(&good), 2);
    assert_eq!(listed.later, both, "{}", listed.messages);
    eprintln!("by DNS: {:?}", listed.took);
    let listed = run(&[nobody.clone(), good.clone()], 2);
    assert_eq!(
        listed.later, both,
        "the first server is silent: {}",
        listed.messages
    );
    let slow = network.link(0, 3);
    let delayed = Shape::delayed(Duration::from_millis(30));
    slow.shape(delayed).expect("tc");
    let listed = run(std::slice::from_ref(&good), 2);
    assert_eq!(listed.later, both, "a slow server: {}", listed.messages);
    eprintln!("by slow DNS: {:?}", listed.took);
    server.block_port(53).expect("nft");
    for silent in [&good, &nobody] {
        let listed = run(std::slice::from_ref(silent), 0);
        assert!(listed.names.is_empty());
        assert!(listed.took < Duration::from_secs(10), "{listed:?}");
        let told = listed.messages.matches("no DNS server");
        assert_eq!(told.count(), 1, "{}", listed.messages);
    }
}
