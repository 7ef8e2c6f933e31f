//! Networks as they are: private bridges with the same address, IPv6 without IPv4, firewalls and other responders.

use std::process::{Child, Stdio};
use std::time::Duration;

use crate::frames::servers::*;
use crate::programs::Program;
use crate::scene::Scene;
use crate::stage::*;

/// A client and two nodes that announce themselves.
fn scene() -> Option<(Scene, [Daemon; 2])> {
    let scene = Scene::new(3, &["gpu1", "gpu2"])?;
    let daemons = start(&scene, "0.0.0.0:0");
    Some((scene, daemons))
}

/// An answer that comes after the first list puts its node at the end, which is not what these tests are about.
fn sorted(names: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names
}

fn start(scene: &Scene, listen: &str) -> [Daemon; 2] {
    [("A", 1, "gpu1"), ("B", 2, "gpu2")].map(|(device, number, name)| {
        let flags = [
            scene.certificates.flags(name),
            vec!["--announce".to_owned()],
        ]
        .concat();
        let settings = format!("[[device]]\nname = \"{device}\"");
        let start = || Daemon::start_flagged(listen, &settings, &flags);
        scene.host(number).enter(start).expect("the host's network")
    })
}

fn program(scene: &Scene) -> Program<'_> {
    let program = scene.program(scene.config("servers.toml", "", ""));
    Program {
        awaits: 2,
        ..program
    }
}

#[test]
fn private_bridges_with_the_same_address_on_every_host_mislead_nobody() {
    let Some(scene) = Scene::new(3, &["gpu1", "gpu2"]) else {
        return;
    };
    for number in 0..3 {
        // A bridge has a carrier only with something that is plugged in.
        for command in [
            "ip link add docker0 type bridge",
            "ip link add plug type veth peer name container",
            "ip link set plug master docker0",
            "ip address add 172.17.0.1/16 dev docker0",
            "ip link set docker0 up",
            "ip link set plug up",
            "ip link set container up",
        ] {
            scene.on(number, command);
        }
    }
    let _daemons = start(&scene, "0.0.0.0:0");
    heard(scene.host(0), &["gpu1", "gpu2"]);
    let listed = program(&scene).run();
    assert_eq!(sorted(&listed.later), ["A", "B"], "{}", listed.messages);
    let nodes = scene.memory().nodes().expect("the file is whole");
    let addresses: Vec<&str> = (nodes.iter())
        .flat_map(|node| &node.addresses)
        .map(|address| address.host())
        .collect();
    let expected = [1, 2].map(|number| scene.host(number).address().to_string());
    assert_eq!(addresses, expected, "the bridge leads to no node");
}

#[test]
fn ipv6_link_local_addresses_alone_are_enough() {
    let Some(scene) = Scene::new(3, &["gpu1", "gpu2"]) else {
        return;
    };
    for number in 0..3 {
        let host = scene.host(number);
        let enable = || std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0");
        let enabled = host.enter(enable).expect("the host's network");
        if let Err(error) = enabled {
            eprintln!("skipped: no IPv6: {error}");
            return;
        }
        scene.on(
            number,
            &format!("ip address del {}/16 dev eth0", host.address()),
        );
        eventually("an address that may be used", || {
            let mut command = host.command("ip");
            let output = command.args(["-6", "address", "show", "dev", "eth0", "scope", "link"]);
            let output = output.output().expect("ip runs").stdout;
            let text = String::from_utf8(output).expect("text");
            (text.contains("fe80") && !text.contains("tentative")).then_some(())
        });
    }
    let _daemons = start(&scene, "[::]:0");
    heard(scene.host(0), &["gpu1", "gpu2"]);
    let listed = program(&scene).run();
    assert_eq!(sorted(&listed.later), ["A", "B"], "{}", listed.messages);
    let nodes = scene.memory().nodes().expect("the file is whole");
    for address in nodes.iter().flat_map(|node| &node.addresses) {
        let address = address.as_str();
        assert!(
            address.starts_with("[fe80::") && address.contains("%eth0]"),
            "{address}"
        );
    }
    scene.block_multicast();
    let listed = program(&scene).run();
    assert_eq!(
        listed.names,
        ["A", "B"],
        "remembered ones: {}",
        listed.messages
    );
}

#[test]
fn two_networks_on_one_switch_meet_only_if_the_user_allows_routed_addresses() {
    let Some(scene) = Scene::new(2, &["gpu1"]) else {
        return;
    };
    let address = scene.host(1).address();
    for (number, command) in [
        (1, format!("ip address del {address}/16 dev eth0")),
        (1, "ip address add 10.88.0.1/24 dev eth0".to_owned()),
        (1, "ip route add 10.79.0.0/16 dev eth0".to_owned()),
        (0, "ip route add 10.88.0.0/24 dev eth0".to_owned()),
    ] {
        scene.on(number, &command);
    }
    let _daemon = announced(scene.host(1), "A", &scene.certificates.flags("gpu1"));
    let routed = "[discovery]\nrouted = true\n";
    let program = scene.program(scene.config("routed.toml", "", routed));
    let listed = Program {
        awaits: 1,
        ..program
    }
    .run();
    assert_eq!(listed.later, ["A"], "{}", listed.messages);
    std::fs::remove_file(scene.memory().path()).expect("it was remembered");
    let listed = scene.program(scene.config("on_link.toml", "", "")).run();
    assert!(listed.names.is_empty(), "{listed:?}");
}

#[test]
fn behind_the_firewall_of_a_desktop_multicast_is_enough() {
    let Some((scene, _daemons)) = scene() else {
        return;
    };
    // Multicast to port 5353 passes, and other UDP does not that nobody has asked for.
    for rule in [
        "add table inet desktop",
        "add chain inet desktop input { type filter hook input priority 0 ; }",
        "add rule inet desktop input ip daddr 224.0.0.251 udp dport 5353 accept",
        "add rule inet desktop input ct state established,related accept",
        "add rule inet desktop input meta l4proto udp drop",
    ] {
        scene.on(0, &format!("nft {rule}"));
    }
    let listed = program(&scene).run();
    assert_eq!(sorted(&listed.later), ["A", "B"], "{}", listed.messages);
    assert!(listed.took < Duration::from_secs(10), "{listed:?}");
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn avahi_on_the_same_host_and_port_disturbs_nobody() {
    const AVAHI: &str = "/usr/sbin/avahi-daemon";
    if !std::path::Path::new(AVAHI).exists() {
        eprintln!("skipped: avahi-daemon is not installed");
        return;
    }
    let Some(scene) = Scene::new(3, &["gpu1", "gpu2"]) else {
        return;
    };
    let config = scene.certificates.path("avahi.conf");
    std::fs::write(&config, "[server]\nenable-dbus=no\nuse-ipv6=no\n").expect("written");
    let mut command = scene.host(1).command(AVAHI);
    command
        .args(["--no-drop-root", "--no-chroot", "--no-rlimits", "--file"])
        .arg(&config)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut avahi = Ended(command.spawn().expect("avahi-daemon starts"));
    eventually("avahi has the port", || {
        let ended = avahi.0.try_wait().expect("its status");
        assert!(ended.is_none(), "avahi-daemon has ended: {ended:?}");
        let read = || std::fs::read_to_string("/proc/thread-self/net/udp").expect("procfs");
        let sockets = scene.host(1).enter(read).expect("the host's network");
        sockets.contains(":14E9 ").then_some(())
    });
    let _daemons = start(&scene, "0.0.0.0:0");
    heard(scene.host(0), &["gpu1", "gpu2"]);
    let listed = program(&scene).run();
    assert_eq!(sorted(&listed.later), ["A", "B"], "{}", listed.messages);
    assert!(
        avahi.0.try_wait().expect("its status").is_none(),
        "avahi still runs"
    );
}
