//! Peers that send garbage: fake servers, strangers on a daemon's port, and a relay that makes either end
//! seem to use another version.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::Wrong;

/// Returns a loopback address on which nothing listens.
pub(super) fn nobody() -> io::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// Starts a server that treats every connection the same, for as long as the runner lives.
pub(super) fn server(
    serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static,
) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    Ok(address.to_string())
}

/// Returns random bytes.
pub(super) fn random(count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Sends these bytes to a port and waits until the other side closes. Returns everything received.
pub(super) fn say(address: &str, bytes: &[u8], limit: Duration) -> Result<Vec<u8>, Wrong> {
    let mut stream = TcpStream::connect(address)?;
    let end = Instant::now() + limit;
    // The peer may close before it has read everything, so an error is ignored.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let limit = limit.as_secs();
            return Err(Wrong::new(format!(
                "the port is still open after {limit} s"
            )));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(answer),
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Starts a relay to the node that replaces some bytes from either side by others.
pub(super) fn relay(node: &str, from: &'static [u8], to: &'static [u8]) -> Result<String, Wrong> {
    assert_eq!(from.len(), to.len());
    between(
        node,
        move |client, node| pass(client, node, from, to),
        move |node, client| pass(node, client, from, to),
    )
}

/// Starts a relay that makes the first frame of every command connection announce 4 GiB.
pub(super) fn relay_of_long_frames(node: &str) -> Result<String, Wrong> {
    between(
        node,
        |mut client, mut node| {
            if lengthen(&mut client, &mut node).is_ok() {
                pass(client, node, &[], &[]);
            }
        },
        |node, client| pass(node, client, &[], &[]),
    )
}

/// Relays the beginning of a connection. For a command connection, that is preamble, proof and the first
/// frame's length, which is replaced by the largest one.
fn lengthen(client: &mut TcpStream, node: &mut TcpStream) -> io::Result<()> {
    let mut preamble = [0; PREAMBLE];
    client.read_exact(&mut preamble)?;
    node.write_all(&preamble)?;
    if preamble.starts_with(b"CSWY") && preamble[6] == COMMANDS {
        let mut proof = [0; PROOF];
        client.read_exact(&mut proof)?;
        node.write_all(&proof)?;
        let mut length = [0; 4];
        client.read_exact(&mut length)?;
        node.write_all(&[0xff; 4])?;
    }
    Ok(())
}

/// Length of a preamble, and of the client's proof after it, in bytes.
const PREAMBLE: usize = 32;
const PROOF: usize = causeway_proto::preamble::CLIENT_PROOF;

/// The purpose of a command connection in a preamble.
const COMMANDS: u8 = 1;

fn between(
    node: &str,
    there: impl Fn(TcpStream, TcpStream) + Send + Sync + Clone + 'static,
    back: impl Fn(TcpStream, TcpStream) + Send + Sync + Clone + 'static,
) -> Result<String, Wrong> {
    let node: SocketAddr = node
        .parse()
        .map_err(|error| Wrong::new(format!("{node}: {error}")))?;
    let address = server(move |client| {
        let Ok(node) = TcpStream::connect(node) else {
            return;
        };
        let (Ok(from_node), Ok(to_client)) = (node.try_clone(), client.try_clone()) else {
            return;
        };
        let back = back.clone();
        let back = thread::spawn(move || back(from_node, to_client));
        there(client, node);
        let _ = back.join();
    })?;
    Ok(address)
}

/// Relays bytes until the end. The bytes to replace are few and at the beginning of a
/// message, so they arrive in one read.
fn pass(mut source: TcpStream, mut target: TcpStream, from: &[u8], to: &[u8]) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = source.read(&mut bytes) {
        for at in 0..(count + 1).saturating_sub(from.len()) {
            if bytes[at..].starts_with(from) {
                bytes[at..at + to.len()].copy_from_slice(to);
            }
        }
        if target.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = target.shutdown(Shutdown::Write);
}
