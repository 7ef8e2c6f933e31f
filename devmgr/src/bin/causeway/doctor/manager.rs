//! Checks of the device manager: whether it answers, the user's identity, its clock, its nodes, the
//! user's leases.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use causeway::config::{Address, LeaseWanted, Settings};
use causeway_proto::manager::{
    DeviceKind, GetManagerRequest, KindList, LeaseInfo, LeaseState, ListKindsRequest,
    ListLeasesRequest, ListNodesRequest, ManagerInfo, NodeInfo,
};

use tonic::{Code, Response, Status};

use super::finding::Finding;
use super::{exposed, reach};
use crate::connection::Connection;
use crate::context::Context;
use crate::failure::Failure;
use crate::json;
use crate::text::{NodeNames, duration};

const CHECK: &str = "device manager";
const CLOCK: &str = "device manager's clock";
const DEVICES: &str = "device manager's devices";
const LEASES: &str = "leases";

/// Clocks that NTP sets differ by less.
const CLOCKS_AGREE: Duration = Duration::from_secs(2);
/// Clocks that differ by more make leases and tokens end at unexpected times.
const CLOCKS_DISAGREE: Duration = Duration::from_secs(30);
/// Remaining validity in milliseconds below which a token should be renewed.
const EXPIRES_SOON_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// The manager's answers to all questions.
struct ManagerAnswers {
    info: ManagerInfo,
    /// Our time in the middle of the call in which the manager reported its clock.
    at_unix_ms: u64,
    round_trip: Duration,
    leases: Vec<LeaseInfo>,
    has: KindList,
    /// The nodes. `None`: this user may not see them.
    nodes: Option<Vec<NodeInfo>>,
    /// The address that was reached.
    address: String,
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
                "the connection to {} does not use TLS: anyone on the network path can read and change the traffic",
                server.address
            ),
            "set up TLS there ([tls] in manager.toml; `causeway certs`), and name its CA (ca, CAUSEWAY_CA)",
        ));
    }
    match context.read_from_manager(async |manager| look(manager).await) {
        Ok(seen) => {
            findings.push(version(&seen));
            findings.push(who(&seen.info));
            findings.push(clock(&seen));
            findings.extend(terms(&seen.info));
            let of_cluster = seen.nodes.as_deref().unwrap_or_default();
            if seen.nodes.is_some() {
                findings.extend(nodes(of_cluster));
            }
            findings.extend(exposed::exposed(&seen.has, seen.nodes.as_deref()));
            findings.push(devices(&seen.has.kinds));
            findings.extend(reach::reach(of_cluster, settings));
            findings.extend(leases(&seen.leases, &seen.info.user, settings));
        }
        Err(failure) => {
            let cure = failure.what_to_do().unwrap_or("see its log");
            findings.push(Finding::problem(CHECK, failure.to_string(), cure));
        }
    }
    findings
}

async fn look(manager: &Connection) -> Result<ManagerAnswers, Failure> {
    let begin = (Instant::now(), SystemTime::now());
    let request = manager.request(GetManagerRequest {});
    let info = manager
        .answer_to(manager.admin().get_manager(request))
        .await?;
    let round_trip = begin.0.elapsed();
    let request = manager.request(ListLeasesRequest {});
    let leases = manager
        .answer_to(manager.leases().list_leases(request))
        .await?;
    let request = manager.request(ListKindsRequest {});
    let has = manager
        .answer_to(manager.leases().list_kinds(request))
        .await?;
    let request = manager.request(ListNodesRequest {});
    let nodes = async { unless_refused(manager.admin().list_nodes(request).await) };
    let nodes = manager.answer_to(nodes).await?;
    // The manager read its clock between question and answer, so halfway is the best estimate.
    let middle = begin.1 + round_trip / 2;
    let since = middle.duration_since(SystemTime::UNIX_EPOCH);
    Ok(ManagerAnswers {
        info,
        at_unix_ms: since.map_or(0, |since| since.as_millis() as u64),
        round_trip,
        leases: leases.leases,
        has,
        nodes: nodes.map(|list| list.nodes),
        address: manager.address().to_owned(),
    })
}

// Only some users may list the nodes, so a refusal is no failure.
fn unless_refused<T>(answer: Result<Response<T>, Status>) -> Result<Response<Option<T>>, Status> {
    match answer {
        Err(refused) if refused.code() == Code::PermissionDenied => Ok(Response::new(None)),
        answer => Ok(answer?.map(Some)),
    }
}

pub(super) fn is_loopback(address: &Address) -> bool {
    let host = address.host();
    let number = host.parse::<IpAddr>();
    number.map_or(host == "localhost", |number| number.is_loopback())
}

fn version(seen: &ManagerAnswers) -> Finding {
    let ours = env!("CARGO_PKG_VERSION");
    let theirs = &seen.info.version;
    let found = format!(
        "{} answers, causeway-devmgr {theirs}, up for {}",
        seen.address,
        duration(seen.info.uptime_ms)
    );
    if theirs == ours {
        Finding::ok(CHECK, found)
    } else {
        let cure = format!(
            "this side is {ours}; the versions are compatible, but install the same one on both"
        );
        Finding::note(CHECK, found, cure)
    }
}

fn who(info: &ManagerInfo) -> Finding {
    let may = match (info.admin, info.node) {
        (true, _) => "an administrator",
        (false, true) => "a node",
        (false, false) => "a user",
    };
    let known = format!("the manager knows you as {}, {may}", info.user);
    if !info.authenticates {
        return Finding::note(
            CHECK,
            format!(
                "the manager does not authenticate callers: you are {}, and may administrate",
                info.user
            ),
            "if others can reach the manager, set authenticate = true in manager.toml",
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

/// Checks that nobody has met a later leader than the one that answers.
fn terms(info: &ManagerInfo) -> Option<Finding> {
    (info.claimed_term > info.term).then(|| {
        Finding::problem(
            CHECK,
            format!(
                "the manager leads in term {}, but nodes or administrators have met term {}, and refuse it: its store was \
                 restored from a backup",
                info.term, info.claimed_term
            ),
            "stop all managers, run causeway-devmgr --after-restore once, and start them again",
        )
    })
}

fn clock(seen: &ManagerAnswers) -> Finding {
    let apart = seen.info.unix_ms.abs_diff(seen.at_unix_ms);
    let behind = if seen.info.unix_ms < seen.at_unix_ms {
        "behind"
    } else {
        "ahead of"
    };
    let apart = Duration::from_millis(apart);
    let found = format!(
        "the manager's clock is {:.3} s {behind} this machine's (± {:.3} s)",
        apart.as_secs_f64(),
        seen.round_trip.as_secs_f64() / 2.0
    );
    let cure = "set both by NTP (timedatectl set-ntp true): tokens, certificates and leases end by the clock";
    // The time of the call itself is no difference between the clocks.
    match apart.saturating_sub(seen.round_trip / 2) {
        apart if apart <= CLOCKS_AGREE => Finding::ok(CLOCK, found),
        apart if apart <= CLOCKS_DISAGREE => Finding::note(CLOCK, found, cure),
        _ => Finding::problem(CLOCK, found, cure),
    }
}

fn nodes(nodes: &[NodeInfo]) -> Vec<Finding> {
    let connected = nodes.iter().filter(|node| node.connected).count();
    let found = format!("{connected} of {} nodes are connected", nodes.len());
    let all = match connected {
        0 if !nodes.is_empty() => Finding::problem(
            CHECK,
            found,
            "if the manager has just restarted, try again in 15 s; else check on each node that causewayd runs and \
             reaches the manager",
        ),
        0 => Finding::problem(
            CHECK,
            found,
            "on each node: causewayd --manager HOST[:PORT]",
        ),
        _ => Finding::ok(CHECK, found),
    };
    let names = NodeNames::of_infos(nodes);
    let look_at = |node: &NodeInfo| {
        // By id if another node has the same name, because `causeway nodes` then takes the id only.
        let id = json::id(&node.node_uuid);
        let name = names.exact(&id, &node.name);
        let (what, cure) = match node {
            _ if !node.connected => (
                "is lost",
                format!(
                    "check whether causewayd runs there and reaches the manager; if the node is gone for good, \
                     causeway nodes remove {name}"
                ),
            ),
            _ if node.stopping => (
                "is stopping: it gets no new leases, and its sessions end",
                "start causewayd there again once it has ended".to_owned(),
            ),
            _ if node.draining => ("is being drained", format!("causeway nodes resume {name}")),
            _ => return None,
        };
        Some(Finding::note(
            CHECK,
            format!("node {} {what}", names.label(&id, &node.name)),
            cure,
        ))
    };
    let alike = names.shared().map(|(name, count)| {
        let cure = "one that was set up anew is a new node: causeway nodes remove ID forgets the earlier one; else give each a \
                    name of its own (name in daemon.toml)";
        Finding::note(CHECK, format!("{count} nodes are called {name}"), cure)
    });
    let gone = nodes.iter().filter_map(look_at);
    [all].into_iter().chain(gone).chain(alike).collect()
}

/// Checks the numbers of devices, which every user may see.
fn devices(kinds: &[DeviceKind]) -> Finding {
    let sum = |of: fn(&DeviceKind) -> u32| kinds.iter().map(of).fold(0, u32::saturating_add);
    let (all, free) = (sum(|of| of.count), sum(|of| of.free));
    let found = match all {
        0 => "the manager has no devices".to_owned(),
        1 => format!("the manager has 1 device, {free} free"),
        _ => format!("the manager has {all} devices, {free} free"),
    };
    match (all, free) {
        (0, _) => Finding::problem(
            DEVICES,
            found,
            "if the manager has just restarted, try again in 15 s; else run causewayd --manager HOST[:PORT] on each \
             node, or ask an administrator which nodes have joined (causeway nodes)",
        ),
        (_, 0) => Finding::note(
            DEVICES,
            found,
            "all devices are leased or on nodes that are being drained: wait for them (causeway run --wait)",
        ),
        _ => Finding::ok(DEVICES, found),
    }
}

fn leases(leases: &[LeaseInfo], user: &str, settings: &Settings) -> Vec<Finding> {
    let mut findings = vec![Finding::ok(LEASES, format!("you see {}", leases.len()))];
    let lapsed = leases.iter().filter(|of| of.state() == LeaseState::Lapsed);
    findings.extend(lapsed.map(|of| {
        let id = json::id(&of.lease_id);
        Finding::note(
            LEASES,
            format!(
                "lease {id} of {}: its program is gone; the lease ends soon",
                of.user
            ),
            format!(
                "causeway release {}{id} gives it back at once",
                if of.user == user { "" } else { "--revoke " }
            ),
        )
    }));
    let wanted = settings.lease.as_ref().map(|lease| &lease.wanted);
    if let Some(LeaseWanted::Lease(wanted)) = wanted
        && !leases.iter().any(|of| of.lease_id[..] == wanted[..])
    {
        findings.push(Finding::problem(
            LEASES,
            format!(
                "CAUSEWAY_LEASE names {}, which is over or not yours",
                json::id(wanted)
            ),
            "unset CAUSEWAY_LEASE, or run the program by `causeway run`",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn a_user_who_may_not_see_the_nodes_has_no_fault_but_a_manager_that_does_not_answer_has() {
        let refused = unless_refused::<()>(Err(Status::permission_denied("not you")));
        assert!(refused.unwrap().into_inner().is_none());
        let listed = unless_refused(Ok(Response::new(3)));
        assert_eq!(listed.unwrap().into_inner(), Some(3));
        let failed = unless_refused::<()>(Err(Status::unavailable("another one leads")));
        assert_eq!(failed.unwrap_err().code(), Code::Unavailable);
    }

    fn seen(manager_ms: u64, our_ms: u64) -> ManagerAnswers {
        ManagerAnswers {
            info: ManagerInfo {
                unix_ms: manager_ms,
                authenticates: true,
                ..ManagerInfo::default()
            },
            at_unix_ms: our_ms,
            round_trip: Duration::from_millis(100),
            leases: Vec::new(),
            has: KindList::default(),
            nodes: None,
            address: "mgr1:7078".to_owned(),
        }
    }

    #[test]
    fn the_manager_is_named_by_the_address_that_was_reached() {
        let finding = format!("{:?}", version(&seen(0, 0)));
        assert!(finding.contains("mgr1:7078 answers"), "{finding}");
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
        assert!(who(&info).found.contains("does not authenticate callers"));
    }

    #[test]
    fn a_store_that_is_older_than_what_nodes_have_met_is_a_problem() {
        let mut info = seen(1000, 1000).info;
        info.term = 3;
        assert!(terms(&info).is_none());
        info.claimed_term = 7;
        let finding = terms(&info).unwrap();
        assert_eq!(finding.verdict, Verdict::Problem);
        assert!(finding.cure.unwrap().contains("--after-restore"));
    }

    fn node(id: u8, name: &str, connected: bool) -> NodeInfo {
        NodeInfo {
            node_uuid: vec![id; 16].into(),
            name: name.to_owned(),
            connected,
            ..NodeInfo::default()
        }
    }

    #[test]
    fn nodes_that_are_lost_or_stopping_are_named() {
        assert_eq!(nodes(&[])[0].verdict, Verdict::Problem);
        let stopping = NodeInfo {
            stopping: true,
            ..node(3, "c", true)
        };
        let found = nodes(&[node(1, "a", true), node(2, "b", false), stopping]);
        assert_eq!((found.len(), found[0].verdict), (3, Verdict::Ok));
        assert!(found[0].found.contains("2 of 3"));
        assert!(found[1].found.contains("node b is lost"));
        assert!(found[2].found.contains("node c is stopping"));
    }

    #[test]
    fn of_nodes_with_one_name_each_is_told_by_its_id() {
        let found = nodes(&[
            node(0xab, "a", true),
            node(0xcd, "a", false),
            node(3, "b", false),
        ]);
        let cure = |at: usize| found[at].cure.as_deref().unwrap_or_default();
        assert!(
            found[1].found.contains("node a cdcdcdcd is lost"),
            "{found:?}"
        );
        assert!(
            cure(1).ends_with(&format!("remove {}", "cd".repeat(16))),
            "{found:?}"
        );
        assert!(cure(2).ends_with("remove b"), "{found:?}");
        assert!(found[3].found.contains("2 nodes are called a"), "{found:?}");
    }

    #[test]
    fn who_is_no_administrator_hears_whether_there_are_devices() {
        let kind = |count, free| DeviceKind {
            count,
            free,
            ..DeviceKind::default()
        };
        for (kinds, verdict, said) in [
            (&[][..], Verdict::Problem, "no device"),
            (
                &[kind(2, 0), kind(1, 0)],
                Verdict::Note,
                "3 devices, 0 free",
            ),
            (&[kind(2, 0), kind(1, 1)], Verdict::Ok, "3 devices, 1 free"),
        ] {
            let finding = devices(kinds);
            assert!(
                finding.verdict == verdict && finding.found.contains(said),
                "{finding:?}"
            );
        }
    }
}
