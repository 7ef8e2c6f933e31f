//! An independent implementation (`python3-zeroconf`), both ways: what a daemon announces is heard there, and what is
//! announced there is found.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::frames::servers::*;
use crate::stage::*;

/// Debian's own interpreter, for which its packages are.
const PYTHON: &str = "/usr/bin/python3";

/// Prints each service that comes or goes.
const BROWSE: &str = r#"
import sys, threading
from zeroconf import ServiceBrowser, Zeroconf
class Listener:
    def add_service(self, zeroconf, kind, name):
        of = zeroconf.get_service_info(kind, name, 5000)
        if of is not None:
            keys = ",".join(sorted(key.decode() for key in of.properties))
            print("came", name, of.parsed_addresses()[0], of.port, keys, flush=True)
    def update_service(self, zeroconf, kind, name):
        pass
    def remove_service(self, zeroconf, kind, name):
        print("went", name, flush=True)
zeroconf = Zeroconf()
browser = ServiceBrowser(zeroconf, "_causeway._tcp.local.", Listener())
threading.Event().wait()
"#;

/// Announces a service: name, address, port, and keys with values.
const ANNOUNCE: &str = r#"
import socket, sys, threading
from zeroconf import ServiceInfo, Zeroconf
name, address, port, *keys = sys.argv[1:]
kind = "_causeway._tcp.local."
zeroconf = Zeroconf()
zeroconf.register_service(ServiceInfo(
    kind, f"{name}.{kind}", addresses=[socket.inet_aton(address)], port=int(port),
    properties=dict(key.split("=", 1) for key in keys), server="independent.local."))
print("announced", flush=True)
threading.Event().wait()
"#;

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a script on a host. Returns the lines that it prints.
fn python(
    host: &causeway_network::Host,
    script: &str,
    arguments: &[String],
) -> (Ended, impl Iterator<Item = String>) {
    let mut command = host.command(PYTHON);
    command
        .args(["-c", script])
        .args(arguments)
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("python starts");
    let out = BufReader::new(child.stdout.take().expect("its output"));
    (Ended(child), out.lines().map_while(Result::ok))
}

#[test]
fn another_implementation_hears_daemons_and_is_heard() {
    own_process!(waits);
    let known = std::process::Command::new(PYTHON)
        .args(["-c", "import zeroconf"])
        .output();
    if !known.is_ok_and(|known| known.status.success()) {
        eprintln!("skipped: python3-zeroconf is not installed");
        return;
    }
    let Some(network) = network(4) else { return };
    let certificates = Certificates::new();
    for name in ["gpu1", "gpu2.lab"] {
        certificates.node(name);
    }
    certificates.configure("", "");
    let (_browsing, mut lines) = python(network.host(3), BROWSE, &[]);
    let first = announced(network.host(1), "A", &certificates.flags("gpu1"));
    let (address, port) = (network.host(1).address(), first.address.port());
    let came =
        format!("came gpu1._causeway._tcp.local. {address} {port} ca,id,managed,role,run,tls,wire");
    assert_eq!(lines.next(), Some(came));
    // The other daemon does not announce itself. The script announces it, with what the daemon would say.
    let second = quiet(network.host(2), "B", &certificates.flags("gpu2.lab"));
    let mut keys = said(2, None);
    keys.id = uuid_of(
        network.host(2),
        network.host(2),
        &second,
        &certificates,
        "gpu2.lab",
    );
    let mut arguments = vec![
        "gpu2.lab".to_owned(),
        network.host(2).address().to_string(),
        second.address.port().to_string(),
    ];
    arguments.extend(
        keys.to_txt()
            .iter()
            .map(|(key, value)| format!("{key}={value}")),
    );
    let (_announcing, mut announced) = python(network.host(2), ANNOUNCE, &arguments);
    assert_eq!(announced.next().as_deref(), Some("announced"));
    heard(network.host(0), &["gpu1", "gpu2.lab"]);
    // This responder holds an answer back for up to a second after the last one, so the first call may miss it.
    let program = || eventually("both nodes", || (names() == ["A", "B"]).then_some(()));
    network.host(0).enter(program).expect("the host's network");
    // A daemon that ends says goodbye.
    first.signal(rustix::process::Signal::TERM);
    let went = lines.find(|line| line.starts_with("went"));
    assert_eq!(went.as_deref(), Some("went gpu1._causeway._tcp.local."));
}
