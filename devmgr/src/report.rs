//! Reports about configured and leased nodes. The tool prints them as a table or as JSON.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway::config::{self, ServerSettings, Settings};
use causeway::lease::{Enumeration, Lease};
use causeway::transport::finder::Finder;
use causeway::transport::manager::NoLease;
use causeway::transport::{Discovered, ENUMERATION_LIMIT, Reply, Target, ask_found, discover};
use causeway_links::{LinkEntry, LinkTable};
use causeway_proto::control::{CardReading, Device, DeviceUse, InfoAnswer, Inventory, Platform};
use causeway_proto::status::WireError;
use cl_headers::types::{
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_MAX_COMPUTE_UNITS, CL_DEVICE_NAME, CL_DEVICE_TYPE,
    CL_DEVICE_TYPE_ACCELERATOR, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, CL_DEVICE_VERSION,
    CL_DRIVER_VERSION, CL_PLATFORM_NAME,
};
use serde::Serialize;

use crate::listing::{LinkReport, id};

/// How often a daemon that has not read its cards is asked again, and the pause before.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(250);

/// A node.
#[derive(Debug, Serialize)]
pub struct NodeReport {
    /// The configured name, or the address.
    pub name: String,
    /// `host:port` as configured.
    pub address: String,
    /// Further configured addresses that lead to the same daemon.
    pub also_at: Vec<String>,
    /// One network round trip, in microseconds.
    pub round_trip_us: Option<u64>,
    /// The daemon's version.
    pub daemon_version: Option<String>,
    /// The lease that the devices belong to, as 32 hexadecimal digits. `None`: the node is configured.
    pub lease: Option<String>,
    /// The node's devices.
    pub devices: Vec<DeviceReport>,
    /// The node's problems.
    pub problems: Vec<String>,
    /// Why the node did not answer.
    #[serde(skip)]
    pub error: Option<Box<WireError>>,
    /// Whether the node has devices that only holders of a lease see.
    #[serde(skip)]
    pub hides_devices: bool,
    /// Remarks about the node's security.
    pub remarks: Vec<String>,
    /// Number of the caller's sessions on the node; without authentication, of those of its address.
    pub own_sessions: u32,
    /// Number of these sessions that are away.
    pub own_away: u32,
    /// Longest time for which the node keeps a session that is away.
    #[serde(skip)]
    pub resume_limit: Duration,
    /// The link from this machine, as the user has had it measured. Absent: they have not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Box<LinkReport>>,
}

/// A device.
#[derive(Debug, Serialize)]
pub struct DeviceReport {
    /// `CL_DEVICE_NAME`.
    pub name: String,
    /// `CPU`, `GPU`, `accelerator` or `other`.
    pub kind: &'static str,
    /// `CL_DEVICE_VERSION`.
    pub version: String,
    /// `CL_DRIVER_VERSION`.
    pub driver: String,
    /// The name of the node's own platform.
    pub platform: String,
    /// `CL_DEVICE_MAX_COMPUTE_UNITS`.
    pub compute_units: u64,
    /// `CL_DEVICE_GLOBAL_MEM_SIZE`, bytes.
    pub memory_bytes: u64,
    /// How the device is used. `None`: the daemon does not say.
    #[serde(rename = "use")]
    pub usage: Option<DeviceUsage>,
}

/// The use of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceUsage {
    /// Time for which sessions had commands under way since the daemon started, in milliseconds.
    pub busy_ms: u64,
    /// Bytes that each process takes of the card by itself, as measured when the daemon started.
    pub context_memory_bytes: Option<u64>,
    /// Part of the time in which any program used the card, in percent, as NVML defines it.
    pub utilization_percent: Option<u32>,
    /// Bytes of the card that all programs use.
    pub memory_used_bytes: Option<u64>,
    /// Temperature of the card's chip, in degrees Celsius.
    pub temperature_celsius: Option<u32>,
}

impl From<DeviceUse> for DeviceUsage {
    fn from(of: DeviceUse) -> DeviceUsage {
        let card = of.card.unwrap_or_default();
        DeviceUsage {
            busy_ms: of.busy_ns / 1_000_000,
            context_memory_bytes: of.context_memory,
            utilization_percent: card.utilization,
            memory_used_bytes: card.memory_used,
            temperature_celsius: card.temperature,
        }
    }
}

/// Asks all configured nodes at once, and with `discover` those that announce themselves. A node has a second to accept
/// the connection, and its `answer_limit` to answer.
#[must_use]
pub fn nodes(settings: &Settings) -> Vec<NodeReport> {
    let mut servers = settings.servers.clone();
    if settings.discover {
        servers.extend(announced(settings));
    }
    let mut found = discover(&servers);
    // A daemon reads its cards when somebody asks, and answers without waiting for them.
    for _ in 0..ATTEMPTS {
        if !found.iter().any(lacks_cards) {
            break;
        }
        std::thread::sleep(PAUSE);
        found = discover(&servers);
    }
    let kept = kept_links();
    found.into_iter().map(|of| node(of, &kept)).collect()
}

/// The nodes that announce themselves and that programs use, with the addresses that lead to them.
#[must_use]
pub fn announced(settings: &Settings) -> Vec<ServerSettings> {
    let finder = Finder::new(settings);
    finder.begin();
    finder.wait();
    let snapshot = finder.snapshot();
    let usable = snapshot.found.iter().filter_map(|found| {
        let server = settings.server_found(found, &snapshot.interfaces).ok()?;
        let uuid = Bytes::copy_from_slice(&found.announcement.id);
        Some((uuid, Target::from(server)))
    });
    let replies = ask_found(usable.collect(), Instant::now() + ENUMERATION_LIMIT);
    let right = replies
        .into_iter()
        .filter(|(_, reply)| reply.inventory.is_ok());
    right.map(|(target, _)| target.server).collect()
}

/// Whether the daemon has not read its cards yet.
fn lacks_cards(of: &Discovered) -> bool {
    let inventory = of.inventory.as_ref();
    let uses = inventory.map_or(&[][..], |inventory| &inventory.uses);
    uses.iter()
        .any(|of| of.card == Some(CardReading::default()))
}

/// The nodes of the lease that a program would get. The lease is requested as a program requests it when
/// it enumerates devices, and is released at once. Empty if no request is configured.
///
/// # Errors
/// Why there is no lease.
pub fn leased(settings: Settings) -> Result<Vec<NodeReport>, NoLease> {
    // The library keeps a lease's settings for the whole process.
    let Some(lease) = Lease::new(Box::leak(Box::new(settings))) else {
        return Ok(Vec::new());
    };
    let offer = lease
        .enumerate()
        .map(Enumeration::finish_or_why)
        .transpose();
    lease.leave();
    let Some(offer) = offer?.flatten() else {
        return Ok(Vec::new());
    };
    let id = format!("{:032x}", u128::from_be_bytes(offer.lease));
    let kept = kept_links();
    let nodes = offer.nodes.into_iter().map(|of| {
        let server = of.target.server;
        let address = server.address.to_string();
        let name = server.name.unwrap_or_else(|| address.clone());
        let mut report = node_report(name, address, of.reply, &kept);
        report.lease = Some(id.clone());
        report
    });
    Ok(nodes.collect())
}

/// The links from this machine that the user has had measured. `causeway links` says if they cannot be read.
fn kept_links() -> LinkTable {
    let memory = config::link_memory();
    let kept = memory.and_then(|memory| memory.table().ok());
    kept.unwrap_or_default()
}

fn node(found: Discovered, kept: &LinkTable) -> NodeReport {
    let (name, address) = (
        found.node.name().to_owned(),
        found.node.address().to_owned(),
    );
    let reply = Reply {
        inventory: found.inventory,
        round_trip: found.round_trip,
        rail: 0,
    };
    let mut report = node_report(name, address, reply, kept);
    report.also_at = found.also_at;
    report
}

fn node_report(name: String, address: String, reply: Reply, kept: &LinkTable) -> NodeReport {
    let mut report = NodeReport {
        name,
        address,
        also_at: Vec::new(),
        round_trip_us: reply.round_trip.map(|time| time.as_micros() as u64),
        daemon_version: None,
        lease: None,
        devices: Vec::new(),
        problems: Vec::new(),
        error: None,
        hides_devices: false,
        remarks: Vec::new(),
        own_sessions: 0,
        own_away: 0,
        resume_limit: Duration::ZERO,
        link: None,
    };
    match reply.inventory {
        Ok(inventory) => {
            report.daemon_version = Some(inventory.daemon_version.clone());
            report.link = link_to(&report.name, &report.address, &inventory.node_uuid, kept);
            report.problems.clone_from(&inventory.problems);
            report.remarks.clone_from(&inventory.remarks);
            (report.own_sessions, report.own_away) = (inventory.own_sessions, inventory.own_away);
            report.resume_limit = Duration::from_millis(inventory.resume_limit_ms.into());
            let mut devices = inventory.platforms.iter().flat_map(|of| &of.devices);
            report.hides_devices = devices.any(|device| device.info.is_empty());
            report.devices = device_reports(&inventory);
            if report.devices.is_empty() && report.problems.is_empty() {
                report
                    .problems
                    .push("the node's own OpenCL has no device".to_owned());
            }
        }
        Err(error) => {
            report.problems.push(error.to_string());
            report.error = Some(Box::new(error));
        }
    }
    report
}

fn device_reports(inventory: &Inventory) -> Vec<DeviceReport> {
    let devices = inventory.platforms.iter().zip(0..);
    let devices = devices.flat_map(|(platform, at)| {
        let devices = platform.devices.iter().zip(0..);
        devices.map(move |(of, index)| ((platform, of), (at, index)))
    });
    // Devices that are not in the lease keep their index, and have no answers.
    let devices = devices.filter(|((_, device), _)| !device.info.is_empty());
    let report = |((platform, of), at)| {
        let mut uses = inventory.uses.iter();
        let usage = uses.find(|of| (of.platform, of.device) == at);
        let usage = usage.copied().map(DeviceUsage::from);
        DeviceReport {
            usage,
            ..device(platform, of)
        }
    };
    devices.map(report).collect()
}

/// The link from this machine to a node: to this address of it, or else the figure that is the newest.
fn link_to(name: &str, address: &str, uuid: &[u8], kept: &LinkTable) -> Option<Box<LinkReport>> {
    let (peer, address) = (id(uuid), address.parse::<SocketAddr>().ok());
    let of_node = kept.entries().iter();
    let of_node = of_node.filter(|of| of.user.is_empty() && of.peer == peer);
    let is_there = |of: &LinkEntry| address.is_some_and(|at| at.ip() == of.to.ip());
    let entry = of_node.max_by_key(|of| (is_there(of), of.when))?;
    let now = causeway_links::seconds_now();
    let from = ("this machine".to_owned(), None);
    let report = LinkReport::new(from, (name.to_owned(), peer), entry, now);
    Some(Box::new(report))
}

fn device(platform: &Platform, device: &Device) -> DeviceReport {
    DeviceReport {
        name: text(&device.info, CL_DEVICE_NAME),
        kind: kind(number(&device.info, CL_DEVICE_TYPE)),
        version: text(&device.info, CL_DEVICE_VERSION),
        driver: text(&device.info, CL_DRIVER_VERSION),
        platform: text(&platform.info, CL_PLATFORM_NAME),
        compute_units: number(&device.info, CL_DEVICE_MAX_COMPUTE_UNITS),
        memory_bytes: number(&device.info, CL_DEVICE_GLOBAL_MEM_SIZE),
        usage: None,
    }
}

fn kind(bits: u64) -> &'static str {
    if bits & CL_DEVICE_TYPE_GPU != 0 {
        "GPU"
    } else if bits & CL_DEVICE_TYPE_CPU != 0 {
        "CPU"
    } else if bits & CL_DEVICE_TYPE_ACCELERATOR != 0 {
        "accelerator"
    } else {
        "other"
    }
}

fn value(info: &[InfoAnswer], name: u32) -> &[u8] {
    info.iter()
        .find(|answer| answer.name == name && answer.status == 0)
        .map_or(&[], |answer| &answer.value)
}

fn text(info: &[InfoAnswer], name: u32) -> String {
    String::from_utf8_lossy(value(info, name))
        .trim_end_matches('\0')
        .trim()
        .to_owned()
}

fn number(info: &[InfoAnswer], name: u32) -> u64 {
    let mut wide = [0; 8];
    let bytes = value(info, name);
    if bytes.len() <= wide.len() {
        wide[..bytes.len()].copy_from_slice(bytes);
    }
    u64::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_read_from_its_answers_and_missing_ones_are_empty() {
        let answer = |name, value: &[u8]| InfoAnswer {
            name,
            value: value.to_vec().into(),
            status: 0,
        };
        let platform = Platform {
            info: vec![answer(CL_PLATFORM_NAME, b"P\0")],
            devices: Vec::new(),
        };
        let info = vec![
            answer(CL_DEVICE_NAME, b"H200\0"),
            answer(CL_DEVICE_TYPE, &4u64.to_le_bytes()),
            answer(CL_DEVICE_MAX_COMPUTE_UNITS, &132u32.to_le_bytes()),
        ];
        let device_told = Device {
            info,
            ..Device::default()
        };
        let report = device(&platform, &device_told);
        assert_eq!(
            (report.name.as_str(), report.kind, report.compute_units),
            ("H200", "GPU", 132)
        );
        assert_eq!((report.driver.as_str(), report.memory_bytes), ("", 0));
    }
}
