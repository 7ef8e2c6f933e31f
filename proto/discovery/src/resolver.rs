//! Asks the DNS servers of `/etc/resolv.conf`. The sockets of a [`Browser`].
//!
//! Invariants: nothing here waits longer than the caller says. A server that cannot be reached is left out, and the others
//! are asked.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::collector::Found;
use crate::domain::{Answered, Browser, LONGEST};

const SETTINGS: &str = "/etc/resolv.conf";
const PORT: u16 = 53;
/// Most servers that are asked, as the system's resolver does.
const MOST_SERVERS: usize = 3;
/// Longest conversation by TCP. Other answers wait meanwhile.
const TCP_LIMIT: Duration = Duration::from_millis(300);

/// Most packets of a server that are read before the others' turn.
const MOST_AT_ONCE: usize = 64;

/// Why nothing is known of the domains.
#[derive(Debug, thiserror::Error)]
pub enum NoDomains {
    /// No server could be asked.
    #[error("no DNS server of {SETTINGS} can be asked: {0}")]
    NoServer(io::Error),
    /// No server has answered.
    #[error("no DNS server of {SETTINGS} has answered for the domains")]
    Silent,
}

/// Asks for the nodes of domains until `until`. Calls `tell` whenever something new is known, and at the end if everything was
/// answered. What `guard` returns lives while sockets are opened, and no longer.
///
/// # Errors
/// [`NoDomains`].
pub fn browse<G>(
    domains: &[String],
    until: Instant,
    guard: &dyn Fn() -> G,
    mut tell: impl FnMut(Vec<Found>),
) -> Result<(), NoDomains> {
    let text = std::fs::read_to_string(SETTINGS).unwrap_or_default();
    let mut refused = io::Error::other("no address of a server");
    let mut servers = Vec::new();
    let opening = guard();
    for address in servers_of(&text) {
        match open(address) {
            Ok(socket) => servers.push((address, socket)),
            Err(error) => refused = error,
        }
    }
    drop(opening);
    if servers.is_empty() {
        return Err(NoDomains::NoServer(refused));
    }
    let mut id = random;
    let mut browser = Browser::new(domains, servers.len(), Instant::now(), &mut id);
    loop {
        let now = Instant::now();
        for packet in browser.poll(now) {
            // The question is asked again, of another server.
            let _ = servers[packet.server].1.send(&packet.bytes);
        }
        let next = browser.next(now).filter(|_| now < until);
        let Some(next) = next.map(|next| next.min(until)) else {
            // A domain that has become empty brings nothing new.
            if browser.is_complete() {
                tell(browser.found());
            }
            return match browser.has_heard() {
                true => Ok(()),
                false => Err(NoDomains::Silent),
            };
        };
        let ready = ready(&servers, next.saturating_duration_since(now));
        for server in ready.map_err(NoDomains::NoServer)? {
            let (address, socket) = &servers[server];
            let by_tcp = |question: &[u8]| {
                let opening = guard();
                let answer = by_tcp(*address, question, until, opening);
                answer.ok()
            };
            if read(&mut browser, (server, socket), until, &by_tcp, &mut id) {
                tell(browser.found());
            }
        }
    }
}

/// Reads the packets of a server that are there: not more than a flood leaves time for. Returns whether anything is new.
fn read(
    browser: &mut Browser,
    (server, socket): (usize, &UdpSocket),
    until: Instant,
    by_tcp: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
    id: &mut dyn FnMut() -> u16,
) -> bool {
    let mut packet = [0; LONGEST as usize];
    let mut is_new = false;
    for _ in 0..MOST_AT_ONCE {
        let now = Instant::now();
        // An error says that nothing is left, or that the server refuses: then the next one is asked.
        let received = socket.recv(&mut packet);
        let Some(length) = received.ok().filter(|_| now < until) else {
            break;
        };
        let answered = match browser.hear(server, &packet[..length], now, id) {
            Answered::TooLong(question) => by_tcp(&question).map_or(Answered::Nothing, |packet| {
                browser.hear(server, &packet, Instant::now(), id)
            }),
            answered => answered,
        };
        is_new |= answered == Answered::New;
    }
    is_new
}

fn by_tcp<G>(
    server: SocketAddr,
    question: &[u8],
    until: Instant,
    opening: G,
) -> io::Result<Vec<u8>> {
    let until = until.min(Instant::now() + TCP_LIMIT);
    let left = || {
        let left = until.saturating_duration_since(Instant::now());
        let is_over = || io::Error::from(io::ErrorKind::TimedOut);
        (!left.is_zero()).then_some(left).ok_or_else(is_over)
    };
    let mut stream = TcpStream::connect_timeout(&server, left()?)?;
    drop(opening);
    stream.set_write_timeout(Some(left()?))?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), question].concat())?;
    let mut received = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let length = received
            .first_chunk()
            .map(|length| u16::from_be_bytes(*length));
        if let Some(length) = length
            && received.len() >= usize::from(length) + 2
        {
            return Ok(received[2..usize::from(length) + 2].to_vec());
        }
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => received.extend(&bytes[..count]),
        }
    }
}

fn ready(servers: &[(SocketAddr, UdpSocket)], limit: Duration) -> io::Result<Vec<usize>> {
    let mut polled: Vec<PollFd<'_>> = (servers.iter())
        .map(|(_, socket)| PollFd::new(socket, PollFlags::IN))
        .collect();
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    match poll(&mut polled, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let ready = polled.iter().enumerate();
    let ready = ready.filter(|(_, of)| !of.revents().is_empty());
    Ok(ready.map(|(number, _)| number).collect())
}

/// The servers that the system's settings name, else the one of this host.
fn servers_of(settings: &str) -> Vec<SocketAddr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let is_server = words.next() == Some("nameserver");
        let address: IpAddr = words.next()?.parse().ok()?;
        is_server.then(|| SocketAddr::new(address, PORT))
    };
    let mut servers: Vec<SocketAddr> = settings.lines().filter_map(address).collect();
    servers.truncate(MOST_SERVERS);
    if servers.is_empty() {
        servers.push((Ipv4Addr::LOCALHOST, PORT).into());
    }
    servers
}

fn open(server: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Packets of others are dropped by the system.
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A number of a question. The system seeds the hashers, so others cannot guess it.
fn random() -> u16 {
    let number = RandomState::new().build_hasher().finish();
    u16::from_be_bytes([number.to_be_bytes()[0], number.to_be_bytes()[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_servers_are_asked_and_else_this_hosts() {
        let text = "# a comment\nsearch lab\nnameserver 10.0.0.1\nnameserver  2001:db8::1 \nnameserver fe80::1%eth0\n\
                    nameserver 10.0.0.2\nnameserver 10.0.0.3\n";
        let servers: Vec<String> = servers_of(text).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["10.0.0.1:53", "[2001:db8::1]:53", "10.0.0.2:53"]);
        assert_eq!(
            servers_of("search lab\n"),
            ["127.0.0.1:53".parse().unwrap()]
        );
    }
}
