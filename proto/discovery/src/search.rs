//! Asks on all interfaces, and reads the answers. The sockets of a [`Collector`].
//!
//! The question leaves from port 5353, which is shared with other mDNS programs: desktop firewalls pass answers to that
//! port. It also leaves from a port of its own, whose answers come at once and to this socket alone (RFC 6762 §6.7). A
//! responder multicasts a record once a second only, so a second program would otherwise not be answered. The question is
//! repeated once.
//!
//! Nothing here waits longer than the caller says. Invariant: an interface or a port that cannot be used is left out, and
//! the others are used.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_ip_multicast_if_with_ifindex;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use crate::PORT;
use crate::announcement::CaDigest;
use crate::collector::{Collector, Found, Heard, Limits};
use crate::interfaces::Interfaces;
use crate::message::LONGEST;

const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
/// Time between the question and its repetition.
const REPEATED_AFTER: Duration = Duration::from_millis(250);
/// Most interfaces that are asked on, for each of IPv4 and IPv6.
const MOST_INTERFACES: usize = 32;
/// Packets that are read of one socket before the next one's turn.
const BATCH: usize = 64;

/// Why no question can be asked.
#[derive(Debug, thiserror::Error)]
pub enum NoSearch {
    /// The system does not list its interfaces.
    #[error("the network interfaces cannot be listed: {0}")]
    Interfaces(io::Error),
    /// No interface could be asked on.
    #[error("no network interface can send multicast packets{}", reason(.0.as_ref()))]
    NoInterface(Option<io::Error>),
}

fn reason(error: Option<&io::Error>) -> String {
    error.map_or_else(String::new, |error| format!(": {error}"))
}

/// What [`Search::step`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchProgress {
    /// Something new was heard.
    New,
    /// Nothing new was heard.
    Nothing,
    /// The time is over.
    Over,
}

/// A question that is being asked; see the module.
#[derive(Debug)]
pub struct Search {
    collector: Collector,
    sockets: Vec<Asking>,
    /// When the question is repeated; `None` afterwards.
    repeat_at: Option<Instant>,
    asked: Instant,
    has_shared_port: bool,
    hears_itself: bool,
}

#[derive(Debug)]
struct Asking {
    socket: UdpSocket,
    interface: u32,
    group: SocketAddr,
}

impl Search {
    /// Asks on all interfaces. Claims with one of these CAs are kept first. `routed`: see [`Collector::routed`].
    ///
    /// # Errors
    /// [`NoSearch`].
    pub fn begin(own_cas: Vec<CaDigest>, routed: bool) -> Result<Search, NoSearch> {
        let interfaces = Interfaces::of_host().map_err(NoSearch::Interfaces)?;
        let mut first_error = None;
        let (mut sockets, mut has_shared_port) = (Vec::new(), false);
        for (index, is_v6) in asked_on(&interfaces) {
            for port in [PORT, 0] {
                match open(index, is_v6, port) {
                    Ok(socket) => {
                        has_shared_port |= port == PORT;
                        sockets.push(socket);
                    }
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            }
        }
        let asked = Instant::now();
        let mut search = Search {
            collector: Collector::new(Limits::default(), own_cas, interfaces).routed(routed),
            sockets,
            repeat_at: Some(asked + REPEATED_AFTER),
            asked,
            has_shared_port,
            hears_itself: false,
        };
        match search.ask() {
            Ok(()) => Ok(search),
            Err(error) => Err(NoSearch::NoInterface(first_error.or(error))),
        }
    }

    /// Keeps claims to this name first: see [`Collector::wanted`].
    #[must_use]
    pub fn wanted(self, name: Option<String>) -> Search {
        Search {
            collector: self.collector.wanted(name),
            ..self
        }
    }

    /// When the question was asked.
    #[must_use]
    pub fn asked(&self) -> Instant {
        self.asked
    }

    /// Whether port 5353 could be had. Without it, a firewall may drop the answers.
    #[must_use]
    pub fn has_shared_port(&self) -> bool {
        self.has_shared_port
    }

    /// Whether a question of this host has come back to it, as multicast does.
    #[must_use]
    pub fn hears_itself(&self) -> bool {
        self.hears_itself
    }

    /// Everything found so far, ordered by name, then uuid.
    #[must_use]
    pub fn found(&self) -> Vec<Found> {
        self.collector.found()
    }

    /// The CAs whose claims are kept first.
    #[must_use]
    pub fn own_cas(&self) -> &[CaDigest] {
        self.collector.own_cas()
    }

    /// Returns the interfaces of this host.
    #[must_use]
    pub fn interfaces(&self) -> &Interfaces {
        self.collector.interfaces()
    }

    /// Waits for answers, and reads those that are there. Returns `Over` once it is `until`.
    ///
    /// # Errors
    /// Those of the system's `poll`.
    pub fn step(&mut self, until: Instant) -> io::Result<SearchProgress> {
        let now = Instant::now();
        if self.repeat_at.is_some_and(|at| at <= now) {
            self.repeat_at = None;
            // The first question may have been enough.
            let _ = self.ask();
        }
        let left = until.saturating_duration_since(now);
        if left.is_zero() {
            return Ok(SearchProgress::Over);
        }
        let repeat = self.repeat_at.map(|at| at.saturating_duration_since(now));
        let ready = self.ready(repeat.map_or(left, |repeat| repeat.min(left)))?;
        let mut progress = SearchProgress::Nothing;
        for position in ready {
            if self.read(position) {
                progress = SearchProgress::New;
            }
        }
        Ok(progress)
    }

    /// Sends the question from all sockets. Fails if none could send it.
    fn ask(&mut self) -> Result<(), Option<io::Error>> {
        let question = self.collector.question().ok_or(None)?;
        let mut outcome = Err(None);
        for asking in &self.sockets {
            match asking.socket.send_to(&question, asking.group) {
                Ok(_) => outcome = Ok(()),
                Err(error) if outcome.is_err() => outcome = Err(Some(error)),
                Err(_) => {}
            }
        }
        outcome
    }

    fn ready(&self, limit: Duration) -> io::Result<Vec<usize>> {
        let mut polled: Vec<PollFd<'_>> = (self.sockets.iter())
            .map(|asking| PollFd::new(&asking.socket, PollFlags::IN))
            .collect();
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        match poll(&mut polled, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |of: &PollFd<'_>| !of.revents().is_empty();
        let ready = polled.iter().enumerate().filter(|(_, of)| is_ready(of));
        Ok(ready.map(|(position, _)| position).collect())
    }

    /// Reads what has come to a socket. Returns whether anything is new.
    fn read(&mut self, position: usize) -> bool {
        // One byte more shows that a packet is too long.
        let mut packet = [0; LONGEST + 1];
        let asking = &self.sockets[position];
        let mut is_new = false;
        for _ in 0..BATCH {
            // An error is that of an earlier packet, or says that nothing is left.
            let Ok((length, source)) = asking.socket.recv_from(&mut packet) else {
                break;
            };
            let heard = self
                .collector
                .hear(&packet[..length], source, asking.interface);
            is_new |= heard == Heard::New;
            self.hears_itself |= is_question(&packet[..length])
                && self
                    .interfaces()
                    .0
                    .iter()
                    .any(|of| of.address == source.ip());
        }
        is_new
    }
}

/// Whether a packet is a question: the first bit of its flags says so.
fn is_question(packet: &[u8]) -> bool {
    packet.get(2).is_some_and(|flags| flags & 0x80 == 0)
}

/// The interfaces to ask on: numbers, and whether by IPv6.
fn asked_on(interfaces: &Interfaces) -> Vec<(u32, bool)> {
    let all = interfaces.0.iter();
    let mut numbers: Vec<(u32, bool)> = all.map(|of| (of.index, of.address.is_ipv6())).collect();
    numbers.sort_unstable_by_key(|(index, is_v6)| (*is_v6, *index));
    numbers.dedup();
    let (six, four): (Vec<_>, Vec<_>) = numbers.into_iter().partition(|(_, is_v6)| *is_v6);
    let [four, six] = [four, six].map(|of| of.into_iter().take(MOST_INTERFACES));
    four.chain(six).collect()
}

/// Opens a socket for an interface. On port 5353 it also hears what is multicast there.
fn open(interface: u32, is_v6: bool, port: u16) -> io::Result<Asking> {
    let domain = if is_v6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    let is_shared = port == PORT;
    if is_shared {
        socket.set_reuse_address(true)?;
    }
    let (own, group): (SocketAddr, SocketAddr) = if is_v6 {
        socket.set_only_v6(true)?;
        let own = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
        let group = SocketAddrV6::new(GROUP_V6, PORT, 0, interface);
        (own.into(), group.into())
    } else {
        let own = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        (own.into(), SocketAddrV4::new(GROUP_V4, PORT).into())
    };
    socket.bind(&own.into())?;
    if is_v6 {
        socket.set_multicast_if_v6(interface)?;
        socket.set_multicast_hops_v6(255)?;
        socket.set_multicast_all_v6(false)?;
    } else {
        let any = Ipv4Addr::UNSPECIFIED;
        set_ip_multicast_if_with_ifindex(&socket, &any, &any, interface)?;
        socket.set_multicast_ttl_v4(255)?;
        socket.set_multicast_all_v4(false)?;
    }
    match (is_shared, is_v6) {
        (false, _) => {}
        (true, true) => socket.join_multicast_v6(&GROUP_V6, interface)?,
        (true, false) => {
            let by_number = InterfaceIndexOrAddress::Index(interface);
            socket.join_multicast_v4_n(&GROUP_V4, &by_number)?;
        }
    }
    Ok(Asking {
        socket: socket.into(),
        interface,
        group,
    })
}
