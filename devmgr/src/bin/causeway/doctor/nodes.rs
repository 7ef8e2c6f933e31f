//! Checks of the configured nodes: whether they answer, their versions, their problems.

use std::net::ToSocketAddrs as _;
use std::time::Duration;

use causeway::config::{Address, ServerSettings, Settings};
use causeway_devmgr::report::{self, DeviceReport};
use causeway_proto::status::{TlsFault, WireError};

use super::finding::Finding;
use super::manager::is_loopback;
use crate::validity;

/// A finding for a node that is reached over a network without TLS.
fn clear(server: &ServerSettings) -> Option<Finding> {
    let mut far = server.addresses().filter(|address| !is_loopback(address));
    let clear = far.next().filter(|_| server.tls.ca.is_none());
    clear.map(|address| {
        Finding::note(
            "node's TLS",
            format!(
                "the connection to {address} does not use TLS: anyone on the network path can read and change the traffic"
            ),
            "set up TLS there ([tls] in daemon.toml; `causeway certs`) and name its CA (ca, CAUSEWAY_CA), or tunnel",
        )
    })
}

const LEASE: &str = "request devices of the node's device manager: set CAUSEWAY_MANAGER (ask the node's \
                     administrator), then causeway run --request 1 -- PROGRAM";

const TLS_MISSING: &str = "the node does not speak TLS: give it a certificate (causeway certs node NAME), or configure no CA for it";

/// The cure for a node that does not answer as it should. `is_known`: whether a host has an address.
fn cure(error: &WireError, is_known: fn(&Address) -> bool) -> String {
    let cure = match error {
        WireError::Credentials { .. } => {
            "name the right file (CAUSEWAY_CA, CAUSEWAY_TOKEN_FILE, …; servers.toml); see the findings about it"
        }
        WireError::Unauthenticated { .. } => {
            "use a token of the node's list ([auth] tokens in daemon.toml), or add yours to it; if the node cannot read its \
             list, mend that file (owner, mode, contents): the daemon's log says what is wrong"
        }
        WireError::Refused { .. } => {
            "look at the daemon's log there; if a device manager assigns the node's devices, set CAUSEWAY_MANAGER (ask the \
             node's administrator), then causeway run --request 1 -- PROGRAM"
        }
        WireError::Tls { fault, .. } => match fault {
            TlsFault::OtherCa => {
                "the node's certificate was signed by another CA; name that one (CAUSEWAY_CA, ca in servers.toml)"
            }
            TlsFault::OtherName => {
                "use a name that is in the node's certificate; through a tunnel, or by another address, configure that name \
                 (tls_name below [[server]], or name below [tls], in servers.toml); or make a certificate with this name: \
                 causeway certs node NAME --address HOST"
            }
            TlsFault::OtherTime => {
                "make a new certificate for the node (causeway certs node NAME), and check the clocks of both machines"
            }
            TlsFault::OwnExpired => validity::RENEW,
            TlsFault::OwnMissing => {
                "the node takes callers with a certificate only: name yours and its key (CAUSEWAY_CERTIFICATE and \
                 CAUSEWAY_KEY; certificate and key below [tls] in servers.toml); causeway certs client NAME makes one"
            }
            TlsFault::OwnRefused => {
                "name a certificate that was signed by the node's CA for clients (--tls-client-ca there); causeway certs \
                 client NAME --from FOLDER makes one with that CA"
            }
            TlsFault::Missing | TlsFault::Other => TLS_MISSING,
        },
        WireError::Protocol { .. } => {
            "check the port: nodes listen on 7079, managers on 7078; with TLS on the node, name the CA of its certificate \
             (CAUSEWAY_CA, ca in servers.toml)"
        }
        WireError::Unreachable { address, .. } | WireError::Closed { address, .. } => {
            return unreachable(address, is_known);
        }
        _ => "look at the daemon's log there",
    };
    cure.to_owned()
}

/// The cure for a node at `address` that does not answer at all.
fn unreachable(address: &str, is_known: fn(&Address) -> bool) -> String {
    let parsed = address.parse::<Address>().ok();
    if let Some(path) = parsed.as_ref().and_then(Address::path) {
        let path = path.display();
        return format!(
            "start causewayd --listen unix:{path} on this machine, or name the socket on which it listens"
        );
    }
    if let Some(unknown) = parsed.filter(|address| !is_known(address)) {
        let host = unknown.host();
        return format!(
            "check the spelling of {host}, and whether this machine can look it up (getent hosts {host}); or write its IP \
             address"
        );
    }
    format!(
        "start causewayd there, check the address, and let the firewall pass {address}; \
         a daemon listens on loopback only, unless --listen or an SSH tunnel leads further; \
         if this is the port of a tunnel, start the tunnel again, and causewayd at its far end"
    )
}

/// Whether this machine knows an address of the host.
fn is_known(address: &Address) -> bool {
    let host = (address.host(), address.port());
    host.to_socket_addrs()
        .is_ok_and(|mut found| found.next().is_some())
}

/// A finding for a node that keeps sessions for less time, `limit`, than the settings of its server ask for.
fn keeps(server: &ServerSettings, limit: Duration) -> Option<Finding> {
    let times = [("resume", server.resume()), ("keep", server.keep())];
    let (key, asked) = times.into_iter().find(|(_, asked)| *asked > limit)?;
    let (address, asked) = (&server.address, asked.as_secs_f64());
    let kept = match limit.as_secs_f64() {
        0.0 => "no session whose connections break".to_owned(),
        seconds => format!("a session for at most {seconds} s"),
    };
    // A program that does not wait needs no session that is kept.
    (!server.resume().is_zero()).then(|| {
        Finding::note(
            "broken connections",
            format!("the node at {address} keeps {kept}; `{key}` asks for {asked} s"),
            "set a shorter time in servers.toml, or raise [sessions] resume_limit in the node's daemon.toml",
        )
    })
}

/// A finding for those cards of NVIDIA's whose utilization is missing in `causeway devices` and `causeway top`. The node
/// itself remarks that it cannot read cards: its first answer has no figures, because it does not wait for them.
fn figures(address: &str, devices: &[DeviceReport]) -> Option<Finding> {
    let is_partial = |device: &&DeviceReport| {
        let usage = device.usage.as_ref();
        // Only NVML tells the memory in use.
        usage.is_some_and(|of| of.utilization_percent.is_none() && of.memory_used_bytes.is_some())
    };
    let partial: Vec<_> = devices.iter().filter(is_partial).collect();
    let first = partial.first()?;
    let names = match partial.len() {
        1 => first.name.clone(),
        count => format!("{count} cards, such as {}", first.name),
    };
    Some(Finding::note(
        "node's cards",
        format!("{address}: the driver tells no utilization of {names}"),
        "none is needed: NVML tells none of parts of a card (MIG, virtual cards)",
    ))
}

/// A finding for a node's remark. Its cure is the part behind the last semicolon.
fn remark(address: &str, text: &str) -> Finding {
    let (found, cure) = text.rsplit_once("; ").unwrap_or((
        text,
        "see the node's daemon.toml; SECURITY.md says what its settings mean",
    ));
    Finding::note("node", format!("{address}: {found}"), cure)
}

pub(super) fn nodes(settings: &Settings) -> Vec<Finding> {
    let mut findings: Vec<Finding> = settings.servers.iter().filter_map(clear).collect();
    for node in report::nodes(settings) {
        if let Some(version) = &node.daemon_version {
            let mut servers = settings.servers.iter();
            let server = servers.find(|of| of.address.to_string() == node.address);
            findings.extend(server.and_then(|server| keeps(server, node.resume_limit)));
            let ours = env!("CARGO_PKG_VERSION");
            let found = format!(
                "{} answers, causewayd {version}, devices: {}",
                node.address,
                node.devices.len()
            );
            if !node.also_at.is_empty() {
                findings.push(Finding::note(
                    "node",
                    format!(
                        "{} and {} are the same daemon, which is used once",
                        node.address,
                        node.also_at.join(", ")
                    ),
                    "configure one of these addresses only; a second daemon on that machine needs its own port",
                ));
            }
            findings.push(if version == ours {
                Finding::ok("node", found)
            } else {
                Finding::note(
                    "node",
                    found,
                    format!("this side is {ours}; the versions are compatible, but install the same one on both"),
                )
            });
            findings.extend(figures(&node.address, &node.devices));
            let remarks = node.remarks.iter();
            findings.extend(remarks.map(|text| remark(&node.address, text)));
            findings.extend(node.problems.into_iter().map(|problem| {
                let (check, cure) = match node.hides_devices {
                    true => ("node", LEASE),
                    false => (
                        "node's own OpenCL",
                        "on the node, run clinfo -l and install its driver",
                    ),
                };
                Finding::problem(check, format!("{}: {problem}", node.address), cure)
            }));
        } else if let Some(error) = &node.error {
            findings.push(Finding::problem(
                "node",
                error.to_string(),
                cure(error, is_known),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use causeway_devmgr::report::DeviceUsage;

    use super::*;

    #[test]
    fn missing_figures_of_cards_are_named_and_those_of_other_devices_are_not() {
        let device = |usage| DeviceReport {
            name: "H200".to_owned(),
            kind: "GPU",
            version: String::new(),
            driver: String::new(),
            platform: "NVIDIA CUDA".to_owned(),
            compute_units: 1,
            memory_bytes: 1,
            usage,
        };
        let finding = |usage| figures("n:1", &[device(usage)]);
        let usage = |utilization_percent, memory_used_bytes| {
            Some(DeviceUsage {
                utilization_percent,
                memory_used_bytes,
                ..DeviceUsage::default()
            })
        };
        assert!(finding(usage(Some(0), Some(1))).is_none());
        // The daemon is older, or hides its devices.
        assert!(finding(None).is_none());
        // A device of another vendor, or a node that has not read its cards yet, or says itself that it cannot.
        assert!(finding(usage(None, None)).is_none());
        let part = finding(usage(None, Some(1))).unwrap();
        assert!(
            part.found
                .contains("the driver tells no utilization of H200")
        );
        let parts = || device(usage(None, Some(1)));
        let all = figures("n:1", &[parts(), device(usage(Some(0), Some(1))), parts()]);
        let all = all.unwrap();
        assert!(all.found.ends_with("of 2 cards, such as H200"), "{all:?}");
    }

    #[test]
    fn each_error_has_a_cure_of_its_own() {
        let (address, reason) = ("n:1".to_owned(), String::new());
        let tls = |fault| WireError::Tls {
            address: address.clone(),
            fault,
            reason: reason.clone(),
        };
        for (error, word) in [
            (
                WireError::Unauthenticated {
                    address: address.clone(),
                    reason: reason.clone(),
                },
                "[auth] tokens",
            ),
            (tls(TlsFault::Missing), "speak TLS"),
            (tls(TlsFault::OtherCa), "another CA"),
            (tls(TlsFault::OtherName), "--address"),
            (
                WireError::Unreachable {
                    address: address.clone(),
                    reason: reason.clone(),
                },
                "firewall pass n:1",
            ),
            (
                WireError::Credentials {
                    address: address.clone(),
                    reason: reason.clone(),
                },
                "right file",
            ),
        ] {
            let cure = cure(&error, |_| true);
            assert!(cure.contains(word), "{error:?}: {cure}");
        }
    }

    #[test]
    fn a_node_that_cannot_be_reached_has_the_cure_of_its_address() {
        let nobody = |_: &Address| false;
        let socket = unreachable("unix:/nope", nobody);
        assert!(
            socket.contains("--listen unix:/nope") && !socket.contains("firewall"),
            "{socket}"
        );
        let unknown = unreachable("gpu-bx:7079", nobody);
        assert!(unknown.contains("spelling of gpu-bx,"), "{unknown}");
        assert!(!is_known(&"no-such-host.invalid".parse().unwrap()));
        assert!(is_known(&"127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn a_remark_ends_with_its_cure() {
        let with = remark("n:1", "STOPPING: it ends; (a; b); use another node");
        let found = "n:1: STOPPING: it ends; (a; b)";
        assert_eq!(with, Finding::note("node", found, "use another node"));
        let without = remark("n:1", "a remark of another version");
        assert!(
            without
                .cure
                .is_some_and(|cure| cure.contains("daemon.toml"))
        );
    }

    #[test]
    fn a_node_that_grants_less_than_is_asked_is_noted() {
        let mut server = ServerSettings::at("gpu-box".parse().unwrap());
        let seconds = Duration::from_secs;
        let found = |server: &_, limit| keeps(server, seconds(limit)).map(|found| found.found);
        assert_eq!(found(&server, 600), None);
        for (limit, text) in [
            (
                90,
                "the node at gpu-box:7079 keeps a session for at most 90 s; `keep` asks for 600 s",
            ),
            (
                30,
                "the node at gpu-box:7079 keeps a session for at most 30 s; `resume` asks for 60 s",
            ),
            (
                0,
                "the node at gpu-box:7079 keeps no session whose connections break; `resume` asks for 60 s",
            ),
        ] {
            assert_eq!(found(&server, limit).as_deref(), Some(text));
        }
        server.resume = Some(Duration::ZERO);
        assert_eq!(found(&server, 0), None);
    }

    #[test]
    fn only_what_crosses_a_network_needs_tls() {
        let clear_at = |address: &str| clear(&ServerSettings::at(address.parse().unwrap()));
        assert!(clear_at("gpu-box").is_some_and(|found| found.found.contains("gpu-box:7079")));
        for tunnel in ["127.0.0.1", "localhost:7081", "[::1]"] {
            assert_eq!(clear_at(tunnel), None, "{tunnel}");
        }
        let mut secured = ServerSettings::at("gpu-box".parse().unwrap());
        secured.tls.ca = Some("ca.pem".into());
        assert_eq!(clear(&secured), None);
    }
}
