//! Device managers that announce themselves: a node, a program and the tool find theirs by its name.

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_cluster::Manager;
use causeway_discovery::Role;
use causeway_network::Host;

use crate::frames::servers::*;
use crate::stage::*;
use crate::step_down::{announcers, by_name};

pub(crate) const ANNOUNCE: &str = "[discovery]\nannounce = true\n";

pub(crate) fn program(name: &str) -> PathBuf {
    programs_of(&["causeway-devmgr"]).join(name)
}

/// Starts a manager that announces itself as `mgr1`, with its CA.
fn manager(host: &Host) -> Manager {
    let start = || Manager::start_at(host.address().into(), &program("causeway-devmgr"), ANNOUNCE);
    let started = host.enter(start).expect("the host's network");
    started.expect("a manager")
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts another manager that announces itself, with this certificate and CA, and a store of its own in `folder`.
fn another(host: &Host, [certificate, key, ca]: [PathBuf; 3], folder: &Path) -> Ended {
    let mut command = host.command(program("causeway-devmgr"));
    command
        .args(["--announce", "--authenticate", "--listen"])
        .arg(format!("{}:0", host.address()))
        .arg("--store")
        .arg(folder.join("another"))
        .arg("--tls-certificate")
        .arg(certificate)
        .arg("--tls-key")
        .arg(key)
        .arg("--tls-client-ca")
        .arg(ca)
        .stdout(Stdio::null());
    Ended(command.spawn().expect("a manager"))
}

/// Waits until two managers with TLS announce themselves as `mgr1`.
fn announced_twice(host: &Host) {
    eventually("two managers", || {
        let found = heard(host, &["mgr1"]);
        let has_tls = |of: &&causeway_discovery::Found| of.announcement.tls && of.name == "mgr1";
        (found.iter().filter(has_tls).count() > 1).then_some(())
    });
}

/// Runs `causeway queue` with these settings.
fn tool(host: &Host, config: &Path) -> Output {
    tool_does(host, config, "queue")
}

/// Runs the tool with these settings.
pub(crate) fn tool_does(host: &Host, config: &Path, arguments: &str) -> Output {
    let mut command = host.command(program("causeway"));
    let command = command
        .args(arguments.split(' '))
        .env("CAUSEWAY_CONFIG", config)
        .env_remove("CAUSEWAY_SERVERS");
    command.output().expect("the tool runs")
}

#[test]
fn node_program_and_tool_find_the_manager_of_their_ca_by_its_name() {
    own_process!(waits);
    let Some(network) = network(4) else { return };
    let host = |number: usize| network.host(number);
    let manager = manager(host(1));
    heard(host(0), &["mgr1"]);
    let confined = announcers(host(1));
    assert_eq!(confined.len(), 1, "{confined:?}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", confined[0]));
    let status = status.expect("procfs");
    for expected in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
        assert!(status.contains(expected), "{expected}: {status}");
    }
    // A stranger announces a manager of this name, too, and listens.
    let listen = || TcpListener::bind((host(3).address(), 0)).expect("a socket");
    let listener = host(3).enter(listen).expect("the host's network");
    listener.set_nonblocking(true).expect("a mode");
    let port = listener.local_addr().expect("an address").port();
    let mut claim = said(9, None);
    claim.role = Role::Manager;
    let packet = answer("mgr1", &claim, port, host(3).address());
    let socket = multicaster(host(3));
    let is_over = AtomicBool::new(false);
    let config = manager.certificates.path("servers.toml");
    let received = std::thread::scope(|scope| {
        let ends = Ends(&is_over);
        let is_over = &is_over;
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                socket.send_to(&packet, EVERYBODY).expect("sent");
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let receiving = scope.spawn(|| {
            let mut bytes = Vec::new();
            while bytes.is_empty() && !is_over.load(Ordering::Relaxed) {
                let Ok((mut stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(10));
                    continue;
                };
                stream.set_nonblocking(false).expect("a mode");
                stream.read_to_end(&mut bytes).expect("its bytes");
            }
            bytes
        });
        let _node = node(&manager, host(2));
        let user = || {
            manager
                .see_devices(1)
                .expect("the node has found its manager");
            manager.user("tester").expect("a user").1
        };
        let token = host(1).enter(user).expect("the host's network");
        crate::stage::configure(&config, &by_name(&manager, &token));
        let listed = tool(host(0), &config);
        assert!(listed.status.success(), "{listed:?}");
        let program = || {
            assert_eq!(names(), ["A"]);
            devices().into_iter().for_each(is_used);
        };
        host(0).enter(program).expect("the host's network");
        drop(ends);
        receiving.join().expect("its bytes")
    });
    // A ClientHello, and perhaps an alert.
    assert_eq!(received.first(), Some(&0x16), "{received:?}");
    assert_eq!(records(&received), Some(1), "{received:?}");
    // A manager of another CA with this name, which completes its part of the handshake.
    let others = Certificates::new();
    others.node("mgr1");
    let files = ["mgr1.pem", "mgr1.key", "ca.pem"].map(|file| others.path(file));
    let impostor = another(host(3), files, others.folder.path());
    announced_twice(host(0));
    let listed = tool(host(0), &config);
    assert!(listed.status.success(), "{listed:?}");
    drop(impostor);
    // Another manager with a right certificate of this name: nobody knows which one is meant.
    let of = &manager.certificates;
    let files = [of.path("manager.pem"), of.path("manager.key"), of.ca()];
    let _second = another(host(3), files, &of.path(""));
    announced_twice(host(0));
    let mut refused = tool(host(0), &config);
    // An answer may have come late.
    for _ in 0..5 {
        if !refused.status.success() {
            break;
        }
        refused = tool(host(0), &config);
    }
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{text}");
    for number in [1, 3] {
        assert!(text.contains(&host(number).address().to_string()), "{text}");
    }
    assert!(
        text.contains("several device managers are named mgr1"),
        "{text}"
    );
}

/// Starts a node that looks for its manager.
pub(crate) fn node(manager: &Manager, host: &Host) -> Daemon {
    let address = host.address().to_string();
    let issued = manager.certificates.server("node2", &[&address]);
    let (certificate, key) = issued.expect("a certificate");
    let path = |path: PathBuf| path.display().to_string();
    let flags = [
        ("--manager", "discover:mgr1".to_owned()),
        ("--manager-ca", path(manager.certificates.ca())),
        (
            "--manager-token-file",
            path(manager.certificates.path("node.token")),
        ),
        ("--tls-certificate", path(certificate)),
        ("--tls-key", path(key)),
    ];
    let flags: Vec<String> = (flags.into_iter())
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect();
    quiet(host, "A", &flags)
}
