//! The device manager: whether it answers, as whom it knows the user, its clock, its nodes, the user's leases.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use causeway::config::{Address, Settings, Wish};
use causeway_proto::manager::{
    GetManagerRequest, LeaseInfo, LeaseState, ListLeasesRequest, ListNodesRequest, ManagerInfo,
    NodeInfo,
};

use super::{Finding, reach};
use crate::connection::Connection;
use crate::context::Context;
use crate::failure::Failure;
use crate::json;
use crate::text::duration;

const CHECK: &str = "device manager";
const CLOCK: &str = "device manager's clock";
const LEASES: &str = "leases";

/// Clocks that are set by NTP differ by less.
const CLOCKS_AGREE: Duration = Duration::from_secs(2);
/// As long as a lease is set aside and more: what differs so much ends at odd times.
const CLOCKS_DISAGREE: Duration = Duration::from_secs(30);
/// A token that counts for less long is to be renewed.
const EXPIRES_SOON_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// What was seen of it.
struct Seen {
    info: ManagerInfo,
    /// The middle of the conversation in which it told its clock, by ours.
    at_unix_ms: u64,
    round_trip: Duration,
    leases: Vec<LeaseInfo>,
    /// `None`: not for this user.
    nodes: Option<Vec<NodeInfo>>,
}

pub(super) fn manager(context: &Context, settings: &Settings) -> Vec<Finding> {
    let Some(server) = &settings.manager else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let is_secured = server.tls.ca.is_some();
    if !is_secured && !is_loopback(&server.address) {
        findings.push(Finding::note(
            CHECK,
            format!(
                "{} is spoken to in the clear: who stands between reads and changes everything",
                server.address
            ),
            "set up TLS there ([tls] in manager.toml; `causeway certs`), and name its CA (ca, CAUSEWAY_CA)",
        ));
    }
    match context.with_manager(async |manager| look(manager).await) {
        Ok(seen) => {
            findings.push(version(&server.address, &seen));
            findings.push(who(&seen.info));
            findings.push(clock(&seen));
            let of_cluster = seen.nodes.as_deref().unwrap_or_default();
            if seen.nodes.is_some() {
                findings.extend(nodes(of_cluster));
            }
            findings.extend(reach::reach(of_cluster, settings));
            findings.extend(leases(&seen.leases, settings));
        }
        Err(failure) => findings.push(Finding::problem(CHECK, failure.to_string(), cure(&failure))),
    }
    findings
}

async fn look(manager: &Connection) -> Result<Seen, Failure> {
    let begin = (Instant::now(), SystemTime::now());
    let request = manager.request(GetManagerRequest {});
    let info = manager.hear(manager.admin().get_manager(request)).await?;
    let round_trip = begin.0.elapsed();
    let request = manager.request(ListLeasesRequest {});
    let leases = manager.hear(manager.leases().list_leases(request)).await?;
    let request = manager.request(ListNodesRequest {});
    let nodes = manager.hear(manager.admin().list_nodes(request)).await;
    let middle = begin.1 + round_trip / 2;
    let since = middle.duration_since(SystemTime::UNIX_EPOCH);
    Ok(Seen {
        info,
        at_unix_ms: since.map_or(0, |since| since.as_millis() as u64),
        round_trip,
        leases: leases.leases,
        nodes: nodes.ok().map(|list| list.nodes),
    })
}

/// What is wrong with TLS is told by its own words; what to do depends on them.
fn cure(failure: &Failure) -> String {
    let said = failure.to_string();
    let of_certificate = said.contains("certificate");
    const OTHER_CA: &str =
        "another CA has signed it: name the one that did (--ca, CAUSEWAY_CA, ca in servers.toml)";
    const OTHER_NAME: &str = "call it by a name of its certificate, or make one with that name: causeway certs node NAME \
                              --address HOST; or say tls_name below [manager] in servers.toml";
    const OVER: &str =
        "make it a new one (causeway certs node NAME), and see whether the clocks of both are right";
    let known = [
        ("UnknownIssuer", OTHER_CA),
        // Of a CA that has the same name.
        ("BadSignature", OTHER_CA),
        ("not valid for name", OTHER_NAME),
        ("NotValidForName", OTHER_NAME),
        ("expired", OVER),
        ("Expired", OVER),
    ];
    let found = known.iter().find(|(word, _)| of_certificate && said.contains(word));
    let general = || failure.what_to_do().unwrap_or("see its log").to_owned();
    found.map_or_else(general, |(_, cure)| (*cure).to_owned())
}

pub(super) fn is_loopback(address: &Address) -> bool {
    let host = address.host();
    let number = host.parse::<IpAddr>();
    number.map_or(host == "localhost", |number| number.is_loopback())
}

fn version(address: &Address, seen: &Seen) -> Finding {
    let ours = env!("CARGO_PKG_VERSION");
    let theirs = &seen.info.version;
    let found = format!(
        "{address} answers, causeway-devmgr {theirs}, up for {}",
        duration(seen.info.uptime_ms)
    );
    if theirs == ours {
        Finding::ok(CHECK, found)
    } else {
        let cure = format!("this side is {ours}; the wire agrees, but keep both the same");
        Finding::note(CHECK, found, cure)
    }
}

fn who(info: &ManagerInfo) -> Finding {
    let may = match (info.admin, info.node) {
        (true, _) => "an administrator",
        (false, true) => "a node",
        (false, false) => "a user",
    };
    let known = format!("it knows you as {}, {may}", info.user);
    if !info.authenticates {
        return Finding::note(
            CHECK,
            format!("it believes every name: you are {}, and may administrate", info.user),
            "authenticate = true in manager.toml, if others can reach it",
        );
    }
    let left = info.expires_unix_ms.saturating_sub(info.unix_ms);
    if info.expires_unix_ms != 0 && left < EXPIRES_SOON_MS {
        return Finding::note(
            CHECK,
            format!("{known}, for {} more", duration(left)),
            "ask an administrator for another token: causeway tokens create USER",
        );
    }
    Finding::ok(CHECK, known)
}

fn clock(seen: &Seen) -> Finding {
    let apart = seen.info.unix_ms.abs_diff(seen.at_unix_ms);
    let behind = if seen.info.unix_ms < seen.at_unix_ms {
        "behind"
    } else {
        "ahead of"
    };
    let apart = Duration::from_millis(apart);
    let found = format!(
        "it is {:.3} s {behind} this machine's, give or take {:.3} s",
        apart.as_secs_f64(),
        seen.round_trip.as_secs_f64() / 2.0
    );
    let cure = "set both by NTP (timedatectl set-ntp true): tokens, certificates and leases end by the clock";
    // What the way took is not the clocks' fault.
    match apart.saturating_sub(seen.round_trip / 2) {
        apart if apart <= CLOCKS_AGREE => Finding::ok(CLOCK, found),
        apart if apart <= CLOCKS_DISAGREE => Finding::note(CLOCK, found, cure),
        _ => Finding::problem(CLOCK, found, cure),
    }
}

fn nodes(nodes: &[NodeInfo]) -> Vec<Finding> {
    let connected = nodes.iter().filter(|node| node.connected);
    let devices: usize = connected.clone().map(|node| node.devices.len()).sum();
    let found = format!(
        "{} of {} nodes are connected, with {devices} devices",
        connected.count(),
        nodes.len()
    );
    let all = if devices == 0 {
        Finding::problem(CHECK, found, "on each node: causewayd --manager HOST[:PORT]")
    } else {
        Finding::ok(CHECK, found)
    };
    let gone = nodes.iter().filter(|node| !node.connected || node.draining);
    let gone = gone.map(|node| {
        let (what, cure) = if node.connected {
            ("is being drained", format!("causeway nodes resume {}", node.name))
        } else {
            let cure = format!(
                "see whether causewayd runs there and reaches the manager; if it is gone for good, causeway nodes \
                 remove {}",
                node.name
            );
            ("is lost", cure)
        };
        Finding::note(CHECK, format!("node {} {what}", node.name), cure)
    });
    [all].into_iter().chain(gone).collect()
}

fn leases(leases: &[LeaseInfo], settings: &Settings) -> Vec<Finding> {
    let mut findings = vec![Finding::ok(LEASES, format!("you see {}", leases.len()))];
    let lapsed = leases.iter().filter(|of| of.state() == LeaseState::Lapsed);
    findings.extend(lapsed.map(|of| {
        let id = json::id(&of.lease_id);
        Finding::note(
            LEASES,
            format!("{id} of {} has lost its program, and is kept for a while", of.user),
            format!("causeway release {id} gives it back at once"),
        )
    }));
    let wish = settings.lease.as_ref().map(|lease| &lease.wish);
    if let Some(Wish::Lease(wanted)) = wish
        && !leases.iter().any(|of| of.lease_id[..] == wanted[..])
    {
        findings.push(Finding::problem(
            LEASES,
            format!("CAUSEWAY_LEASE names {}, which is over or not yours", json::id(wanted)),
            "unset CAUSEWAY_LEASE, or run the program by `causeway run`",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn seen(manager_ms: u64, our_ms: u64) -> Seen {
        Seen {
            info: ManagerInfo {
                unix_ms: manager_ms,
                authenticates: true,
                ..ManagerInfo::default()
            },
            at_unix_ms: our_ms,
            round_trip: Duration::from_millis(100),
            leases: Vec::new(),
            nodes: None,
        }
    }

    #[test]
    fn clocks_that_differ_are_found() {
        for (manager, ours, verdict) in [
            (100_000, 100_050, Verdict::Ok),
            (100_000, 102_050, Verdict::Ok),
            (100_000, 103_000, Verdict::Note),
            (200_000, 100_000, Verdict::Problem),
        ] {
            let finding = clock(&seen(manager, ours));
            assert_eq!(finding.verdict, verdict, "{finding:?}");
        }
        assert!(clock(&seen(0, 5000)).found.contains("5.000 s behind"));
    }

    #[test]
    fn a_token_that_ends_soon_and_a_manager_that_believes_all_are_noted() {
        let mut info = seen(1000, 1000).info;
        assert_eq!(who(&info).verdict, Verdict::Ok);
        info.expires_unix_ms = 1000 + EXPIRES_SOON_MS - 1;
        assert_eq!(who(&info).verdict, Verdict::Note);
        info.expires_unix_ms = 0;
        info.authenticates = false;
        assert!(who(&info).found.contains("believes every name"));
    }

    #[test]
    fn lost_nodes_are_named() {
        let node = |name: &str, connected| NodeInfo {
            name: name.to_owned(),
            connected,
            ..NodeInfo::default()
        };
        let found = nodes(&[node("a", true), node("b", false)]);
        assert_eq!(found[0].verdict, Verdict::Problem);
        assert!(found.len() == 2 && found[1].found.contains("node b is lost"));
    }
}
