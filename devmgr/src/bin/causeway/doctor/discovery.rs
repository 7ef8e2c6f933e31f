//! Checks of discovery: whether multicast works here, and which of the nodes that announce themselves are used.
//!
//! Nothing is checked if discovery is off. Nodes that are used are checked with the configured ones.

use causeway::config::{NotUsed, Settings};
use causeway::transport::finder::{Finder, Snapshot};

use super::finding::Finding;
use crate::discover;

const CHECK: &str = "discovery";

pub(super) fn discovery(settings: &Settings) -> Vec<Finding> {
    if !settings.discover {
        return Vec::new();
    }
    let finder = Finder::new(settings);
    finder.begin();
    finder.wait_for_all();
    let snapshot = finder.snapshot();
    let mut findings: Vec<Finding> = trust(settings).into_iter().collect();
    findings.push(network(&snapshot));
    findings.extend(domains(settings, &snapshot));
    findings.extend(unused(settings, &snapshot));
    findings.extend(copies(settings, &snapshot));
    findings.extend(memory(settings));
    findings
}

/// Whom programs trust.
fn trust(settings: &Settings) -> Option<Finding> {
    match (&settings.discovery.like.tls.ca, settings.discovery.insecure) {
        (Some(_), _) => None,
        (None, true) => Some(Finding::note(
            CHECK,
            "INSECURE: whoever announces a node without TLS on this network gets programs' data, because `insecure` is set \
             below [discovery]",
            "set up [tls] there and here (causeway certs), and remove `insecure`",
        )),
        (None, false) => Some(Finding::problem(
            CHECK,
            "no CA is configured, so no node that is found is used",
            "set `ca` below [tls] in servers.toml, or CAUSEWAY_CA",
        )),
    }
}

/// Whether answers can come.
fn network(snapshot: &Snapshot) -> Finding {
    if let Some(fault) = &snapshot.fault {
        return Finding::problem(
            CHECK,
            fault.clone(),
            "connect this machine to a network that carries multicast, or configure the servers",
        );
    }
    if !snapshot.has_shared_port {
        return Finding::note(
            CHECK,
            "UDP port 5353 is taken by a program that does not share it, so a firewall may drop answers",
            "find the program (ss -ulpn sport = 5353), and end it or let it share the port (SO_REUSEADDR)",
        );
    }
    if !snapshot.hears_itself {
        return Finding::problem(
            CHECK,
            "this machine does not hear its own multicast question",
            "let UDP to port 5353 pass this machine's firewall, or configure the servers",
        );
    }
    let heard = snapshot.found.len();
    Finding::ok(
        CHECK,
        format!("multicast works here; services heard: {heard}"),
    )
}

/// Whether DNS answers for the domains.
fn domains(settings: &Settings, snapshot: &Snapshot) -> Option<Finding> {
    let domains = settings.discovery.domains.join(", ");
    match &snapshot.domain_fault {
        _ if domains.is_empty() => None,
        None => Some(Finding::ok(CHECK, format!("DNS answers for {domains}"))),
        Some(fault) => Some(Finding::problem(
            CHECK,
            fault.clone(),
            "correct /etc/resolv.conf, or `domains` below [discovery]",
        )),
    }
}

/// Nodes with the identity of others.
fn copies(settings: &Settings, snapshot: &Snapshot) -> Vec<Finding> {
    let mut ids: Vec<_> = (snapshot.found.iter())
        .map(|found| (found.announcement.id, found.announcement.run))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    // Nodes are dialled only if two claim one identity.
    if !ids.windows(2).any(|of| of[0].0 == of[1].0) {
        return Vec::new();
    }
    let copies = discover::copies(settings, snapshot).into_iter();
    let cure = "delete node-*.seed on the copy";
    copies
        .map(|text| Finding::problem(CHECK, text, cure))
        .collect()
}

/// Nodes that programs ask without waiting for announcements.
fn memory(settings: &Settings) -> Option<Finding> {
    let memory = settings.discovery.memory.as_ref()?;
    match memory.nodes() {
        Ok(nodes) if nodes.is_empty() => None,
        Ok(nodes) => {
            let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
            let text = format!(
                "remembered nodes, which programs ask at once: {}",
                names.join(", ")
            );
            Some(Finding::ok(CHECK, text))
        }
        Err(error) => Some(Finding::note(
            CHECK,
            error.to_string(),
            "delete the file; programs write it again",
        )),
    }
}

/// Nodes that are heard and not used.
fn unused(settings: &Settings, snapshot: &Snapshot) -> Vec<Finding> {
    let finding = |name: &str, reason: NotUsed| {
        Finding::note(
            CHECK,
            format!("{name} announces itself and is not used: {reason}"),
            "causeway discover shows more",
        )
    };
    let unused = snapshot.found.iter().filter_map(|found| {
        let reason = settings.server_found(found, &snapshot.interfaces).err()?;
        Some(finding(&found.name, reason))
    });
    unused.collect()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn what_is_wrong_with_the_network_and_with_trust_is_named() {
        let mut snapshot = Snapshot {
            fault: Some("no interface".to_owned()),
            ..Snapshot::default()
        };
        assert_eq!(network(&snapshot).verdict, Verdict::Problem);
        snapshot.fault = None;
        assert!(network(&snapshot).found.contains("5353 is taken"));
        snapshot.has_shared_port = true;
        assert!(network(&snapshot).found.contains("does not hear"));
        snapshot.hears_itself = true;
        assert_eq!(network(&snapshot).verdict, Verdict::Ok);
        let mut settings = Settings::default();
        let verdict = |settings: &Settings| trust(settings).map(|of| of.verdict);
        assert_eq!(verdict(&settings), Some(Verdict::Problem));
        settings.discovery.insecure = true;
        assert_eq!(verdict(&settings), Some(Verdict::Note));
        settings.discovery.like.tls.ca = Some("ca.pem".into());
        assert_eq!(verdict(&settings), None);
        assert_eq!(discovery(&settings), Vec::new(), "discovery is off");
    }
}
