//! Sites of several nodes, and transfers between them.

use std::net::TcpStream;

use super::bulk::{download, upload};
use super::{Daemon, Session, linear, read, write};

pub const OUT_OF_ORDER: u64 = 1;
// The environment of a worker that behaves as on a discrete GPU whose driver calls back late.
pub const STAGED: &[(&str, &str)] = &[("CAUSEWAYD_STAGING", "1"), ("CAUSEWAYD_WATCHING", "1")];

/// A session on a node, with the objects of a site.
pub struct Site {
    pub session: Session,
    pub lanes: Vec<TcpStream>,
    pub context: u64,
    pub queue: u64,
}

pub fn site(daemon: &Daemon) -> Site {
    site_on(daemon.session(), 0)
}

pub fn site_on(mut session: Session, platform: u32) -> Site {
    let lanes = vec![session.lane(0), session.lane(1)];
    let context = session.context_on(platform);
    let queue = session.queue(context, OUT_OF_ORDER);
    Site {
        session,
        lanes,
        context,
        queue,
    }
}

impl Site {
    pub fn buffer(&mut self, size: usize) -> u64 {
        self.session.buffer(self.context, size as u64, &[])
    }

    /// Makes a buffer and writes these bytes. Returns the buffer and the write's event.
    pub fn filled(&mut self, bytes: &[u8]) -> (u64, u64) {
        let buffer = self.buffer(bytes.len());
        let whole = linear(0, bytes.len() as u64);
        let put = self
            .session
            .enqueue(self.queue, &[], write(buffer, whole, None));
        upload(&mut self.lanes, put, bytes, false);
        (buffer, put)
    }

    pub fn contents(&mut self, buffer: u64, size: usize, wait: &[u64]) -> Vec<u8> {
        let whole = linear(0, size as u64);
        let get = self
            .session
            .enqueue(self.queue, wait, read(buffer, whole, true));
        let bytes = download(&mut self.lanes, get, size);
        assert_eq!(self.session.wait(get).status, 0);
        bytes
    }

    pub fn ended(&mut self, event: u64) {
        let done = self.session.wait(event);
        assert_eq!(done.status, 0, "{}", done.message);
    }
}

/// Runs the test with two sites of two nodes and a link between them.
pub fn linked(test: impl Fn(Site, Site, u64)) {
    // The second mix has a mapped sender and a staged receiver.
    for (ours, theirs) in [(&[][..], &[][..]), (STAGED, STAGED), (&[], STAGED)] {
        let daemons = (Daemon::with(ours), Daemon::with(theirs));
        let (mut a, mut b) = (site(&daemons.0), site(&daemons.1));
        let link = a.session.link(&mut b.session, &daemons.1.address);
        test(a, b, link);
    }
}

/// Enqueues both ends of a transfer of whole buffers. Returns the events of sender and receiver.
pub fn transfer(
    (a, from, wait): (&mut Site, u64, &[u64]),
    (b, to): (&mut Site, u64),
    size: usize,
    link: u64,
) -> (u64, u64) {
    let whole = linear(0, size as u64);
    let received = b.session.receive(b.queue, &[], (to, whole), link);
    let sent = a
        .session
        .send_region(a.queue, wait, (from, whole), received, link);
    (sent, received)
}
