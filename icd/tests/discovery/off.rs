//! With neither discovery nor announcement configured, there is no socket, thread or process for them.

use crate::frames::servers::*;
use crate::stage::{Certificates, configure, figure_of, is_used, network, quiet, thread_names};

/// The UDP sockets of a host.
fn sockets(host: &causeway_network::Host) -> Vec<String> {
    let read = || {
        let read = |file: &str| {
            let table = std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
            let table = table.expect("procfs");
            table.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        [read("udp"), read("udp6")].concat()
    };
    host.enter(read).expect("the host's network")
}

#[test]
fn without_settings_there_is_no_socket_thread_or_process() {
    own_process!(waits);
    let Some(network) = network(2) else { return };
    let certificates = Certificates::new();
    certificates.node("gpu1");
    certificates.user("alice");
    let host = |number: usize| network.host(number);
    let daemon = quiet(host(1), "A", &certificates.flags("gpu1"));
    let address = format!("{}:{}", host(1).address(), daemon.address.port());
    let settings = certificates.settings("", "").replace("discover = true", "");
    let server = format!("[[server]]\naddress = \"{address}\"\ntls_name = \"gpu1\"\n");
    configure(&certificates.path("servers.toml"), &(settings + &server));
    let program = || {
        assert_eq!(names(), ["A"]);
        devices().into_iter().for_each(is_used);
    };
    host(0).enter(program).expect("the host's network");
    for number in [0, 1] {
        assert_eq!(sockets(host(number)), [] as [String; 0], "host {number}");
    }
    let names = thread_names();
    for of_discovery in ["cw-discover", "cw-domains"] {
        assert!(
            !names.iter().any(|of| of.starts_with(of_discovery)),
            "{names:?}"
        );
    }
    let nodes = certificates.path("causeway/nodes.toml");
    assert!(!nodes.exists(), "nothing is remembered");
    let entries = std::fs::read_dir("/proc").expect("procfs").flatten();
    let of_daemon = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let is_child = figure_of(pid, "PPid:") == Some(daemon.pid().into());
        is_child.then(|| String::from_utf8_lossy(&command).into_owned())
    });
    let of_daemon: Vec<String> = of_daemon.collect();
    for flag in ["--internal-announce", "--internal-find", "--internal-link"] {
        assert!(
            !of_daemon.iter().any(|of| of.contains(flag)),
            "{of_daemon:?}"
        );
    }
}
