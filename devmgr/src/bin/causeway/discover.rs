//! `causeway discover`: the nodes and managers that announce themselves on this machine's networks, at which addresses
//! they answer, and whether programs use them.
//!
//! Invariant: only nodes that a program may dial are dialled. So a stranger gets nothing of the user but the beginning of
//! a TLS handshake.

mod written;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway::config::{Address, ServerSettings, Settings};
use causeway::transport::finder::{Finder, Snapshot};
use causeway::transport::{Reply, Target, are_copies, ask_found, copied};
use causeway_discovery::{ClaimedAddress, Found, NodeId};
use causeway_proto::control::Inventory;
use serde::Serialize;

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::json::id;
use crate::say::say;
use crate::text::printable_lines;

/// Arguments of `discover`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Add the nodes that programs use to servers.toml, so that they are used without discovery
    #[arg(long, conflicts_with = "watch")]
    write: bool,
    /// Go on, and print the list again when it has changed
    #[arg(long)]
    watch: bool,
}

/// Time for the nodes to answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(1500);
/// Time from one look to the next, with `--watch`. The finder does not ask more often.
const PAUSE: Duration = Duration::from_secs(5);

/// A node or manager that was found.
#[derive(Debug, Serialize)]
struct Shown {
    /// The announced name.
    name: String,
    /// `node` or `manager`.
    role: &'static str,
    /// The announced uuid, as 32 hexadecimal digits.
    id: String,
    /// Whether it says that it uses TLS.
    tls: bool,
    /// Whether it says that a device manager controls its devices.
    managed: bool,
    /// Whether a configured server has its name or one of its addresses.
    configured: bool,
    /// Whether programs use it with `discover = true`: it has proved its name, and answers.
    used: bool,
    /// Why programs do not use it.
    reason: Option<String>,
    /// Its answer.
    #[serde(skip)]
    inventory: Option<Arc<Inventory>>,
    /// The settings of a server that programs use.
    #[serde(skip)]
    reached: Option<ServerSettings>,
    /// Its addresses.
    addresses: Vec<At>,
}

/// An address of a node.
#[derive(Debug, Serialize)]
struct At {
    /// The address, `host:port`.
    address: String,
    /// The interface on which it was heard.
    interface: Option<String>,
    /// One round trip, if the node answered there and has proved its name.
    round_trip_us: Option<u64>,
    /// Why the address is not used.
    problem: Option<String>,
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let settings = context.settings();
    for problem in &settings.problems {
        say!("causeway discover: {problem}");
    }
    let finder = Finder::new(&settings);
    let mut before = None;
    loop {
        finder.begin();
        finder.wait_for_all();
        let snapshot = finder.snapshot();
        if let Some(fault) = &snapshot.fault {
            return Err(Failure::new(fault.clone()));
        }
        let shown = look(&settings, &snapshot);
        let state: Vec<_> = shown.iter().map(Shown::state).collect();
        if before.as_ref() != Some(&state) {
            context.print(&shown, |shown| text(shown, &snapshot))?;
            before = Some(state);
        }
        if arguments.write {
            write(&settings, &shown)?;
        }
        if !arguments.watch {
            return Ok(match shown.iter().any(|of| of.used) {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            });
        }
        std::thread::sleep(PAUSE);
    }
}

/// Adds the nodes that are used, and not configured, to `servers.toml`.
fn write(settings: &Settings, shown: &[Shown]) -> Result<(), Failure> {
    let new = shown.iter().filter(|of| of.used && !of.configured);
    let new: Vec<ServerSettings> = new.filter_map(|of| of.reached.clone()).collect();
    if new.is_empty() {
        say!("causeway discover: there is no new node to add to servers.toml");
        return Ok(());
    }
    let path = written::add(settings, &new)?;
    say!(
        "causeway discover: {} gets {} more",
        path.display(),
        new.len()
    );
    Ok(())
}

/// Why nodes that answer are not used: they are copies of others' machines.
pub(crate) fn copies(settings: &Settings, snapshot: &Snapshot) -> Vec<String> {
    let is_copy = |of: &Shown| of.inventory.is_some() && !of.used;
    let shown = look(settings, snapshot).into_iter();
    shown.filter(is_copy).filter_map(|of| of.reason).collect()
}

/// Dials every address of the nodes that programs may dial.
fn look(settings: &Settings, snapshot: &Snapshot) -> Vec<Shown> {
    let dialled: Vec<_> = (snapshot.found.iter())
        .map(|found| settings.server_found(found, &snapshot.interfaces))
        .collect();
    let mut targets = Vec::new();
    for (found, server) in snapshot.found.iter().zip(&dialled) {
        let Ok(server) = server else { continue };
        for address in server.addresses() {
            let at_address = ServerSettings {
                address: address.clone(),
                further: Vec::new(),
                ..server.clone()
            };
            let id = Bytes::copy_from_slice(&found.announcement.id);
            targets.push((id, Target::from(at_address)));
        }
    }
    let mut replies = ask_found(targets, Instant::now() + ANSWER_WITHIN).into_iter();
    let shown = snapshot.found.iter().zip(dialled).map(|(found, server)| {
        let count = server
            .as_ref()
            .map_or(0, |server| server.addresses().count());
        let replies: Vec<Reply> = replies
            .by_ref()
            .take(count)
            .map(|(_, reply)| reply)
            .collect();
        let addresses = addresses(found, server.as_ref().ok(), &replies, snapshot);
        let reason = match &server {
            Err(reason) => Some(reason.to_string()),
            Ok(_) if replies.iter().any(|reply| reply.inventory.is_ok()) => None,
            Ok(_) => replies
                .iter()
                .find_map(|reply| Some(reply.inventory.as_ref().err()?.to_string())),
        };
        Shown {
            name: found.name.clone(),
            role: found.announcement.role.word(),
            id: id(&found.announcement.id),
            tls: found.announcement.tls,
            managed: found.announcement.managed,
            configured: written::is_configured(settings, &found.name, server.as_ref().ok()),
            used: reason.is_none(),
            reason,
            inventory: replies
                .iter()
                .find_map(|reply| reply.inventory.as_ref().ok().cloned()),
            reached: server.ok().and_then(|server| reached(&server, &replies)),
            addresses,
        }
    });
    let mut shown: Vec<Shown> = shown.collect();
    set_copies_aside(&mut shown, &remembered(settings));
    shown
}

/// The names of the remembered nodes, with their uuids.
fn remembered(settings: &Settings) -> Vec<(String, NodeId)> {
    let memory = settings.discovery.memory.as_ref();
    // A damaged file counts as empty; `doctor` reports it.
    let nodes = memory.and_then(|memory| memory.nodes().ok());
    let nodes = nodes.unwrap_or_default().into_iter();
    nodes.map(|node| (node.name, node.uuid)).collect()
}

/// Of several nodes with one identity that answer, the remembered one is used, else the first.
fn set_copies_aside(shown: &mut [Shown], remembered: &[(String, NodeId)]) {
    let is_remembered = |of: &Shown| {
        let is_it = |(name, uuid): &(String, NodeId)| *name == of.name && id(uuid) == of.id;
        remembered.iter().any(is_it)
    };
    // Stable, so that the order by name decides among the others.
    let mut order: Vec<usize> = (0..shown.len()).collect();
    order.sort_by_key(|at| !is_remembered(&shown[*at]));
    for (position, &later) in order.iter().enumerate() {
        let is_original = |&&earlier: &&usize| {
            let [one, other] = [earlier, later].map(|at| shown[at].inventory.as_deref());
            shown[earlier].used
                && one
                    .zip(other)
                    .is_some_and(|(one, other)| are_copies(one, other))
        };
        let original = order[..position].iter().find(is_original);
        if let Some(original) = original.map(|at| shown[*at].at()) {
            let copy = &mut shown[later];
            copy.reason = Some(copied(&original, &copy.at()));
            copy.used = false;
        }
    }
}

/// The server with those of its addresses that have answered.
fn reached(server: &ServerSettings, replies: &[Reply]) -> Option<ServerSettings> {
    let answered = server
        .addresses()
        .zip(replies)
        .filter(|(_, reply)| reply.inventory.is_ok());
    let mut addresses = answered.map(|(address, _)| address.clone());
    Some(ServerSettings {
        address: addresses.next()?,
        further: addresses.collect(),
        ..server.clone()
    })
}

/// The addresses that were dialled, in this order, then the others.
fn addresses(
    found: &Found,
    server: Option<&ServerSettings>,
    replies: &[Reply],
    snapshot: &Snapshot,
) -> Vec<At> {
    let of = |address: &Address| {
        let host = address.host_without_zone();
        found
            .places
            .iter()
            .find(|place| place.address.to_string() == host)
    };
    let interface =
        |place: &ClaimedAddress| snapshot.interfaces.name(place.interface).map(str::to_owned);
    let dialled = server.into_iter().flat_map(|server| server.addresses());
    let mut shown: Vec<At> = dialled
        .zip(replies)
        .map(|(address, reply)| At {
            address: address.to_string(),
            interface: of(address).and_then(interface),
            round_trip_us: reply
                .inventory
                .as_ref()
                .ok()
                .and(reply.round_trip)
                .map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
            problem: reply.inventory.as_ref().err().map(ToString::to_string),
        })
        .collect();
    for place in &found.places {
        let address = std::net::SocketAddr::new(place.address, found.port).to_string();
        let is_shown = server.is_some_and(|server| {
            server
                .addresses()
                .any(|of| of.host_without_zone() == place.address.to_string())
        });
        if !is_shown {
            let problem = match place.may_be_dialled {
                false => "not on a network of this host",
                true => "not dialled",
            };
            shown.push(At {
                address,
                interface: interface(place),
                round_trip_us: None,
                problem: Some(problem.to_owned()),
            });
        }
    }
    shown
}

impl Shown {
    /// The node as messages name it.
    fn at(&self) -> String {
        let address = self.addresses.first().map_or("?", |at| &at.address);
        format!("{} ({address})", self.name)
    }

    /// Everything but the times.
    fn state(&self) -> (String, String, Option<String>, Vec<(String, bool)>) {
        let addresses = self.addresses.iter();
        let addresses = addresses.map(|at| (at.address.clone(), at.problem.is_none()));
        (
            self.name.clone(),
            self.id.clone(),
            self.reason.clone(),
            addresses.collect(),
        )
    }
}

fn text(all: &[Shown], snapshot: &Snapshot) -> String {
    let mut text = String::new();
    if !snapshot.has_shared_port {
        text += "port 5353 cannot be shared with the program that has it, so a firewall may drop answers\n";
    }
    if all.is_empty() {
        return text
            + "no node announces itself on this machine's networks\n  → start causewayd with --announce there, and allow UDP \
               port 5353; many wireless and cloud networks carry no multicast\n";
    }
    for of in all {
        let mut facts = vec![of.role];
        facts.extend(of.managed.then_some("managed"));
        facts.extend(of.configured.then_some("configured"));
        facts.extend((!of.tls).then_some("without TLS"));
        text += &line(&format!("{} ({}), {}", of.name, facts.join(", "), of.id));
        if let Some(reason) = &of.reason {
            text += &line(&format!("  not used: {reason}"));
        }
        for at in &of.addresses {
            let outcome = match (&at.round_trip_us, &at.problem) {
                (Some(us), _) => format!("{}.{:02} ms", us / 1000, us % 1000 / 10),
                (None, Some(problem)) => problem.clone(),
                (None, None) => "answers".to_owned(),
            };
            let interface = at.interface.as_deref().unwrap_or("?");
            text += &line(&format!("  {} on {interface}: {outcome}", at.address));
        }
    }
    text
}

fn line(text: &str) -> String {
    printable_lines(text) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, uuid: u8, run: Option<u8>) -> Shown {
        let inventory = run.map(|run| {
            Arc::new(Inventory {
                node_uuid: vec![uuid; 16].into(),
                run: vec![run; 8].into(),
                ..Inventory::default()
            })
        });
        Shown {
            name: name.to_owned(),
            role: "node",
            id: id(&[uuid; 16]),
            tls: true,
            managed: false,
            configured: false,
            used: inventory.is_some(),
            reason: None,
            inventory,
            reached: None,
            addresses: Vec::new(),
        }
    }

    #[test]
    fn of_copies_that_answer_the_remembered_one_is_used_else_the_first() {
        let all = || {
            vec![
                shown("gpu1", 1, Some(1)),
                shown("gpu2", 1, Some(2)),
                // The same daemon by another name, one that does not answer, and another node.
                shown("gpu3", 1, Some(1)),
                shown("gpu4", 1, None),
                shown("gpu5", 2, Some(3)),
            ]
        };
        let used = |remembered: &[(String, NodeId)]| {
            let mut all = all();
            set_copies_aside(&mut all, remembered);
            let told = all.iter().filter_map(|of| of.reason.clone()).collect();
            let used = all.into_iter().filter(|of| of.used);
            (used.map(|of| of.name).collect::<Vec<_>>(), told)
        };
        let (names, told): (_, Vec<String>) = used(&[]);
        assert_eq!(names, ["gpu1", "gpu3", "gpu5"]);
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("gpu1 (?) and gpu2 (?)"), "{told:?}");
        let (names, told) = used(&[("gpu2".to_owned(), [1; 16])]);
        assert_eq!(names, ["gpu2", "gpu5"]);
        assert_eq!(told.len(), 2);
        // A name alone is not remembered.
        assert_eq!(
            used(&[("gpu2".to_owned(), [9; 16])]).0,
            ["gpu1", "gpu3", "gpu5"]
        );
    }
}
