//! The process that announces a server by mDNS.
//!
//! The responder reads packets of strangers, and it is not ours. So it has a process of its own, confined, without OpenCL
//! and with little memory. The server reads no such packet. If the process ends, the server starts another one.
//!
//! The responder keeps what it hears of other services, although it never asks, and has no limit for that. A host that sends
//! megabytes of such packets ends the process at its limit of memory; the server is unannounced until the next one starts.
//!
//! Invariant: the process says goodbye and ends when the server closes its socket.

use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use causeway_discovery::SERVICE;
use mdns_sd::{IfKind, ServiceDaemon, ServiceInfo};

use crate::order::{MOST_ORDER, Order};

/// Memory that the process may have, in bytes.
const MEMORY: u64 = 64 << 20;
/// Time for the goodbye to leave.
const GOODBYE_WITHIN: Duration = Duration::from_millis(300);

/// Why a server is not announced.
#[derive(Debug, thiserror::Error)]
pub enum NotAnnounced {
    /// A system call failed.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The server has sent something else than an order.
    #[error("the server's order is not valid")]
    Order,
    /// The responder failed.
    #[error("mDNS: {0}")]
    Responder(#[from] mdns_sd::Error),
}

/// Announces what the order on the channel says, until the server closes the channel. The caller has confined the
/// process. The responder's thread may still run when this returns.
///
/// # Errors
/// [`NotAnnounced`].
pub fn announce(channel: OwnedFd) -> Result<(), NotAnnounced> {
    let mut channel = UnixStream::from(channel);
    causeway_confine::limit_memory(MEMORY)?;
    let Some(order) = order(&mut channel)? else {
        return Ok(());
    };
    let responder = ServiceDaemon::new()?;
    choose_interfaces(&responder, &order)?;
    let service = service(&order)?;
    let name = service.get_fullname().to_owned();
    responder.register(service)?;
    tracing::info!(name = order.name, port = order.port, "announcing by mDNS");
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

/// Reads the order. `None` if the server has closed the socket.
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
    // The name is that of the server's certificate. A stranger who claims it must not make the server take another one. The
    // host's name is unique.
    service.set_requires_probe(false);
    Ok(service)
}
