//! What goes wrong with discovery: configured and remembered nodes serve all the same, and it is said once what is wrong.

use std::net::UdpSocket;

use rustix::process::{Pid, Signal, kill_process};

use crate::frames::servers::*;
use crate::managers::tool_does;
use crate::programs::{Listed, Program};
use crate::scene::Scene;
use crate::stage::*;

/// A client, a configured node that does not announce itself, and one that does.
fn scene() -> Option<(Scene, [Daemon; 2])> {
    let scene = Scene::new(3, &["gpu1", "gpu2"])?;
    let flags = |name: &str| scene.certificates.flags(name);
    let daemons = [
        quiet(scene.host(1), "configured", &flags("gpu1")),
        announced(scene.host(2), "announced", &flags("gpu2")),
    ];
    heard(scene.host(0), &["gpu2"]);
    Some((scene, daemons))
}

/// A program that waits for so many devices, and to the end of its question.
fn program<'a>(scene: &'a Scene, configured: &Daemon, awaits: usize) -> Program<'a> {
    let address = format!("{}:{}", scene.host(1).address(), configured.address.port());
    let server = format!("[[server]]\naddress = \"{address}\"\ntls_name = \"gpu1\"\n");
    Program {
        awaits,
        asks_to_the_end: true,
        ..scene.program(scene.config("servers.toml", "", &server))
    }
}

fn says_once(listed: &Listed, text: &str) {
    let messages = &listed.messages;
    assert_eq!(messages.matches(text).count(), 1, "{messages}");
    assert_eq!(messages.matches("causeway doctor").count(), 1, "{messages}");
}

fn doctor_finds(scene: &Scene, text: &str) {
    let output = tool_does(
        scene.host(0),
        &scene.certificates.path("servers.toml"),
        "doctor",
    );
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(found.contains(text), "{found}");
}

#[test]
fn without_multicast_configured_and_remembered_nodes_serve_and_it_is_said_once() {
    let Some((scene, [configured, _announced])) = scene() else {
        return;
    };
    let listed = program(&scene, &configured, 2).run();
    assert_eq!(listed.later, ["configured", "announced"]);
    assert!(!listed.messages.contains("doctor"), "{}", listed.messages);
    scene.block_multicast();
    let listed = program(&scene, &configured, 2).run();
    assert_eq!(listed.later, ["configured", "announced"]);
    let trouble = "does not hear its own multicast question";
    says_once(&listed, trouble);
    doctor_finds(&scene, trouble);
}

#[test]
fn a_port_that_is_taken_hides_no_node_and_is_said_once() {
    let Some((scene, [configured, _announced])) = scene() else {
        return;
    };
    // Without SO_REUSEADDR, for both protocols.
    let taken = || UdpSocket::bind("[::]:5353").expect("a free port");
    let taken = scene.host(0).enter(taken).expect("the host's network");
    let listed = program(&scene, &configured, 2).run();
    assert_eq!(listed.later, ["configured", "announced"]);
    let trouble = "UDP port 5353 is taken";
    says_once(&listed, trouble);
    doctor_finds(&scene, trouble);
    drop(taken);
}

#[test]
fn an_announcer_that_keeps_crashing_disturbs_no_session_and_is_said_once() {
    let Some((scene, [configured, announced])) = scene() else {
        return;
    };
    let listed = program(&scene, &configured, 2).run();
    assert_eq!(listed.later, ["configured", "announced"]);
    let mut last = 0;
    for _ in 0..3 {
        let crashed = eventually("another announcer", || {
            Some(announcer(&announced)).filter(|of| *of != last)
        });
        let pid = i32::try_from(crashed).expect("a number");
        let pid = Pid::from_raw(pid).expect("a process");
        kill_process(pid, Signal::KILL).expect("the announcer is there");
        last = crashed;
    }
    // The pause is 4 s now. The node is remembered, and serves.
    let listed = program(&scene, &configured, 2).run();
    assert_eq!(listed.later, ["configured", "announced"]);
    let log = announced.log();
    assert_eq!(log.matches("it is started again").count(), 1, "{log}");
}
