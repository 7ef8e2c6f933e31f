//! Checks of the configured nodes: whether they answer, their versions, their problems.

use causeway::config::{ServerSettings, Settings};
use causeway_devmgr::report;

use super::Finding;
use super::manager::is_loopback;

/// A finding for a node that is reached over a network without TLS.
fn clear(server: &ServerSettings) -> Option<Finding> {
    let is_clear = server.tls.ca.is_none() && !is_loopback(&server.address);
    is_clear.then(|| {
        Finding::note(
            "node's TLS",
            format!(
                "the connection to {} does not use TLS: anyone on the network path can read and change the traffic",
                server.address
            ),
            "set up TLS there ([tls] in daemon.toml; `causeway certs`) and name its CA (ca, CAUSEWAY_CA), or tunnel",
        )
    })
}

const LEASE: &str = "request devices of the node's device manager: set CAUSEWAY_MANAGER (ask the node's \
                     administrator), then causeway run --request 1 -- PROGRAM";

/// The cure for a node that cannot be used, by the text of its problem.
fn cure(problem: &str, address: &str) -> String {
    const CA: &str = "the node's certificate was signed by another CA; name that one (CAUSEWAY_CA, ca in servers.toml)";
    const FILES: &str = "name the right file (CAUSEWAY_CA, CAUSEWAY_TOKEN_FILE, …; servers.toml); see the findings about it";
    let known = [
        ("requires a lease", LEASE),
        ("was not contacted", FILES),
        (
            "its list of tokens",
            "on the node, mend the file that [auth] tokens names in daemon.toml (owner, mode, contents): the daemon's log says what \
             is wrong",
        ),
        (
            "token",
            "use a token of the node's list ([auth] tokens in daemon.toml), or add yours to it",
        ),
        ("UnknownIssuer", CA),
        ("BadSignature", CA),
        (
            "HandshakeFailure",
            "the node does not speak TLS: give it a certificate (causeway certs node NAME), or configure no CA for it",
        ),
        (
            "no such service",
            "this is not a node's port: nodes listen on 7079, managers on 7078",
        ),
    ];
    let found = known.iter().find(|(word, _)| problem.contains(word));
    found.map_or_else(
        || {
            format!(
                "start causewayd there, check the address, and let the firewall pass {address}; \
                 a daemon listens on loopback only, unless --listen or an SSH tunnel leads further"
            )
        },
        |(_, cure)| (*cure).to_owned(),
    )
}

/// The check and the cure for a node's remark about itself.
fn cure_of_remark(remark: &str) -> (&'static str, &'static str) {
    match remark {
        _ if remark.starts_with("INSECURE") => (
            "node's TLS",
            "on the node, set up [tls] and [auth] in daemon.toml",
        ),
        _ if remark.starts_with("STOPPING") => {
            ("node", "start causewayd there again once it has ended")
        }
        _ => (
            "node's sandbox",
            "SECURITY.md says what that means; on the node, see [sandbox] in daemon.toml",
        ),
    }
}

pub(super) fn nodes(settings: &Settings) -> Vec<Finding> {
    let mut findings: Vec<Finding> = settings.servers.iter().filter_map(clear).collect();
    for node in report::nodes(settings) {
        if let Some(version) = &node.daemon_version {
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
            findings.extend(node.remarks.into_iter().map(|remark| {
                let (check, cure) = cure_of_remark(&remark);
                Finding::note(check, format!("{}: {remark}", node.address), cure)
            }));
            findings.extend(node.problems.into_iter().map(|problem| {
                let (check, cure) = match problem.contains("requires a lease") {
                    true => ("node", LEASE),
                    false => (
                        "node's own OpenCL",
                        "on the node, run clinfo -l and install its driver",
                    ),
                };
                Finding::problem(check, format!("{}: {problem}", node.address), cure)
            }));
        } else {
            let address = &node.address;
            findings.extend(node.problems.into_iter().map(|problem| {
                let cure = cure(&problem, address);
                Finding::problem("node", problem, cure)
            }));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_is_about_what_is_wrong() {
        for (problem, word) in [
            (
                "n:1 refused the request: the token has expired",
                "[auth] tokens",
            ),
            (
                "n:1 refused the request: the node cannot read its list of tokens, and lets nobody in",
                "mend the file",
            ),
            (
                "n:1 violated Causeway's protocol: TLS: received fatal alert: HandshakeFailure",
                "speak TLS",
            ),
            ("n:1 cannot be reached: connection refused", "firewall"),
            ("x.pem: cannot be read; n:1 was not contacted", "right file"),
        ] {
            let cure = cure(problem, "n:1");
            assert!(cure.contains(word), "{problem}: {cure}");
        }
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
