//! `causeway discover` as a user calls it: the list, the entries that it writes, and the list that goes on.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::managers::{program, tool_does};
use crate::scene::Scene;
use crate::stage::*;

#[test]
fn discover_lists_nodes_says_why_others_are_not_used_and_writes_entries() {
    let Some(scene) = Scene::new(4, &["gpu1", "gpu2"]) else {
        return;
    };
    let theirs = Certificates::new();
    theirs.node("gpu3");
    let ours = &scene.certificates;
    let used = announced(scene.host(1), "A", &ours.flags("gpu1"));
    let _other_ca = announced(scene.host(2), "other CA", &theirs.flags("gpu3"));
    heard(scene.host(0), &["gpu1", "gpu3"]);
    let config = scene.config("servers.toml", "# mine", "");
    let does = |arguments: &str| {
        let output = tool_does(scene.host(0), &config, arguments);
        assert!(output.status.success(), "{arguments}: {output:?}");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let address = format!("{}:{}", scene.host(1).address(), used.address.port());
    let text = does("discover");
    let (of_gpu1, of_gpu3) = text.split_once("gpu3 (node").expect("both");
    for part in ["gpu1 (node)", &*address, "eth0", " ms"] {
        assert!(of_gpu1.contains(part), "{part}: {text}");
    }
    assert!(!of_gpu1.contains("not used"), "{text}");
    assert!(of_gpu3.contains("not used: "), "{text}");
    let json = does("--json discover");
    assert!(json.contains("\"round_trip_us\""), "{json}");
    let listing = || std::fs::read_to_string(&config).expect("the file");
    let before = listing();
    assert!(does("discover --write").contains("gets 1 more"));
    let after = listing();
    assert!(after.starts_with(before.trim_end()), "{after}");
    assert_eq!(after.matches("[[server]]").count(), 1, "{after}");
    assert!(
        after.contains(&address) && !after.contains("gpu3"),
        "{after}"
    );
    assert!(does("discover --write").contains("there is no new node"));
    assert_eq!(listing(), after);
    // The entry is enough without discovery.
    let alone = after.replace("discover = true", "");
    let file = ours.path("alone.toml");
    std::fs::write(&file, alone).expect("written");
    scene.block_multicast();
    assert_eq!(scene.program(file).run().names, ["A"]);
}

#[test]
fn discover_goes_on_until_it_is_ended() {
    let Some(scene) = Scene::new(3, &["gpu1", "gpu2"]) else {
        return;
    };
    let start = |number: usize, name: &str| {
        announced(scene.host(number), name, &scene.certificates.flags(name))
    };
    let _one = start(1, "gpu1");
    heard(scene.host(0), &["gpu1"]);
    // A watch that shows nothing must not hang the test.
    let mut watch = scene.host(0).command("timeout");
    watch
        .arg("60")
        .arg(program("causeway"))
        .args(["discover", "--watch"]);
    watch.env("CAUSEWAY_CONFIG", scene.config("servers.toml", "", ""));
    watch.env_remove("CAUSEWAY_SERVERS").stdout(Stdio::piped());
    let mut watch = watch.spawn().expect("the tool starts");
    let lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    let mut lines = lines.map_while(Result::ok);
    let mut shows = |name: &str| lines.any(|line| line.starts_with(&format!("{name} (node)")));
    assert!(shows("gpu1"));
    let _other = start(2, "gpu2");
    assert!(shows("gpu2"));
    // `timeout` ends the tool, too.
    let pid = i32::try_from(watch.id()).expect("a number");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    watch.wait().expect("its status");
}
