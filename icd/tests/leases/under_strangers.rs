//! Tests that hundreds of unfinished handshakes of strangers keep nobody from working.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::cluster::{Cluster, played};
use crate::frames::servers::*;

/// More connections than a manager or node accepts from one address.
const STRANGERS: usize = 200;

/// Opens a connection from another address of this machine, and sends the beginning of a TLS record.
fn stranger(at: SocketAddr) -> Option<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    let from = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 2), 0);
    bind(&socket, &from).expect("an address");
    connect(&socket, &at).ok()?;
    let mut stranger = TcpStream::from(socket);
    // A connection beyond the limit may be closed already.
    stranger.write_all(&[0x16, 3, 1]).ok()?;
    Some(stranger)
}

#[test]
fn slow_handshakes_by_the_hundred_do_no_harm() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let node = cluster.node("[[device]]\nname = \"A\"");
    let mut working = cluster.using("1");
    let at = [cluster.manager.address(), node.address];
    let strangers: Vec<TcpStream> = at
        .into_iter()
        .flat_map(|at| (0..STRANGERS).filter_map(move |_| stranger(at)))
        .collect();
    assert!(strangers.len() > STRANGERS / 4, "{}", strangers.len());
    // Existing sessions work, and new callers are accepted: a session, a program, its lease.
    assert_eq!(working.code("round"), CL_SUCCESS);
    assert_eq!(working.code("again"), CL_SUCCESS);
    working.end();
    cluster.using("1").end();
    drop(strangers);
}
