//! Resolves a configured address and connects to it.
//!
//! Names are resolved on a separate thread, because the system's resolver blocks and must not delay the
//! caller beyond its time limit. Of several addresses the first to answer wins. Later addresses are tried
//! a little after earlier ones.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::config::Address;
use crate::thread::Stack;

/// Head start of each address over the next.
const STAGGER: Duration = Duration::from_millis(100);
/// Maximum number of addresses that are tried for one name.
const MOST: usize = 8;

/// Resolves a configured address.
pub(super) async fn resolve(address: &Address) -> io::Result<Vec<SocketAddr>> {
    if let Ok(literal) = address.host().parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(literal, address.port())]);
    }
    let (sender, receiver) = oneshot::channel();
    let name = (address.host().to_owned(), address.port());
    super::thread::spawn("cw-resolve", Stack::Runtime, move || {
        let found = name
            .to_socket_addrs()
            .map(|found| found.take(MOST).collect::<Vec<_>>());
        // A failed send means that the caller's time limit has passed.
        let _ = sender.send(found);
    })?;
    let found = receiver.await.map_err(io::Error::other)??;
    if found.is_empty() {
        return Err(io::Error::other(
            "the host name has no address; check the name",
        ));
    }
    Ok(found)
}

/// Connects to the first address that answers. Also returns how long its handshake took.
pub(super) async fn connect(addresses: &[SocketAddr]) -> io::Result<(TcpStream, Duration)> {
    let mut attempts = JoinSet::new();
    for (position, address) in (0u32..).zip(addresses.iter().copied()) {
        attempts.spawn(async move {
            tokio::time::sleep(STAGGER * position).await;
            let begun = Instant::now();
            let stream = TcpStream::connect(address).await?;
            Ok::<_, io::Error>((stream, begun.elapsed()))
        });
    }
    let mut first_error = None;
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            // Dropping `attempts` cancels the others.
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => first_error = first_error.or(Some(error)),
            Err(error) => first_error = first_error.or(Some(io::Error::other(error))),
        }
    }
    Err(first_error
        .unwrap_or_else(|| io::Error::other("the host name has no address to connect to")))
}
