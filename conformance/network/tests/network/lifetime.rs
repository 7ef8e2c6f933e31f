//! Tests of concurrent networks, and that nothing is left when one ends.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use causeway_network::{Error, Network, Shape, VARIABLE};

use crate::support::{PATIENCE, SILENCE, build, echo, ping, socket};

/// This machine's own devices, addresses, routes and named namespaces.
fn surroundings() -> Vec<u8> {
    let questions: [&[&str]; 4] = [
        &["-br", "link"],
        &["-br", "address"],
        &["route", "show", "table", "all"],
        &["netns", "list"],
    ];
    let answers =
        questions.map(|question| Command::new("ip").args(question).output().unwrap().stdout);
    answers.concat()
}

#[test]
fn networks_do_not_see_each_other_nor_this_machine_them() {
    let before = surroundings();
    let builder = || Network::builder().link(0, 1, Shape::default());
    let Some(first) = build(builder()) else {
        return;
    };
    let second = build(builder()).unwrap();
    assert_ne!(first.name(), second.name());
    assert_eq!(first.host(1).address(), second.host(1).address());
    assert_eq!(surroundings(), before);

    let there = echo(second.host(1));
    assert!(ping(&socket(second.host(0), PATIENCE), there).is_some());
    assert!(ping(&socket(first.host(0), SILENCE), there).is_none());
    drop(second);
    let there = echo(first.host(1));
    assert!(ping(&socket(first.host(0), PATIENCE), there).is_some());
    drop(first);
    assert_eq!(surroundings(), before);
}

#[test]
fn nothing_is_left_after_a_drop() {
    let Some(network) = build(Network::builder().hosts(2).link(0, 1, Shape::default())) else {
        return;
    };
    let mut sleeper = network.host(1).command("sleep").arg("600").spawn().unwrap();
    let spaces: BTreeSet<String> = network
        .hosts()
        .iter()
        .map(|host| link_of(&host.namespace()))
        .collect();
    let inside = link_of(&format!("/proc/{}/ns/net", sleeper.id()));
    assert!(spaces.len() == 2 && spaces.contains(&inside));
    assert!(link_of("/proc/self/ns/net") != inside);

    drop(network);
    let ended = sleeper
        .try_wait()
        .unwrap()
        .expect("an end before the drop's");
    assert!(!ended.success());
    let held = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let held = held.filter_map(|entry| fs::read_link(entry.path()).ok());
    let mut held = held.map(|link| link.to_string_lossy().into_owned());
    assert!(!held.any(|link| spaces.contains(&link)));
}

fn link_of(path: &str) -> String {
    fs::read_link(path).unwrap().to_string_lossy().into_owned()
}

#[test]
fn what_a_killed_builder_left_running_is_cleaned_up() {
    if let Err(error) = Network::possible() {
        return eprintln!("skipped: {error}");
    }
    // The name that a process which no longer exists would have used.
    let mut orphan = Command::new("sleep");
    orphan
        .arg("600")
        .env(VARIABLE, "4194999-1-0")
        .stdout(Stdio::null());
    let mut orphan = orphan.spawn().unwrap();
    let begin = Instant::now();
    // Right after the fork, the child still has this process's environment.
    while !causeway_network::clean()
        .iter()
        .any(|left| left.process == orphan.id())
    {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert!(!orphan.wait().unwrap().success());
}

#[test]
fn impossible_settings_are_refused() {
    let impossible = [
        Network::builder().hosts(0),
        Network::builder().hosts(65),
        Network::builder().link(0, 2, Shape::default()),
        Network::builder().link(1, 1, Shape::default()),
        Network::builder().every_link(Shape {
            loss: 1.5,
            ..Shape::default()
        }),
    ];
    for builder in impossible {
        assert!(matches!(builder.build(), Err(Error::Setting(_))));
    }
}
