//! `causeway links` with real daemons on loopback.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::process::{AT_MOST, Manager};
use super::super::real_node::{Daemon, library};
use super::running::tool;
use super::{Secured, Tool};

/// The number of kept figures in each of a folder's files of them.
fn kept(folder: &std::path::Path) -> Vec<usize> {
    let files = std::fs::read_dir(folder).unwrap().flatten();
    let of_links = files.filter(|file| {
        let name = file.file_name();
        name.to_string_lossy().ends_with(".links.toml")
    });
    let texts = of_links.map(|file| std::fs::read_to_string(file.path()).unwrap());
    texts.map(|text| text.matches("[[link]]").count()).collect()
}

/// Two daemons with their folders, and a tool that uses them.
fn cluster() -> ([tempfile::TempDir; 2], [Daemon; 2], Tool) {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let number = |of: usize| format!("name = \"gpu{of}\"\n");
    let daemons = [0, 1].map(|of| Daemon::configured(folders[of].path(), &number(of)));
    let [one, other] = &daemons;
    let servers = format!("{},{}", one.address(), other.address());
    let tool = Tool::of("ann").with("CAUSEWAY_SERVERS", servers);
    (folders, daemons, tool)
}

#[test]
fn all_pairs_are_measured_in_rounds_kept_and_shown() {
    let (folders, daemons, tool) = cluster();
    assert!(tool.does("links").contains("no figures are kept"));
    let said = tool.run("links --measure --seconds 0.3 --svg links.svg");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.err.matches(": round ").count(), 3, "{said:?}");
    let svg = std::fs::read_to_string(tool.home().join("links.svg")).unwrap();
    assert_eq!(svg.matches("<line").count(), 3);
    // Each link is kept where it was begun.
    assert_eq!(kept(&tool.home().join(".local/state/causeway")), [2]);
    let of_nodes: Vec<_> = folders.iter().map(|folder| kept(folder.path())).collect();
    assert_eq!(of_nodes.concat(), [1]);
    let shown = tool.json("links");
    let shown = shown.as_array().unwrap();
    assert_eq!(shown.len(), 3, "{shown:?}");
    for link in shown {
        assert!(link["outward_bytes_per_second"].as_u64().unwrap() > 0);
        assert!(link["inward_bytes_per_second"].as_u64().unwrap() > 0);
        assert!(link["round_trip_least_ns"].as_u64().unwrap() > 0);
        assert_eq!((&link["old"], &link["tls"]), (&false.into(), &false.into()));
    }
    // Of two nodes, the one with the larger uuid is dialled.
    let between = shown
        .iter()
        .find_map(|link| Some((link["from_id"].as_str()?, link)));
    let (dialling, link) = between.expect("a link between nodes");
    assert!(dialling < link["to_id"].as_str().unwrap(), "{link}");
    let of_client = shown.iter().filter(|link| link["from_id"].is_null());
    assert_eq!(of_client.count(), 2);
    // A node that has ended is named, and the others are shown.
    let [one, other] = daemons;
    drop(one);
    let rest = tool.run("links");
    assert!(rest.err.contains("causeway links: "), "{rest:?}");
    assert!(
        rest.out.contains("this machine") && rest.out.contains("gpu1"),
        "{rest:?}"
    );
    assert!(!rest.out.contains("gpu0"), "{rest:?}");
    drop(other);
}

#[test]
fn each_address_of_a_server_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let listen = ["--listen", "0.0.0.0:0", "--insecure"];
    let daemon = Daemon::listening(folder.path(), "name = \"gpu\"\n", &listen);
    let port = daemon.address().port();
    let tool = Tool::of("ann");
    let config = tool.home().join("servers.toml");
    let addresses = format!("\"127.0.0.1:{port}\", \"127.0.0.2:{port}\", \"127.0.0.3:1\"");
    std::fs::write(&config, format!("[[server]]\naddress = [{addresses}]\n")).unwrap();
    let tool = tool.with("CAUSEWAY_CONFIG", config);
    // One address of three has no figures, so programs use none. The user must get to know.
    let said = tool.run("links --measure --seconds 0.1");
    assert_eq!(said.code, Some(1), "{said:?}");
    for part in [
        "this machine and gpu: 127.0.0.3:1: ",
        "links that could not be measured: 1",
    ] {
        assert!(said.err.contains(part), "{part}: {said:?}");
    }
    assert_eq!(kept(&tool.home().join(".local/state/causeway")), [2]);
    let shown = tool.json("links");
    let shown = shown.as_array().unwrap().iter();
    let to: Vec<_> = shown
        .map(|of| of["to_address"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(to, [1, 2].map(|host| format!("127.0.0.{host}:{port}")));
}

#[test]
fn doctor_names_both_addresses_of_a_slow_network_of_a_server() {
    let (_folders, daemons, _) = cluster();
    let folder = tempfile::tempdir().unwrap();
    let listen = ["--listen", "0.0.0.0:0", "--insecure"];
    let lab = Daemon::listening(folder.path(), "name = \"lab\"\n", &listen);
    let port = lab.address().port();
    let [one, other] = daemons.each_ref().map(Daemon::address);
    let servers = format!(
        "[[server]]\naddress = [\"127.0.0.1:{port}\", \"127.0.0.2:{port}\"]\n\
         [[server]]\naddress = \"{one}\"\n[[server]]\naddress = \"{other}\"\n"
    );
    let tool = Tool::of("ann");
    let config = tool.home().join("servers.toml");
    std::fs::write(&config, servers).unwrap();
    let tool = tool.with("CAUSEWAY_CONFIG", config);
    // Only to learn who the nodes are. One by one, so that no nodes are measured with each other.
    for name in ["lab", "gpu0", "gpu1"] {
        tool.does(&format!("links --measure --seconds 0.05 {name}"));
    }
    let state = tool.home().join(".local/state/causeway");
    let memory = causeway_links::LinkMemory::of_programs(&state);
    let second = format!("127.0.0.2:{port}");
    // What a busy machine has measured says nothing.
    let table = memory.table().unwrap();
    let all = table.entries().iter().map(|of| causeway_links::LinkEntry {
        outward: 100_000_000,
        inward: 100_000_000,
        ..of.clone()
    });
    let all: Vec<_> = all.collect();
    let entry = |of: &&causeway_links::LinkEntry| of.to.to_string() == second;
    let slow = all.iter().find(entry).unwrap().clone();
    memory.keep(all).unwrap();
    let of_links = || {
        let findings = tool.json("doctor");
        let findings = findings.as_array().unwrap().iter();
        let findings = findings.filter(|of| of["check"] == "links");
        findings
            .map(|of| of["found"].to_string())
            .collect::<String>()
    };
    let said = of_links();
    assert!(!said.contains(&second), "{said}");
    // A network that is wrongly enabled: programs could use the other one, and the administrator must know all the same.
    let slow = causeway_links::LinkEntry {
        outward: 100_000,
        inward: 100_000,
        ..slow
    };
    memory.keep(vec![slow]).unwrap();
    let said = of_links();
    let pair =
        format!("this machine (127.0.0.1) and lab ({second}) reach each other with 800 kbit/s");
    assert!(said.contains(&pair), "{said}");
}

#[test]
fn wrong_arguments_and_damaged_files_are_named() {
    let (_folders, _daemons, tool) = cluster();
    for wrong in [
        "links --measure --seconds 11",
        "links --measure --seconds x",
        "links --measure --rate fast",
        "links --force",
    ] {
        assert_eq!(tool.run(wrong).code, Some(2), "{wrong}");
    }
    assert!(tool.refuses("links nobody").contains("no node takes part"));
    let state = tool.home().join(".local/state/causeway");
    std::fs::create_dir_all(&state).unwrap();
    let file = causeway_links::LinkMemory::of_programs(&state);
    std::fs::write(file.path(), "[[link]]\npeer = 3\n").unwrap();
    let shown = tool.run("links");
    assert!(
        shown.err.contains("damaged and counts as empty"),
        "{shown:?}"
    );
    assert_eq!(shown.code, Some(0));
    std::fs::write(tool.home().join("there.svg"), "mine").unwrap();
    assert!(tool.refuses("links --svg there.svg").contains("exists"));
}

/// A manager, and two daemons that have joined it.
fn managed(manager: &Manager) -> ([tempfile::TempDir; 2], [Daemon; 2]) {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let daemons = [0, 1].map(|of| {
        let text = format!(
            "name = \"gpu{of}\"\n[manager]\naddress = [\"{}\"]\n",
            manager.address
        );
        Daemon::configured(folders[of].path(), &text)
    });
    connected(&tool(manager, "root"), 2);
    (folders, daemons)
}

/// Waits until so many nodes are connected.
fn connected(admin: &Tool, count: usize) {
    eventually("the nodes", || {
        let nodes = admin.json("nodes");
        let nodes = nodes.as_array().unwrap().iter();
        nodes.filter(|of| of["connected"] == true).count() == count
    });
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < AT_MOST, "{what}");
        // The daemons need the processor, too.
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn between_nodes(links: &Value) -> Vec<Value> {
    let links = links.as_array().unwrap().iter();
    let links = links.filter(|of| !of["from_id"].is_null());
    links.cloned().collect()
}

#[test]
fn the_managers_nodes_are_measured_and_the_manager_shows_their_links() {
    let mut manager = Manager::start();
    let (folders, daemons) = managed(&manager);
    let ann = tool(&manager, "ann");
    assert!(ann.does("links").contains("no figures are kept"));
    let said = ann.run("links --measure");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.err.matches(": round ").count(), 3, "{said:?}");
    for name in ["this machine", "gpu0", "gpu1"] {
        assert!(said.out.contains(name), "{said:?}");
    }
    let of_nodes: Vec<_> = folders.iter().map(|folder| kept(folder.path())).collect();
    assert_eq!(of_nodes.concat(), [1]);
    // Everyone sees the figure, as soon as the manager has it.
    let bob = tool(&manager, "bob");
    eventually("the figure", || {
        !between_nodes(&bob.json("links")).is_empty()
    });
    let links = bob.json("links");
    assert_eq!(
        links.as_array().unwrap().len(),
        1,
        "bob has measured nothing"
    );
    let link = &links[0];
    assert!(
        link["outward_bytes_per_second"].as_u64().unwrap() > 0,
        "{link}"
    );
    assert_eq!(ann.json("links").as_array().unwrap().len(), 3);
    let nodes = bob.json("nodes --links");
    for node in nodes.as_array().unwrap() {
        assert_eq!(node["links"]["measured"], 1, "{node}");
        let name = &node["links"]["slowest"]["name"];
        assert!(name != &node["name"] && name.is_string(), "{node}");
    }
    assert!(bob.does("nodes --links").contains("SLOWEST"), "{nodes}");
    // The nodes report again to a manager that has forgotten.
    manager.kill_and_restart();
    let bob = tool(&manager, "bob");
    eventually("the figure", || {
        !between_nodes(&bob.json("links")).is_empty()
    });
    // A node that is away is named, and fails who names it.
    let [one, _other] = daemons;
    drop(one);
    connected(&bob, 1);
    let skipped = "gpu0: not connected";
    let named = ann.run("links --measure gpu0 gpu1");
    assert_eq!(named.code, Some(1), "{named:?}");
    assert!(named.err.contains(skipped), "{named:?}");
    let all = ann.run("links --measure");
    assert_eq!(all.code, Some(0), "{all:?}");
    assert!(all.err.contains(skipped), "{all:?}");
    // Without its manager, the other one is no node to measure. A configured one is.
    let alone = tempfile::tempdir().unwrap();
    let alone = Daemon::configured(alone.path(), "name = \"lab\"\n");
    let both = tool(&manager, "carl").with("CAUSEWAY_SERVERS", alone.address().to_string());
    drop(manager);
    let said = both.run("links --measure");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("lab"), "{said:?}");
    assert!(
        said.err.contains("no node of the device manager"),
        "{said:?}"
    );
}

#[test]
fn users_see_and_measure_the_nodes_of_their_leases_only() {
    let secured = Secured::start();
    let (admin, ann) = (secured.admin(), secured.user("ann"));
    let ann = ann.with("CAUSEWAY_LIBRARY", library());
    admin.does("users add box --node");
    let (token, ca) = (secured.path("box.token"), secured.path("ca.pem"));
    admin.does(&format!("tokens create box --out {}", token.display()));
    let from = secured.folder().display();
    admin.does(&format!("certs node box --address 127.0.0.1 --from {from}"));
    let manager = format!(
        "[tls]\ncertificate = {:?}\nkey = {:?}\n\
         [manager]\naddress = [\"{}\"]\nca = {ca:?}\ntoken_file = {token:?}\n",
        secured.path("box.pem"),
        secured.path("box.key"),
        secured.manager.address
    );
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let _daemons = [0, 1].map(|of| {
        let text = format!("name = \"gpu{of}\"\n{manager}");
        Daemon::configured(folders[of].path(), &text)
    });
    connected(&admin, 2);
    admin.does("links --measure");
    eventually("the figure", || {
        !between_nodes(&admin.json("links")).is_empty()
    });
    for what in ["links", "links --measure"] {
        let none = ann.refuses(what);
        assert!(none.contains("no node takes part"), "{none}");
    }
    let mut program = ann.command("run --request 1 -- cat");
    let mut program = program.stdin(Stdio::piped()).spawn().unwrap();
    eventually("the lease", || {
        admin.json("leases").as_array().unwrap().len() == 1
    });
    // This machine and one node: a pair.
    let said = ann.run("links --measure");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.err.matches(": round ").count(), 1, "{said:?}");
    let shown = ["gpu0", "gpu1"].map(|name| said.out.contains(name));
    assert!(shown[0] != shown[1], "{said:?}");
    let links = ann.json("links");
    assert_eq!(links.as_array().unwrap().len(), 1, "{links}");
    assert!(between_nodes(&links).is_empty(), "{links}");
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
}
