//! Tests a link between two nodes that advertise two addresses each: if the link's address dies, it goes on over the other.

use std::net::SocketAddr;

use causeway_cutter::{Forwarder, Purpose, Target};

use crate::frames::servers::*;
use crate::walls::*;

/// A daemon behind a forwarder on each of two addresses.
struct Node {
    ways: [Forwarder; 2],
    _daemon: Daemon,
}

impl Node {
    fn start() -> Node {
        let ways = [2, 3].map(|host| {
            let listen = SocketAddr::from(([127, 0, 0, host], 0));
            Forwarder::start_on(listen, None).expect("a free port")
        });
        let flags = ways.each_ref().map(|way| way.address().to_string());
        let flags = flags.map(|address| ["--advertise".to_owned(), address]);
        let daemon = Daemon::start_flagged("127.0.0.1:0", "[[device]]", &flags.concat());
        for way in &ways {
            way.set_target(Target::Tcp(daemon.address));
        }
        Node {
            ways,
            _daemon: daemon,
        }
    }

    /// Returns the number of the address that connections of a link take.
    fn way_of_link(&self) -> Option<usize> {
        let ways = self.ways.iter();
        let mut linked = ways.map(|way| way.connected(Purpose::Link) > 0);
        linked.position(|is_linked| is_linked)
    }
}

#[test]
fn a_link_whose_address_dies_goes_on_over_another() {
    own_process!();
    let nodes = [(); 2].map(|()| Node::start());
    let tables = nodes.each_ref().map(
        |Node {
             ways: [one, other], ..
         }| {
            let addresses = format!("[\"{}\", \"{}\"]", one.address(), other.address());
            format!("[[server]]\naddress = {addresses}\nshared_memory = false\n")
        },
    );
    let file = tempfile::NamedTempFile::with_suffix(".toml").expect("a file");
    std::fs::write(file.path(), tables.concat()).expect("written");
    // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
    unsafe {
        std::env::remove_var("CAUSEWAY_SERVERS");
        std::env::set_var("CAUSEWAY_CONFIG", file.path());
    }
    let devices = eventually("two devices", || <[_; 2]>::try_from(devices()).ok());
    let pair = Shared::new(devices);
    assert_eq!(pair.play(), 0);
    for _ in 0..2 {
        let mut ends = nodes.iter().filter_map(|of| Some((of, of.way_of_link()?)));
        // One end has dialled the other.
        let (node, way) = ends.next().expect("a link");
        node.ways[way].close();
        pair.play();
        eventually("the link's other address", || {
            (node.way_of_link() == Some(1 - way)).then_some(())
        });
        eventually("the direct route", || (pair.play() == 0).then_some(()));
        node.ways[way].open();
    }
}
