//! Conversions between the lease manager's types and the wire's.
//!
//! Invariant: the shape of incoming messages is checked here, and nowhere else.

use std::collections::{BTreeMap, HashMap};

use causeway_proto::control::Inventory;
use causeway_proto::manager as pb;
use causeway_security::LeaseKey;
use tonic::Status;

use super::book::{Book, Offered, Sight};
use super::input::{News, Unwritten, Use};
use crate::inventory::limits::{self, TooMuch};
use crate::inventory::{DeviceId, NodeId, OfferedDevice, Shares, Unit, offered};
use crate::lease::change::{NodeRow, WaitingRow};
use crate::lease::{
    Departure, Epoch, Grant, Granted, LeaseId, LeaseState, LeaseView, Reasons, Refusal, Refused,
    UnitsMoved, replaced_within,
};
use crate::policy::Class;
use crate::time::{Span, Time};

/// Maximum number of shares of one device.
const MAX_SHARES: u32 = 1024;

/// Converts 16 bytes to a lease id.
pub(super) fn lease_id(bytes: &[u8]) -> Result<LeaseId, Status> {
    let id = bytes.try_into().map(LeaseId);
    id.map_err(|_| Status::invalid_argument("a lease id has 16 bytes"))
}

pub(super) fn node_id(bytes: &[u8]) -> Result<NodeId, Status> {
    let id = bytes.try_into().map(NodeId);
    id.map_err(|_| Status::invalid_argument("a node's uuid has 16 bytes"))
}

/// The devices that a node offers, with their shares.
pub(super) fn devices(
    inventory: Option<Inventory>,
    shared: &[pb::SharedDevice],
) -> Result<Vec<OfferedDevice>, Status> {
    if shared
        .iter()
        .any(|of| !(1..=MAX_SHARES).contains(&of.shares))
    {
        let text = format!("a device has 1 to {MAX_SHARES} shares");
        return Err(Status::invalid_argument(text));
    }
    let shared: BTreeMap<(u32, u32), &pb::SharedDevice> = shared
        .iter()
        .map(|of| ((of.platform, of.device), of))
        .collect();
    let shares = |id: DeviceId| {
        let of = shared.get(&(id.platform, id.device));
        of.map_or(Shares::Whole, |of| Shares::Equal {
            count: u16::try_from(of.shares).unwrap_or(u16::MAX),
            memory: Some(of.memory_per_share).filter(|&bytes| bytes != 0),
        })
    };
    let devices = offered(inventory.unwrap_or_default(), shares);
    limits::check_node(&devices).map_err(too_much)?;
    Ok(devices)
}

pub(super) fn too_much(too_much: TooMuch) -> Status {
    Status::resource_exhausted(too_much.to_string())
}

pub(super) fn class(priority: i32) -> Result<Class, Status> {
    match pb::Priority::try_from(priority) {
        Ok(pb::Priority::Low) => Ok(Class::Low),
        Ok(pb::Priority::Normal) => Ok(Class::Normal),
        Ok(pb::Priority::High) => Ok(Class::High),
        Err(_) => Err(Status::invalid_argument("unknown priority class")),
    }
}

pub(super) fn priority(class: Class) -> pb::Priority {
    match class {
        Class::Low => pb::Priority::Low,
        Class::Normal => pb::Priority::Normal,
        Class::High => pb::Priority::High,
    }
}

/// Converts milliseconds from the wire, where 0 means none.
pub(super) fn span(milliseconds: u64) -> Option<Span> {
    Some(Span(milliseconds)).filter(|span| span.0 != 0)
}

fn unit(unit: &Unit) -> pb::Unit {
    pb::Unit {
        platform: unit.device.platform,
        device: unit.device.device,
        share: u32::from(unit.share),
    }
}

pub(super) fn grant(grant: &Grant) -> pb::Grant {
    pb::Grant {
        lease_id: grant.lease.0.to_vec().into(),
        epoch: grant.epoch.0,
        user: grant.user.to_string(),
        units: grant
            .units
            .iter()
            .map(|of| pb::LeasedUnit {
                unit: Some(unit(&of.unit)),
                memory: of.memory_limit.unwrap_or(0),
            })
            .collect(),
        // 0 means no limit on the wire, so the shortest limit is 1 ms.
        limit_ms: grant.limit.map_or(0, |limit| limit.0.max(1)),
        autonomy_ms: grant.autonomy.0,
        // 0 means no limit on the wire, so the shortest time is 1 ms.
        resume_ms: grant.resume.0.max(1),
    }
}

pub(super) fn withdraw(lease: LeaseId, epoch: Epoch, reason: String) -> pb::Withdraw {
    pb::Withdraw {
        lease_id: lease.0.to_vec().into(),
        epoch: epoch.0,
        reason,
    }
}

/// A lease as its client is told, with a new signature.
pub(super) fn granted(
    key: &LeaseKey,
    book: &Book,
    now: Time,
    lease: LeaseId,
    granted: &Granted,
    reserved: bool,
) -> pb::Granted {
    let lease_id = lease.0.to_vec();
    let lifetime = granted.until.since(now);
    let claimed = granted.units.iter().map(|(node, units)| pb::ClaimedNode {
        node_uuid: node.0.to_vec().into(),
        epoch: granted.epoch.0,
        units: units.iter().map(unit).collect(),
    });
    let user = book.user_of(&lease);
    let signed = key.sign(pb::Claim {
        lease_id: lease_id.clone().into(),
        user: user.map(ToString::to_string).unwrap_or_default(),
        nodes: claimed.collect(),
        not_after_unix_ms: super::authentication::wall_now()
            .0
            .saturating_add(lifetime.0),
        ..pb::Claim::default()
    });
    pb::Granted {
        lease_id: lease_id.into(),
        signed_lease: signed.into(),
        nodes: all_shares(book, &granted.units),
        lost: all_shares(book, &granted.lost),
        moves: granted
            .moves
            .iter()
            .map(|of| lease_move(book, of))
            .collect(),
        replaced_within_ms: match granted.replaceable {
            true => replaced_within(&book.policy.timing).0.max(1),
            false => 0,
        },
        lifetime_ms: lifetime.0,
        reserved,
        time_left_ms: granted.ends.map_or(0, |ends| ends.since(now).0.max(1)),
    }
}

fn share<'a>(book: &Book, id: NodeId, units: impl Iterator<Item = &'a Unit>) -> pb::NodeShare {
    let row = book.nodes.get(&id);
    let connected = book.connected.get(&id);
    let name = |unit: &Unit| {
        let devices = connected.iter().flat_map(|node| &node.devices);
        let mut named = devices.filter(|of| of.id == unit.device);
        named.next().map(|of| of.name.clone()).unwrap_or_default()
    };
    let (units, devices) = units.map(|of| (unit(of), name(of))).unzip();
    pb::NodeShare {
        node_uuid: id.0.to_vec().into(),
        name: row.map(|row| row.name.clone()).unwrap_or_default(),
        addresses: row.map(|row| row.addresses.clone()).unwrap_or_default(),
        units,
        devices,
    }
}

fn lease_move(book: &Book, of: &UnitsMoved) -> pb::LeaseMove {
    let share = |(node, units): &(NodeId, Vec<Unit>)| share(book, *node, units.iter());
    pb::LeaseMove {
        from: Some(share(&of.from)),
        to: Some(share(&of.to)),
        replaced: of.replaced,
    }
}

/// What becomes of the leases of a node that is to be left.
pub(super) fn leaving(sight: &Sight<'_>, node: NodeId) -> Vec<pb::Leaving> {
    let leaving = sight.manager.leaving(node).into_iter();
    let name = |node: NodeId| {
        let row = sight.book.nodes.get(&node);
        row.map(|row| row.name.clone()).unwrap_or_default()
    };
    let leaving = leaving.map(|(lease, departure)| {
        let (state, reason) = match departure {
            Departure::Waits(why) => (pb::LeavingState::Waits, why),
            Departure::Moves(to) => (pb::LeavingState::Moves, name(to)),
            Departure::Moved(to) => (pb::LeavingState::Moved, name(to)),
            Departure::Stays(why) => (pb::LeavingState::Stays, why),
            Departure::Ended => (pb::LeavingState::Ended, String::new()),
        };
        let user = sight.book.user_of(&lease);
        pb::Leaving {
            lease_id: lease.0.to_vec().into(),
            user: user.map(ToString::to_string).unwrap_or_default(),
            state: state.into(),
            reason,
        }
    });
    leaving.collect()
}

fn all_shares(book: &Book, by_node: &[(NodeId, Vec<Unit>)]) -> Vec<pb::NodeShare> {
    let by_node = by_node.iter();
    by_node
        .map(|(id, units)| share(book, *id, units.iter()))
        .collect()
}

/// Converts a list of units to the wire, grouped by node.
pub(super) fn shares(book: &Book, units: &[(NodeId, Unit)]) -> Vec<pb::NodeShare> {
    let mut by_node: BTreeMap<NodeId, Vec<&Unit>> = BTreeMap::new();
    for (node, unit) in units {
        by_node.entry(*node).or_default().push(unit);
    }
    let by_node = by_node.into_iter();
    by_node
        .map(|(node, units)| share(book, node, units.into_iter()))
        .collect()
}

/// Reduces shares to device names without places. A caller who may not see others' leases must not learn
/// from answers which nodes exist, and what is free on them.
pub(super) fn unplaced(nodes: Vec<pb::NodeShare>) -> pb::NodeShare {
    let devices = nodes.into_iter().flat_map(|node| node.devices);
    let mut devices: Vec<String> = devices.collect();
    // The original order would reveal places.
    devices.sort_unstable();
    pb::NodeShare {
        devices,
        ..pb::NodeShare::default()
    }
}

/// Converts a request's news to the next message of its stream. `None`: nothing to send yet.
pub(super) fn progress(news: News, lease: LeaseId) -> Result<Option<pb::Progress>, Status> {
    use pb::progress::Step;
    let step = match news {
        News::None => return Ok(None),
        News::Waiting {
            position,
            of,
            shortfall,
            reasons,
        } => Step::Position(pb::Position {
            position,
            waiting: of,
            lease_id: lease.0.to_vec().into(),
            lack: shortfall
                .map(|shortfall| shortfall.to_string())
                .unwrap_or_default(),
            why: reasons
                .map(|reasons| reasons.to_string())
                .unwrap_or_default(),
        }),
        News::Granted(granted) => Step::Granted(granted),
        News::Refused(why) => Step::Refused(refused(&why)),
        News::NotWritten(refused) => return Err(unwritten(&refused)),
        News::NotKnown(not) => return Err(Status::unauthenticated(not.to_string())),
        News::Ended(reason) => Step::Ended(pb::Ended { reason }),
        News::Replaced => {
            return Err(Status::aborted(
                "another connection has taken over this request",
            ));
        }
    };
    Ok(Some(pb::Progress { step: Some(step) }))
}

/// The status of a change that cannot be stored now.
pub(super) fn unwritten(unwritten: &Unwritten) -> Status {
    Status::unavailable(unwritten.to_string())
}

pub(super) fn refused(refused: &Refused) -> pb::Refused {
    pb::Refused {
        code: refusal_code(&refused.why).into(),
        reason: refused.to_string(),
    }
}

fn refusal_code(refusal: &Refusal) -> pb::RefusalCode {
    match refusal {
        Refusal::NothingFits => pb::RefusalCode::NothingFits,
        Refusal::NothingFree => pb::RefusalCode::NothingFree,
        Refusal::QuotaOfDevices | Refusal::QuotaOfMemory | Refusal::QuotaOfTime => {
            pb::RefusalCode::Quota
        }
        Refusal::Class => pb::RefusalCode::Priority,
        Refusal::QueueFull | Refusal::QueueFullOfOwn => pb::RefusalCode::QueueFull,
    }
}

pub(super) fn lease_info(sight: &Sight<'_>, of: &LeaseView<'_>) -> pb::LeaseInfo {
    let state = match of.state {
        LeaseState::Offered => pb::LeaseState::Offered,
        LeaseState::Reserved => pb::LeaseState::Reserved,
        LeaseState::Active => pb::LeaseState::Active,
        LeaseState::Lapsed => pb::LeaseState::Lapsed,
        LeaseState::Ending(_) => pb::LeaseState::Ending,
    };
    let here = of.granted.units.iter();
    let here = here.filter_map(|(id, _)| sight.book.connected.get(id));
    let used = here.map(|node| node.load.of(&of.lease));
    let used = used.fold(Use::default(), Use::plus);
    pb::LeaseInfo {
        lease_id: of.lease.0.to_vec().into(),
        user: of.user.to_string(),
        state: state.into(),
        nodes: all_shares(sight.book, &of.granted.units),
        lost: all_shares(sight.book, &of.granted.lost),
        age_ms: sight.now.wall.0.saturating_sub(of.since.0),
        lifetime_ms: of.granted.until.since(sight.now.time).0,
        client: sight.book.clients.get(&of.lease).cloned(),
        bytes: used.bytes,
        commands: used.commands,
        sessions: used.sessions,
        away: used.away,
        busy_ns: used.busy_ns,
    }
}

pub(super) fn waiting_request(
    sight: &Sight<'_>,
    position: u32,
    row: &WaitingRow,
    reasons: &HashMap<LeaseId, Reasons>,
) -> pb::WaitingRequest {
    let why = reasons.get(&row.lease);
    pb::WaitingRequest {
        lease_id: row.lease.0.to_vec().into(),
        user: row.user.to_string(),
        position,
        waiting_ms: sight.now.wall.0.saturating_sub(row.since.0),
        request: row.devices.to_string(),
        priority: priority(row.class).into(),
        client: sight.book.clients.get(&row.lease).cloned(),
        why: why.map(ToString::to_string).unwrap_or_default(),
    }
}

/// The number of leased units of each device. Counted once per listing, because the owner serves nobody
/// else meanwhile.
pub(super) struct Leased(HashMap<(NodeId, DeviceId), u32>);

impl Leased {
    pub(super) fn of(book: &Book) -> Leased {
        let mut leased = HashMap::new();
        for (node, units) in book.leases.values().flat_map(|row| &row.units) {
            for of in units {
                *leased.entry((*node, of.unit.device)).or_default() += 1;
            }
        }
        Leased(leased)
    }

    fn count(&self, node: NodeId, device: DeviceId) -> u32 {
        self.0.get(&(node, device)).copied().unwrap_or(0)
    }
}

pub(super) fn node_info(book: &Book, leased: &Leased, row: &NodeRow) -> pb::NodeInfo {
    let connected = book.connected.get(&row.node);
    let used = connected.map_or_else(Use::default, |node| node.load.whole());
    let devices = connected.iter().flat_map(|node| &node.devices);
    let info = |of: &Offered| pb::DeviceInfo {
        platform: of.id.platform,
        device: of.id.device,
        name: of.name.clone(),
        r#type: kind_name(of.kind).to_owned(),
        memory: of.memory,
        shares: u32::from(of.shares),
        leased: leased.count(row.node, of.id),
        r#use: connected.and_then(|node| node.load.of_device(of.id)),
    };
    pb::NodeInfo {
        node_uuid: row.node.0.to_vec().into(),
        name: row.name.clone(),
        addresses: row.addresses.clone(),
        connected: connected.is_some(),
        draining: row.draining,
        stopping: connected.is_some_and(|of| of.stopping),
        insecure: connected.is_some_and(|of| of.insecure),
        devices: devices.map(info).collect(),
        bytes: used.bytes,
        commands: used.commands,
        sessions: used.sessions,
        away: used.away,
        hosts: connected.map_or_else(Vec::new, |node| node.load.hosts()),
        leaving: Vec::new(),
    }
}

/// Number of connected nodes that everyone who can reach them can use.
pub(super) fn insecure_nodes(book: &Book) -> u32 {
    let insecure = book.connected.values().filter(|node| node.insecure);
    u32::try_from(insecure.count()).unwrap_or(u32::MAX)
}

/// The kinds of devices of connected nodes with their numbers, without places and users.
pub(super) fn kinds(book: &Book) -> Vec<pb::DeviceKind> {
    let leased = Leased::of(book);
    let mut kinds: BTreeMap<(&str, &str, u64), (u32, u32)> = BTreeMap::new();
    for (id, node) in &book.connected {
        let Some(row) = book.nodes.get(id) else {
            continue;
        };
        let is_open = !row.draining && !node.stopping;
        for of in &node.devices {
            let kind = (kind_name(of.kind), of.name.as_str(), of.memory);
            let (count, free) = kinds.entry(kind).or_default();
            let shares = u32::from(of.shares);
            *count += shares;
            if is_open {
                *free += shares.saturating_sub(leased.count(*id, of.id));
            }
        }
    }
    let kinds = kinds.into_iter();
    kinds
        .map(|((r#type, name, memory), (count, free))| pb::DeviceKind {
            name: name.to_owned(),
            r#type: r#type.to_owned(),
            memory,
            count,
            free,
        })
        .collect()
}

/// The most specific of a device's types.
fn kind_name(bits: u64) -> &'static str {
    const DEFAULT: u64 = 1;
    let named = causeway_proto::request::property::TYPES;
    let one = |(_, bit): &&(&str, u64)| bit.is_power_of_two() && *bit != DEFAULT && bits & bit != 0;
    named.iter().find(one).map_or("OTHER", |(name, _)| name)
}
