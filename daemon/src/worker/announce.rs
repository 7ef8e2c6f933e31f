//! The process that announces the node by mDNS.
//!
//! The responder reads packets of strangers, and it is not ours. So it has a process of its own, confined as a worker is,
//! without OpenCL, without files and with little memory. The supervisor reads no such packet. If the process ends, the
//! supervisor starts another one.
//!
//! The responder keeps what it hears of other services, although it never asks, and has no limit for that. A host that sends
//! megabytes of such packets ends the process at its limit of memory; the node is unannounced until the next one starts.
//!
//! Invariant: the process says goodbye and ends when the supervisor closes its socket.
#![forbid(unsafe_code)]

use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use causeway_discovery::SERVICE;
use causeway_serving::logging::Logging;
use mdns_sd::{IfKind, ServiceDaemon, ServiceInfo};

use super::confine;
use crate::handover::{MOST_ORDER, Order};
use crate::sys;

/// Memory that the process may have, in bytes.
const MEMORY: u64 = 64 << 20;
/// Time for the goodbye to leave.
const GOODBYE_WITHIN: Duration = Duration::from_millis(300);

/// Why the node is not announced.
#[derive(Debug, thiserror::Error)]
enum NotAnnounced {
    #[error("{0}")]
    System(#[from] io::Error),
    #[error("the supervisor's order is not valid")]
    Order,
    #[error("mDNS: {0}")]
    Responder(#[from] mdns_sd::Error),
}

/// Runs the process; its entry point.
#[must_use]
pub fn main() -> ExitCode {
    Logging::inherited().start();
    let Some((channel, _)) = confine::begin("the process that announces the node") else {
        return ExitCode::FAILURE;
    };
    if let Err(error) = announce(channel.into()) {
        tracing::warn!(%error, "the node cannot be announced");
        return ExitCode::FAILURE;
    }
    // The responder's thread may still read packets.
    sys::exit_now(0)
}

fn announce(mut channel: UnixStream) -> Result<(), NotAnnounced> {
    confine::limit_memory(MEMORY)?;
    let Some(order) = order(&mut channel)? else {
        return Ok(());
    };
    let responder = ServiceDaemon::new()?;
    choose_interfaces(&responder, &order)?;
    let service = service(&order)?;
    let name = service.get_fullname().to_owned();
    responder.register(service)?;
    tracing::info!(name = order.name, port = order.port, "announcing the node");
    // Nothing else comes: this waits for the end of the socket.
    let _ = channel.read(&mut [0]);
    let gone = responder.unregister(&name)?;
    // Without an answer, the goodbye may have left all the same.
    let _ = gone.recv_timeout(GOODBYE_WITHIN);
    if let Ok(over) = responder.shutdown() {
        let _ = over.recv_timeout(GOODBYE_WITHIN);
    }
    Ok(())
}

/// Reads the order. `None` if the supervisor has closed the socket.
fn order(channel: &mut UnixStream) -> Result<Option<Order>, NotAnnounced> {
    let mut length = [0; 4];
    match channel.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_le_bytes(length);
    if length > MOST_ORDER {
        return Err(NotAnnounced::Order);
    }
    let mut text = String::new();
    channel.take(length.into()).read_to_string(&mut text)?;
    Order::decode(&text)
        .map(Some)
        .map_err(|_| NotAnnounced::Order)
}

fn choose_interfaces(responder: &ServiceDaemon, order: &Order) -> Result<(), NotAnnounced> {
    if order.interfaces.is_empty() {
        responder.disable_interface(vec![IfKind::LoopbackV4, IfKind::LoopbackV6])?;
    } else {
        responder.disable_interface(IfKind::All)?;
        let names = order.interfaces.iter().cloned().map(IfKind::Name);
        responder.enable_interface(names.collect::<Vec<_>>())?;
    }
    let is_v6 = match order.addresses.is_empty() {
        true => order.has_v6,
        false => order.addresses.iter().any(IpAddr::is_ipv6),
    };
    if !is_v6 {
        responder.disable_interface(IfKind::IPv6)?;
    }
    Ok(())
}

fn service(order: &Order) -> Result<ServiceInfo, NotAnnounced> {
    let host = format!("{}.local.", order.host);
    let txt: Vec<(&str, &str)> = order
        .txt
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .collect();
    let addresses = &order.addresses[..];
    let mut service =
        ServiceInfo::new(SERVICE, &order.name, &host, addresses, order.port, &txt[..])?;
    if addresses.is_empty() {
        service = service.enable_addr_auto();
    }
    // The name is that of the node's certificate. A stranger who claims it must not make the node take another one. The
    // host's name is unique.
    service.set_requires_probe(false);
    Ok(service)
}
