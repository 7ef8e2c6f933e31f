//! From listings to the rows that a page shows.
//!
//! The keys of rows are those of `--json` of the tool. Times are absolute, so that a row changes only when something
//! happens. Invariant: a user who sees only what is their own gets nothing that names another user, and no node.

use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_links::LinkEntry;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::change::without_nulls;
use super::hour::Hour;
use super::page::Page;
use crate::inventory::NodeId;
use crate::listing::{
    Kind, Lease, LinkReport, ManagedDevice, ManagedNode, Managers, Queue, Waiting, id,
};
use crate::policy::UserName;
use crate::rates::Rates;
use crate::time::Wall;

/// Everything that pages show, as of one moment.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) now: Wall,
    pub(crate) nodes: Vec<Node>,
    pub(crate) leases: Vec<Lease>,
    pub(crate) queue: Queue,
    /// The kinds of devices. Empty if nobody looks who sees them.
    pub(crate) kinds: Vec<Kind>,
    /// The managers, as of a moment ago. `None`: not known yet.
    pub(crate) managers: Option<KnownAt>,
    /// The slowest measured links. Empty if nobody looks who sees them.
    pub(crate) links: Arc<Vec<ReportedLink>>,
}

/// A link's figure, with the node that has measured and the other one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReportedLink {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    /// Without names.
    pub(crate) of: LinkEntry,
}

/// A node. Its devices are beside it, because they have rows of their own.
#[derive(Debug)]
pub(crate) struct Node {
    /// Without its devices.
    pub(crate) of: ManagedNode,
    pub(crate) devices: Vec<ManagedDevice>,
}

impl From<ManagedNode> for Node {
    fn from(mut of: ManagedNode) -> Node {
        let devices = std::mem::take(&mut of.devices);
        Node { of, devices }
    }
}

/// The managers, as of an earlier moment.
#[derive(Debug)]
pub(crate) struct KnownAt {
    pub(crate) at: Wall,
    pub(crate) list: Arc<Managers>,
    /// Why there is no later answer, if there should be one.
    pub(crate) problem: Option<String>,
}

/// What is computed from several moments.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) nodes: Rates,
    pub(crate) devices: Rates,
    pub(crate) hour: Hour,
}

/// Who sees the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Audience {
    /// Everyone's leases and requests, and all nodes. Administrators see the managers, too.
    All { managers: bool },
    /// This user's leases and requests.
    Own(UserName),
}

impl Audience {
    /// Whether this audience sees kinds of devices in place of nodes.
    pub(crate) fn sees_kinds(&self) -> bool {
        matches!(self, Audience::Own(_))
    }

    fn sees(&self, user: &str) -> bool {
        match self {
            Audience::All { .. } => true,
            Audience::Own(own) => &*own.0 == user,
        }
    }
}

/// The id of a device among those of all nodes.
pub(crate) fn device_id(node: &str, device: &ManagedDevice) -> String {
    format!("{node}/{}.{}", device.platform, device.device)
}

/// What this audience sees. The page `before` was drawn for the same audience.
pub(crate) fn draw(
    content: &Content,
    figures: &Figures,
    audience: &Audience,
    before: Option<&Page>,
) -> Page {
    let now = content.now;
    let leases = content.leases.iter().filter(|of| audience.sees(&of.user));
    let leases = leases.map(|of| (of.lease.clone(), lease(of, now)));
    let requests = content.queue.requests.iter();
    let requests = requests.filter(|of| audience.sees(&of.user));
    let requests = requests.map(|of| (of.lease.clone(), request(of, now)));
    let mut page = Page::default();
    page.put("now", json!(now.0));
    page.put("waiting", json!(content.queue.waiting));
    page.put_table("leases", leases, before);
    page.put_table("queue", requests, before);
    if audience.sees_kinds() {
        let kinds = content.kinds.iter();
        let kinds = kinds.map(|of| {
            let id = format!("{} {} {}", of.kind, of.name, of.memory_bytes);
            (id, row(of))
        });
        page.put_table("kinds", kinds, before);
    }
    if let Audience::All { managers } = audience {
        let nodes = content.nodes.iter();
        let nodes = nodes.map(|of| (of.of.node.clone(), node(of, figures)));
        page.put_table("nodes", nodes, before);
        let who = users(&content.leases);
        page.put_table("devices", devices(content, figures, &who), before);
        page.put_table("links", links(content), before);
        let known = content.managers.as_ref().filter(|_| *managers);
        if let Some(known) = known {
            page.put("managers", managers_of(known));
        }
    }
    page
}

/// A row, without the keys that are `null`.
fn row(of: &impl Serialize) -> Value {
    // Listings have string keys, so this cannot fail.
    let mut value = serde_json::to_value(of).unwrap_or_default();
    without_nulls(&mut value);
    value
}

/// Replaces an age by the time since when something is.
fn absolute(row: &mut Value, age: &str, since: &str, now: Wall) {
    let Some(row) = row.as_object_mut() else {
        return;
    };
    let age = row.remove(age).and_then(|age| age.as_u64()).unwrap_or(0);
    row.insert(since.to_owned(), json!(now.0.saturating_sub(age)));
}

fn lease(of: &Lease, now: Wall) -> Value {
    let mut row = row(of);
    absolute(&mut row, "age_ms", "since_unix_ms", now);
    if let Some(row) = row.as_object_mut() {
        row.remove("lifetime_ms");
        // In seconds: the two clocks differ by parts of a millisecond each time.
        let until = now.0.saturating_add(of.lifetime_ms).div_ceil(1000) * 1000;
        row.insert("until_unix_ms".to_owned(), json!(until));
    }
    row
}

fn request(of: &Waiting, now: Wall) -> Value {
    let mut row = row(of);
    absolute(&mut row, "waiting_ms", "since_unix_ms", now);
    row
}

fn node(of: &Node, figures: &Figures) -> Value {
    let mut row = row(&of.of);
    let rate = figures.nodes.of(of.of.node.as_bytes());
    let shares = of.devices.iter().map(|of| of.shares).sum::<u32>();
    let leased = of.devices.iter().map(|of| of.leased).sum::<u32>();
    if let Some(row) = row.as_object_mut() {
        row.insert("devices".to_owned(), json!(of.devices.len()));
        row.insert("shares".to_owned(), json!(shares));
        row.insert("leased".to_owned(), json!(leased));
        row.extend(rate.map(|rate| {
            let bytes = rate.bytes_per_second.round() as u64;
            ("bytes_per_second".to_owned(), json!(bytes))
        }));
    }
    row
}

fn devices<'a>(
    content: &'a Content,
    figures: &'a Figures,
    who: &'a BTreeMap<String, Vec<&'a str>>,
) -> impl Iterator<Item = (String, Value)> + 'a {
    content.nodes.iter().flat_map(move |of| {
        let rows = of.devices.iter();
        rows.map(move |device| device_row(&of.of, device, figures, who))
    })
}

fn device_row(
    node: &ManagedNode,
    device: &ManagedDevice,
    figures: &Figures,
    who: &BTreeMap<String, Vec<&str>>,
) -> (String, Value) {
    let id = device_id(&node.node, device);
    let mut row = row(device);
    if let Some(row) = row.as_object_mut() {
        row.insert("node".to_owned(), json!(node.node));
        row.insert("node_name".to_owned(), json!(node.name));
        row.insert("users".to_owned(), json!(who.get(&id)));
        row.insert("busy_percent".to_owned(), json!(busy(figures, &id)));
        row.insert("hour".to_owned(), json!(figures.hour.of(&id)));
        if let Some(Value::Object(usage)) = row.get_mut("use") {
            // A total says nothing to a reader, and changes with each heartbeat.
            usage.remove("busy_ms");
        }
    }
    without_nulls(&mut row);
    (id, row)
}

/// The links between nodes that are shown.
fn links(content: &Content) -> impl Iterator<Item = (String, Value)> + '_ {
    let nodes = content.nodes.iter().map(|of| &of.of);
    let names: BTreeMap<&str, &str> = nodes.map(|of| (&*of.node, &*of.name)).collect();
    let now = content.now.0 / 1000;
    content.links.iter().filter_map(move |of| {
        let (from, to) = (id(&of.from.0), id(&of.to.0));
        let name = |id: &str| names.get(id).map(|of| (*of).to_owned());
        let ends = (name(&from)?, name(&to)?);
        let key = format!("{from} {to}");
        let report = LinkReport::new((ends.0, Some(from)), (ends.1, to), &of.of, now);
        let mut row = row(&report);
        // Of the whole second, as the figure's time is.
        absolute(&mut row, "age_ms", "since_unix_ms", Wall(now * 1000));
        Some((key, row))
    })
}

/// Part of the last seconds in which a device was busy, in percent.
fn busy(figures: &Figures, id: &str) -> Option<u64> {
    let rate = figures.devices.of(id.as_bytes())?;
    // Sessions that run at the same time add up.
    Some((rate.busy * 100.0).round().clamp(0.0, 100.0) as u64)
}

/// The users of each device.
fn users(leases: &[Lease]) -> BTreeMap<String, Vec<&str>> {
    let mut users: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for lease in leases {
        for share in &lease.nodes {
            for unit in &share.units {
                let id = format!("{}/{}.{}", share.node, unit.platform, unit.device);
                let users = users.entry(id).or_default();
                if !users.contains(&&*lease.user) {
                    users.push(&lease.user);
                }
            }
        }
    }
    users.values_mut().for_each(|users| users.sort_unstable());
    users
}

fn managers_of(known: &KnownAt) -> Value {
    let (of, at) = (&known.list, known.at);
    let managers = of.managers.iter().map(|of| {
        let mut row = row(of);
        absolute(&mut row, "since_ms", "since_unix_ms", at);
        (&*of.address, row)
    });
    let members = of.members.iter().map(|of| (&*of.name, row(of)));
    let mut page = json!({
        "cluster": of.cluster,
        "term": of.term,
        "store": of.store,
        "managers": numbered(managers),
        "members": numbered(members),
    });
    if let (Some(problem), Some(page)) = (&known.problem, page.as_object_mut()) {
        page.insert("as_of_unix_ms".to_owned(), json!(at.0));
        page.insert("problem".to_owned(), json!(problem));
    }
    page
}

/// Rows by their names, and by a number if several have one name: two managers may run with one address.
fn numbered<'a>(rows: impl Iterator<Item = (&'a str, Value)>) -> Map<String, Value> {
    let mut map = Map::new();
    for (name, row) in rows {
        let mut names =
            std::iter::once(name.to_owned()).chain((2..).map(|number| format!("{name} {number}")));
        let free = names.find(|name| !map.contains_key(name));
        map.extend(free.map(|name| (name, row)));
    }
    map
}

#[cfg(test)]
mod tests {
    use causeway_proto::control::DeviceUse;
    use causeway_proto::manager as pb;

    use super::*;

    fn lease_of(id: u8, user: &str, device: u32) -> pb::LeaseInfo {
        pb::LeaseInfo {
            lease_id: vec![id; 16].into(),
            user: user.to_owned(),
            state: pb::LeaseState::Active.into(),
            nodes: vec![pb::NodeShare {
                node_uuid: vec![1; 16].into(),
                name: "gpu-box".to_owned(),
                units: vec![pb::Unit {
                    device,
                    ..pb::Unit::default()
                }],
                ..pb::NodeShare::default()
            }],
            age_ms: 5_000,
            lifetime_ms: 1_001,
            ..pb::LeaseInfo::default()
        }
    }

    fn content() -> Content {
        let device = |device, busy_ns| pb::DeviceInfo {
            device,
            name: format!("device{device}"),
            shares: 1,
            leased: 1,
            r#use: Some(DeviceUse {
                busy_ns,
                ..DeviceUse::default()
            }),
            ..pb::DeviceInfo::default()
        };
        let node = pb::NodeInfo {
            node_uuid: vec![1; 16].into(),
            name: "gpu-box".to_owned(),
            connected: true,
            devices: vec![device(0, 7), device(1, 8)],
            ..pb::NodeInfo::default()
        };
        let other = pb::NodeInfo {
            node_uuid: vec![2; 16].into(),
            name: "other".to_owned(),
            ..pb::NodeInfo::default()
        };
        let waits = pb::WaitingRequest {
            lease_id: vec![9; 16].into(),
            user: "bob".to_owned(),
            position: 1,
            waiting_ms: 250,
            ..pb::WaitingRequest::default()
        };
        let kind = pb::DeviceKind {
            name: "device0".to_owned(),
            count: 2,
            ..pb::DeviceKind::default()
        };
        let queue = pb::QueueList {
            requests: vec![waits],
            waiting: 1,
        };
        Content {
            now: Wall(100_000),
            nodes: vec![
                ManagedNode::from(node).into(),
                ManagedNode::from(other).into(),
            ],
            leases: vec![lease_of(2, "ann", 0).into(), lease_of(3, "bob", 1).into()],
            queue: queue.into(),
            kinds: vec![kind.into()],
            managers: Some(KnownAt {
                at: Wall(100_000),
                list: Arc::new(pb::ManagerList::default().into()),
                problem: None,
            }),
            links: Arc::new(vec![link_of(1, 2), link_of(1, 3)]),
        }
    }

    fn link_of(from: u8, to: u8) -> ReportedLink {
        let link = causeway_proto::control::Link {
            node_uuid: vec![to; 16].into(),
            from: "10.0.0.1".to_owned(),
            to: "10.0.0.2:7079".to_owned(),
            outward: 125_000_000,
            when: 90,
            ..Default::default()
        };
        ReportedLink {
            from: NodeId([from; 16]),
            to: NodeId([to; 16]),
            of: LinkEntry::from_wire(&link).unwrap(),
        }
    }

    fn shown(audience: &Audience) -> Value {
        Arc::new(draw(&content(), &Figures::default(), audience, None)).shown()
    }

    #[test]
    fn times_are_absolute_and_a_device_names_its_users() {
        let page = shown(&Audience::All { managers: true });
        let ann = &page["leases"]["02".repeat(16)];
        assert_eq!(ann["since_unix_ms"], 95_000);
        assert_eq!(ann["until_unix_ms"], 102_000);
        assert_eq!(page["queue"]["09".repeat(16)]["since_unix_ms"], 99_750);
        let device = &page["devices"][format!("{}/0.1", "01".repeat(16))];
        assert_eq!(device["users"], json!(["bob"]));
        assert_eq!(page["nodes"]["01".repeat(16)]["shares"], 2);
        assert!(page["managers"].is_object());
        // The other end of the second link is not known.
        let ids = [1, 2].map(|of| format!("{of:02x}").repeat(16));
        let links = page["links"].as_object().unwrap();
        assert_eq!(links.len(), 1);
        let link = &links[&ids.join(" ")];
        assert_eq!(
            (&link["from"], &link["to"]),
            (&json!("gpu-box"), &json!("other"))
        );
        assert_eq!(link["since_unix_ms"], 90_000);
    }

    #[test]
    fn a_user_gets_nothing_that_names_another_or_a_node() {
        let page = shown(&Audience::Own("ann".into()));
        let text = page.to_string();
        assert!(text.contains("ann") && !text.contains("bob"), "{text}");
        for name in ["nodes", "devices", "managers", "links"] {
            assert!(page.get(name).is_none(), "{name}");
        }
        assert_eq!(page["waiting"], 1);
        assert_eq!(page["queue"], json!({}));
        assert_eq!(page["kinds"].as_object().unwrap().len(), 1);
        let page = shown(&Audience::All { managers: false });
        assert!(page.get("nodes").is_some() && page.get("managers").is_none());
        assert!(page.get("kinds").is_none(), "the nodes say more");
    }

    #[test]
    fn managers_of_one_address_have_a_row_each_and_an_old_answer_its_time_and_reason() {
        let of = |address: &str| pb::ManagerState {
            address: address.to_owned(),
            ..pb::ManagerState::default()
        };
        let list = pb::ManagerList {
            managers: vec![of("m1:1"), of("m1:1"), of("m2:1")],
            ..pb::ManagerList::default()
        };
        let mut known = KnownAt {
            at: Wall(7),
            list: Arc::new(list.into()),
            problem: None,
        };
        let page = managers_of(&known);
        assert_eq!(page["managers"].as_object().unwrap().len(), 3);
        assert!(page.get("problem").is_none() && page.get("as_of_unix_ms").is_none());
        known.problem = Some("no answer".to_owned());
        let page = managers_of(&known);
        assert_eq!(page["problem"], "no answer");
        assert_eq!(page["as_of_unix_ms"], 7);
    }

    #[test]
    fn what_is_unknown_is_left_out() {
        let page = shown(&Audience::All { managers: true });
        fn nulls(value: &Value) -> usize {
            match value {
                Value::Null => 1,
                Value::Array(list) => list.iter().map(nulls).sum(),
                Value::Object(object) => object.values().map(nulls).sum(),
                _ => 0,
            }
        }
        assert_eq!(nulls(&page), 0);
    }
}
