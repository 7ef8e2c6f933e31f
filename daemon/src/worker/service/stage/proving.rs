//! The connections that are proving a session's secret: how many there may be at once.
//!
//! This module does not check the proofs. Invariant: a connection counts until its thread has ended, also if a later
//! one has replaced it.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use causeway_proto::preamble::Purpose;

use super::{Stage, StageState};

/// Limit on connections that have not proved the secret yet. A new connection replaces the oldest of
/// them, because a client proves the secret within a round trip.
const MAX_PROVING: usize = 32;
/// Limit on such connections of other workers, which may wait until the client has added their link.
const MAX_PEERS_PROVING: usize = 64;
/// Limit on threads, as a multiple of the connections. The threads of replaced connections end soon.
const LEAVING: usize = 4;

/// The connections that are proving a secret.
#[derive(Default)]
pub(super) struct Proofs {
    /// The connections that were not replaced, by their numbers.
    pub(super) open: BTreeMap<u64, TcpStream>,
    threads: usize,
}

impl StageState {
    /// Returns the unproved connections of this purpose, and the limit on them.
    fn proving(&mut self, purpose: Purpose) -> (&mut Proofs, usize) {
        match purpose {
            Purpose::Peer => (&mut self.peers_proving, MAX_PEERS_PROVING),
            _ => (&mut self.proving, MAX_PROVING),
        }
    }
}

impl Stage {
    /// Registers a connection that is about to prove the secret; closes the oldest if there are too many.
    /// Returns `None` if there are too many threads.
    pub(in crate::worker::service) fn begin_proof(
        self: &Arc<Self>,
        purpose: Purpose,
        socket: &TcpStream,
    ) -> Option<Proving> {
        let socket = socket.try_clone().ok()?;
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        state.last_proof += 1;
        let number = state.last_proof;
        let (proofs, most) = state.proving(purpose);
        if proofs.threads == LEAVING * most {
            return None;
        }
        if proofs.open.len() == most
            && let Some((_, oldest)) = proofs.open.pop_first()
        {
            // The thread of that connection sees the end.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        proofs.open.insert(number, socket);
        proofs.threads += 1;
        Some(Proving {
            stage: Arc::clone(self),
            purpose,
            number,
        })
    }
}

/// A connection that is proving the secret.
pub(in crate::worker::service) struct Proving {
    stage: Arc<Stage>,
    purpose: Purpose,
    number: u64,
}

impl Drop for Proving {
    fn drop(&mut self) {
        let mut state = self.stage.state.lock();
        let (proofs, _) = state.proving(self.purpose);
        proofs.open.remove(&self.number);
        proofs.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::stage;
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn proofs_at_once_are_limited() {
        let stage = stage();
        let mut ends = Vec::new();
        let mut begin = |purpose| {
            let (near, far) = UnixStream::pair().unwrap();
            far.set_nonblocking(true).unwrap();
            ends.push(far);
            // `TcpStream` stands for all stream sockets here; nothing specific to TCP is used.
            stage.begin_proof(purpose, &TcpStream::from(OwnedFd::from(near)))
        };
        let mut all: Vec<_> = (0..=MAX_PROVING).map(|_| begin(Purpose::Bulk)).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(begin(Purpose::Peer).is_some());
        all.extend((all.len()..LEAVING * MAX_PROVING).map(|_| begin(Purpose::Bulk)));
        assert!(begin(Purpose::Bulk).is_none());
        drop(all);
        assert!(begin(Purpose::Bulk).is_some());
        // The first connection was closed for the thirty-third.
        assert_eq!(ends[0].read(&mut [0]).unwrap(), 0);
    }
}
