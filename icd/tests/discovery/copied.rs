//! Two nodes with one identity, because one machine is a copy of the other: one of them is used, and both are named.

use crate::frames::servers::*;
use crate::managers::tool_does;
use crate::programs::Program;
use crate::stage::*;

/// Gives a daemon that does not run the identity of another one.
fn copy_seed(from: &Daemon, to: &Daemon) {
    let files = std::fs::read_dir(from.state()).expect("a folder").flatten();
    let mut names = files.map(|file| file.file_name());
    let is_seed = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".seed");
    let name = names.find(is_seed).expect("a seed");
    std::fs::copy(from.state().join(&name), to.state().join(&name)).expect("copied");
}

#[test]
fn of_a_copied_machine_the_remembered_one_serves_else_the_smaller_name() {
    let Some(network) = network(3) else { return };
    let certificates = Certificates::new();
    for name in ["gpu1", "gpu2"] {
        certificates.node(name);
    }
    certificates.user("alice");
    let config = certificates.path("servers.toml");
    std::fs::write(&config, certificates.settings("", "")).expect("written");
    let flags = |name| [certificates.flags(name), vec!["--announce".to_owned()]].concat();
    let original = announced(network.host(2), "original", &certificates.flags("gpu2"));
    let mut copy = announced(network.host(1), "copy", &certificates.flags("gpu1"));
    copy.crash();
    copy_seed(&original, &copy);
    let again = || copy.start_again(&flags("gpu1"));
    network.host(1).enter(again).expect("the host's network");
    let found = heard(network.host(0), &["gpu1", "gpu2"]);
    let of = |name: &str| {
        let mut claims = found.iter().filter(|found| found.name == name);
        claims.next_back().expect("heard").announcement.clone()
    };
    assert_eq!(of("gpu1").id, of("gpu2").id, "the machines are copies");
    assert_ne!(of("gpu1").run, of("gpu2").run);
    let program = Program {
        host: network.host(0),
        config: config.clone(),
        state: certificates.folder.path(),
        resolv_conf: None,
        awaits: 0,
        asks_to_the_end: false,
    };
    let has_both = |messages: &str| {
        let told = messages
            .lines()
            .filter(|line| line.contains("have the same identity"));
        let told: Vec<&str> = told.collect();
        assert_eq!(told.len(), 1, "{messages}");
        for expected in ["gpu1 (", "gpu2 (", "node-*.seed"] {
            assert!(told[0].contains(expected), "{expected}: {messages}");
        }
    };
    let listed = program.run();
    assert_eq!(listed.names, ["copy"], "the smaller name");
    has_both(&listed.messages);
    for verb in ["discover", "doctor"] {
        let output = tool_does(network.host(0), &config, verb);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for expected in ["gpu1 (", "gpu2 (", "node-*.seed"] {
            assert!(text.contains(expected), "{verb}: {expected}: {text}");
        }
    }
    // The other one serves while the first is away, and is the one that is remembered.
    copy.crash();
    assert_eq!(program.run().names, ["original"]);
    let again = || copy.start_again(&flags("gpu1"));
    network.host(1).enter(again).expect("the host's network");
    heard(network.host(0), &["gpu1", "gpu2"]);
    let listed = program.run();
    assert_eq!(listed.names, ["original"], "the remembered one");
}

#[test]
fn a_copy_with_another_name_does_not_take_the_place_of_a_lost_node() {
    own_process!(waits);
    let Some(network) = network(4) else { return };
    let certificates = Certificates::new();
    for name in ["gpu1", "gpu2", "gpu3"] {
        certificates.node(name);
    }
    certificates.configure("resume = \"0s\"", "");
    let flags = |name| [certificates.flags(name), vec!["--announce".to_owned()]].concat();
    let mut copy = announced(network.host(2), "A", &certificates.flags("gpu2"));
    copy.crash();
    let mut original = announced(network.host(1), "A", &certificates.flags("gpu1"));
    copy_seed(&original, &copy);
    heard(network.host(0), &["gpu1"]);
    let is_used = || is_used(devices()[0]);
    let program = || {
        assert_eq!(names(), ["A"]);
        is_used();
        devices()[0] as usize
    };
    let device = network.host(0).enter(program).expect("the host's network");
    original.crash();
    let again = || copy.start_again(&flags("gpu2"));
    network.host(2).enter(again).expect("the host's network");
    let _third = announced(network.host(3), "C", &certificates.flags("gpu3"));
    heard(network.host(0), &["gpu2", "gpu3"]);
    let program = || {
        // Nodes are taken in the order of their names, so the copy has answered by then.
        eventually("the third node", || (names() == ["A", "C"]).then_some(()));
        assert_eq!(devices()[0] as usize, device);
        assert!(!is_available(devices()[0]), "the copy is not used");
    };
    network.host(0).enter(program).expect("the host's network");
    copy.crash();
    let again = || original.start_again(&flags("gpu1"));
    network.host(1).enter(again).expect("the host's network");
    let program = || {
        eventually("the node itself", || {
            (names() == ["A", "C"] && is_available(devices()[0])).then_some(())
        });
        assert_eq!(devices()[0] as usize, device);
        is_used();
    };
    network.host(0).enter(program).expect("the host's network");
}
