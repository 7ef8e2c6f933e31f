//! Nodes that were used are remembered. Later programs ask them at once, and believe them no more than others.

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use causeway::config::remembered::RememberedNode;

use crate::frames::servers::*;
use crate::programs::Program;
use crate::scene::Scene;
use crate::stage::*;

fn node(name: &str, uuid: [u8; 16], address: String) -> RememberedNode {
    let address = address.parse().expect("an address");
    RememberedNode::used_now(name.to_owned(), uuid, vec![address])
}

#[test]
fn remembered_nodes_are_in_the_first_list_without_multicast() {
    let Some(scene) = Scene::new(3, &["gpu1.lab", "gpu2"]) else {
        return;
    };
    let _daemons = [("A", 1, "gpu1.lab"), ("B", 2, "gpu2")].map(|(device, number, name)| {
        announced(scene.host(number), device, &scene.certificates.flags(name))
    });
    heard(scene.host(0), &["gpu1.lab", "gpu2"]);
    let program = scene.program(scene.config("servers.toml", "", ""));
    assert_eq!(program.run().names, ["A", "B"]);
    assert_eq!(scene.remembered(), ["gpu1.lab", "gpu2"]);
    let path = scene.memory().path().to_owned();
    let mode = |path: &std::path::Path| {
        let metadata = std::fs::metadata(path).expect("it is there");
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode(&path), 0o600);
    let text = std::fs::read_to_string(&path).expect("the file");
    assert!(!text.contains("alice"), "no user and no credential: {text}");
    scene.block_multicast();
    let listed = program.run();
    assert_eq!(listed.names, ["A", "B"]);
    eprintln!("remembered, without multicast: {:?}", listed.took);
    // A reader leaves the file as it is.
    assert_eq!(std::fs::read_to_string(&path).expect("the file"), text);
}

#[test]
fn a_damaged_file_counts_as_empty_and_this_is_said_once() {
    let Some(scene) = Scene::new(2, &["gpu1"]) else {
        return;
    };
    let _daemon = announced(scene.host(1), "A", &scene.certificates.flags("gpu1"));
    heard(scene.host(0), &["gpu1"]);
    std::fs::create_dir(scene.certificates.path("causeway")).expect("made");
    std::fs::write(scene.memory().path(), "[[node]]\nname = 'gpu1").expect("written");
    let program = scene.program(scene.config("servers.toml", "", ""));
    let listed = program.run();
    assert_eq!(listed.names, ["A"]);
    let said = listed.messages.matches("is damaged and counts as empty");
    assert_eq!(said.count(), 1, "{}", listed.messages);
    assert_eq!(scene.remembered(), ["gpu1"]);
    let messages = program.run().messages;
    assert!(!messages.contains("damaged"), "{messages}");
}

#[test]
fn two_programs_that_remember_at_the_same_time_lose_no_node() {
    let Some(scene) = Scene::new(3, &["gpu1", "gpu2"]) else {
        return;
    };
    let _daemons = [("A", 1, "gpu1"), ("B", 2, "gpu2")].map(|(device, number, name)| {
        announced(scene.host(number), device, &scene.certificates.flags(name))
    });
    heard(scene.host(0), &["gpu1", "gpu2"]);
    let programs = ["gpu1", "gpu2"].map(|name| {
        let more = format!("[discovery]\nnames = [\"{name}\"]\n");
        scene.program(scene.config(&format!("{name}.toml"), "", &more))
    });
    for _ in 0..3 {
        let running = programs.each_ref().map(Program::start);
        let listed = running.map(|wait| wait().names);
        assert_eq!(listed, [["A"], ["B"]]);
        assert_eq!(scene.remembered(), ["gpu1", "gpu2"]);
        std::fs::remove_file(scene.memory().path()).expect("removed");
    }
}

#[test]
fn a_remembered_address_that_is_somebody_elses_gets_no_credential() {
    let names = ["gpu1", "gpu2", "gpu3", "gpu4", "gpu5"];
    let Some(scene) = Scene::new(5, &names) else {
        return;
    };
    let theirs = Certificates::new();
    theirs.node("gpu2");
    let ours = &scene.certificates;
    let right = announced(scene.host(1), "A", &ours.flags("gpu1"));
    let other_ca = quiet(scene.host(2), "other CA", &theirs.flags("gpu2"));
    let other_name = announced(scene.host(3), "other name", &ours.flags("gpu3"));
    let found = heard(scene.host(0), &["gpu1", "gpu3"]);
    let uuid = |name: &str| {
        let found = found.iter().find(|of| of.name == name);
        found.expect("heard").announcement.id
    };
    let listen = || TcpListener::bind((scene.host(4).address(), 7079)).expect("a socket");
    let listener = scene.host(4).enter(listen).expect("the host's network");
    let at = |number: usize, port: u16| format!("{}:{port}", scene.host(number).address());
    let nodes = [
        node("gpu1", uuid("gpu1"), at(1, right.address.port())),
        node("gpu2", [2; 16], at(2, other_ca.address.port())),
        // The right uuid, and a certificate for another name.
        node("gpu4", uuid("gpu3"), at(3, other_name.address.port())),
        node("gpu5", [5; 16], at(4, 7079)),
    ];
    scene.memory().remember(&nodes).expect("written");
    // The right name, and another uuid. An address is of one entry only, so this file is written by hand.
    let text = std::fs::read_to_string(scene.memory().path()).expect("the file");
    let (uuid, seven) = (
        format!("{:032x}", u128::from_be_bytes(uuid("gpu3"))),
        "7".repeat(32),
    );
    let entry = text
        .split("[[node]]")
        .find(|entry| entry.contains(&uuid))
        .expect("the entry");
    let entry = entry.replace("gpu4", "gpu3").replace(&uuid, &seven);
    std::fs::write(scene.memory().path(), format!("{text}\n[[node]]{entry}")).expect("written");
    assert_eq!(scene.memory().nodes().expect("whole").len(), 5);
    scene.block_multicast();
    let received = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("its bytes");
        bytes
    });
    // A token is shown to allowed names only, and here after TLS and the certificate's name.
    write(&ours.path("token"), b"causeway-secret-token\n");
    let more = "token_file = \"token\"\n[discovery]\nnames = [\"gpu*\"]\n";
    let listed = scene.program(scene.config("servers.toml", "", more)).run();
    assert_eq!(listed.names, ["A"], "{}", listed.messages);
    assert!(listed.took < Duration::from_secs(10), "{listed:?}");
    let received = received.join().expect("the bytes");
    assert_eq!(records(&received), Some(1), "one ClientHello: {received:?}");
}

/// Prints figures; other machines have others.
#[test]
#[ignore = "measures, so the machine must be quiet: run by name"]
fn the_first_call_with_eight_nodes_takes() {
    let all: Vec<String> = (1..9).map(|number| format!("gpu{number}")).collect();
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    let Some(scene) = Scene::new(9, &names) else {
        return;
    };
    let ours = &scene.certificates;
    let mut servers = String::new();
    let daemons: Vec<Daemon> = (1..9)
        .map(|number| {
            let name = names[number - 1];
            let daemon = announced(scene.host(number), name, &ours.flags(name));
            let (address, port) = (scene.host(number).address(), daemon.address.port());
            servers +=
                &format!("[[server]]\naddress = \"{address}:{port}\"\ntls_name = \"{name}\"\n");
            daemon
        })
        .collect();
    heard(scene.host(0), &names);
    let tls = ours.settings("", "").replace("discover = true", "");
    let configured = scene.config("configured.toml", "", "");
    std::fs::write(&configured, tls + &servers).expect("written");
    let found = scene.config("servers.toml", "", "");
    let first = |what: &str, config: &PathBuf, forgets: bool, expected: &[&str]| {
        let mut took: Vec<Duration> = (0..5)
            .map(|_| {
                if forgets {
                    let _ = std::fs::remove_file(scene.memory().path());
                }
                let listed = scene.program(config.clone()).run();
                assert_eq!(listed.names, expected, "{what}");
                listed.took
            })
            .collect();
        took.sort();
        eprintln!(
            "first clGetDeviceIDs, {what}: {took:?}, median {:?}",
            took[2]
        );
    };
    first("8 configured nodes", &configured, false, &names);
    first("8 found nodes, nothing remembered", &found, true, &names);
    first("8 remembered nodes", &found, false, &names);
    drop(daemons);
    first("nobody there, nothing remembered", &found, true, &[]);
}
