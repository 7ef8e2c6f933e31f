//! Takes further files of sessions that come from another node, over connections of their own.
//!
//! A call for sessions begins a [`Transfer`] when it has admitted the first one, and its answer names the transfer. A
//! connection for it proves the transfer's secret. Each has a thread of its own, because a file may wait for a disk. This
//! module admits nobody.
//!
//! Invariants: a connection is served only for a transfer that is under way, and all connections of a transfer end with
//! it. All files of a transfer together have no more bytes than its room. The room of a file comes back only when the file
//! is closed.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_links::{NotDialled, welcome};
use causeway_proto::control::ContentsWay;
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{Introduction, PREAMBLE, Verdict};
use causeway_security::{Line, ServerTls, SessionCertificate};
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;
use tonic::Status;

use super::super::super::contents::Contents;
use super::super::super::workers::ContentsFiles;
use super::super::name::LeaseId;
use super::SILENT_FOR;
use super::further::{HEAD, Head, MOST_FURTHER};

/// Time for a connection to prove the secret.
const PROVED_WITHIN: Duration = Duration::from_secs(5);
/// Most connections of a transfer at the same time.
const MOST_CONNECTIONS: usize = 2 * MOST_FURTHER;
/// Bytes that are read at once.
const BATCH: usize = 1 << 20;

/// The transfers that are under way. Clones share them.
#[derive(Clone, Default)]
pub(in super::super) struct Transfers(Arc<Mutex<Vec<Arc<Transfer>>>>);

/// A transfer that is under way, until this is dropped.
pub(super) struct Transferring {
    all: Transfers,
    pub(super) transfer: Arc<Transfer>,
}

/// What one call brings over connections.
pub(super) struct Transfer {
    id: SessionId,
    lease: LeaseId,
    secret: SessionSecret,
    certificate: Option<SessionCertificate>,
    tls: Option<ServerTls>,
    files: ContentsFiles,
    state: Mutex<TakeState>,
    /// Notified when another session begins, and at the end.
    changed: Condvar,
    /// Notified when a connection has failed.
    failed: Notify,
}

struct TakeState {
    /// Bytes that may still come.
    room: u64,
    /// The number of the session that came last.
    session: u64,
    /// Whether contents of that session may still come.
    is_open: bool,
    /// Bytes of that session, without those of files that are still coming.
    bytes: u64,
    /// The further files of that session. `None`: it is still coming.
    taken: BTreeMap<u8, Option<Contents>>,
    /// The connections, with the number of the session for which each is.
    connections: Vec<(u64, Arc<TcpStream>)>,
    is_over: bool,
    fault: Option<Status>,
}

/// Why a connection has brought no file.
#[derive(Debug, thiserror::Error)]
enum NotTaken {
    #[error("the connection has not proved the secret of the transfer: {0}")]
    NotProved(#[from] NotDialled),
    #[error("the connection is for a file that is not expected")]
    Unexpected,
    #[error("the connection of a file has waited too long for its session")]
    NotBegun,
    #[error("the connection of a file has failed: {0}")]
    Io(#[from] io::Error),
    #[error("the chunk of a file has an impossible length")]
    Nonsense,
    #[error("the sessions have more than their devices' memory")]
    NoRoom,
    #[error("the transfer has ended")]
    Over,
    #[error("the thread that takes a file has failed")]
    Thread,
}

impl NotTaken {
    /// What the transfer's call answers; `None` if the connection has no part in the transfer.
    fn fault(&self) -> Option<Status> {
        let text = self.to_string();
        match self {
            NotTaken::NotProved(_) | NotTaken::Unexpected | NotTaken::Over => None,
            NotTaken::NotBegun => Some(Status::deadline_exceeded(text)),
            NotTaken::Thread => Some(Status::internal(text)),
            NotTaken::Io(_) => Some(Status::unavailable(text)),
            NotTaken::Nonsense => Some(Status::invalid_argument(text)),
            NotTaken::NoRoom => Some(Status::resource_exhausted(text)),
        }
    }
}

impl Transfers {
    /// Begins a transfer with this room. An earlier one of the same lease ends.
    ///
    /// # Errors
    /// TLS is not to be had.
    pub(super) fn begin(
        &self,
        lease: LeaseId,
        room: u64,
        certificate: Option<SessionCertificate>,
        files: ContentsFiles,
    ) -> io::Result<Transferring> {
        let tls = certificate.as_ref().map(SessionCertificate::server);
        let transfer = Arc::new(Transfer {
            id: SessionId(rand::random()),
            lease,
            secret: SessionSecret(rand::random()),
            tls: tls.transpose()?,
            certificate,
            files,
            state: Mutex::new(TakeState {
                room,
                session: 0,
                is_open: false,
                bytes: 0,
                taken: BTreeMap::new(),
                connections: Vec::new(),
                is_over: false,
                fault: None,
            }),
            changed: Condvar::new(),
            failed: Notify::new(),
        });
        let mut all = self.0.lock();
        for earlier in all.iter().filter(|of| of.lease == lease) {
            earlier.replace();
        }
        all.push(Arc::clone(&transfer));
        drop(all);
        Ok(Transferring {
            all: self.clone(),
            transfer,
        })
    }

    /// Passes a connection to the transfer that it names.
    ///
    /// # Errors
    /// The connection, with the reason to refuse it.
    pub(in super::super) fn pass(
        &self,
        preamble: &Introduction,
        bytes: [u8; PREAMBLE],
        socket: OwnedFd,
    ) -> Result<(), (OwnedFd, Verdict)> {
        let transfer = {
            let all = self.0.lock();
            let named = all.iter().find(|of| preamble.is_for(&of.id));
            named.map(Arc::clone)
        };
        let Some(transfer) = transfer else {
            return Err((socket, Verdict::UnknownSession));
        };
        let socket = Arc::new(TcpStream::from(socket));
        if let Err(verdict) = transfer.enter(preamble.link, &socket) {
            return match Arc::into_inner(socket) {
                Some(socket) => Err((socket.into(), verdict)),
                None => Ok(()),
            };
        }
        let leaving = Leaving {
            transfer,
            socket,
            session: preamble.link,
            taken: Err(NotTaken::Thread),
        };
        let introduction = *preamble;
        let thread = std::thread::Builder::new().name("file".into());
        let spawned = thread.spawn(move || leaving.take(&introduction, &bytes));
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread begins for a file of another node's session");
        }
        Ok(())
    }
}

impl Drop for Transferring {
    fn drop(&mut self) {
        let transfer = &self.transfer;
        self.all.0.lock().retain(|of| !Arc::ptr_eq(of, transfer));
        transfer.end(&mut transfer.state.lock());
    }
}

/// The connection of a thread. It leaves its transfer when the thread ends, also by a panic.
struct Leaving {
    transfer: Arc<Transfer>,
    socket: Arc<TcpStream>,
    session: u64,
    taken: Result<(), NotTaken>,
}

impl Leaving {
    fn take(mut self, preamble: &Introduction, bytes: &[u8; PREAMBLE]) {
        self.taken = self.transfer.take(preamble, bytes, &self.socket);
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let taken = std::mem::replace(&mut self.taken, Ok(()));
        self.transfer.leave(self.session, &self.socket, taken);
    }
}

/// A file that is coming. What is not handed over is closed, and its room comes back then.
struct Coming<'a> {
    transfer: &'a Transfer,
    file: Option<Contents>,
    /// Bytes for which it has taken room.
    room: u64,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        // Before its room is another one's. This thread is not the runtime's, so it closes the file itself.
        drop(self.file.take());
        let mut state = self.transfer.state.lock();
        state.room = state.room.saturating_add(self.room);
    }
}

impl Transfer {
    /// How the other node connects.
    pub(super) fn way(&self) -> ContentsWay {
        let fingerprint = self
            .certificate
            .as_ref()
            .map(SessionCertificate::fingerprint);
        ContentsWay {
            id: self.id.0.to_vec().into(),
            secret: self.secret.0.to_vec().into(),
            certificate_sha256: fingerprint
                .map(|of| of.0.to_vec().into())
                .unwrap_or_default(),
        }
    }

    /// Notes that the contents of the next session come.
    pub(super) fn begin_session(&self) {
        let mut state = self.state.lock();
        state.session += 1;
        state.is_open = true;
        state.bytes = 0;
        state.taken.clear();
        self.changed.notify_all();
    }

    /// Takes room for bytes of the session that comes now.
    ///
    /// # Errors
    /// There is not so much.
    pub(super) fn take_room(&self, bytes: u64) -> Result<(), Status> {
        let mut state = self.state.lock();
        let taken = state.take_room(bytes);
        taken.ok_or_else(|| Status::resource_exhausted(NotTaken::NoRoom.to_string()))?;
        state.bytes += bytes;
        Ok(())
    }

    /// Gives back the room of the session that comes now, because it has ended. Its connections end, and give back theirs
    /// when their files are closed.
    pub(super) fn forget_session(&self) {
        let mut state = self.state.lock();
        state.room = state.room.saturating_add(state.bytes);
        state.bytes = 0;
        state.taken.clear();
        state.is_open = false;
        let session = state.session;
        for (_, socket) in state.connections.iter().filter(|of| of.0 == session) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Returns the further files of the session that comes now, in their order.
    ///
    /// # Errors
    /// A file is missing.
    pub(super) fn end_session(&self) -> Result<Vec<Contents>, Status> {
        let taken = {
            let mut state = self.state.lock();
            state.is_open = false;
            std::mem::take(&mut state.taken)
        };
        let mut files = Vec::new();
        for ((number, file), expected) in taken.into_iter().zip(1..) {
            let file = file.filter(|_| number == expected);
            files.push(file.ok_or_else(|| {
                Status::invalid_argument("a session's description comes before one of its files")
            })?);
        }
        Ok(files)
    }

    /// Waits until a connection has failed.
    pub(super) async fn failed(&self) -> Status {
        loop {
            let failed = self.failed.notified();
            if let Some(fault) = self.state.lock().fault.clone() {
                return fault;
            }
            failed.await;
        }
    }

    // Ends all connections.
    fn end(&self, state: &mut TakeState) {
        state.is_over = true;
        for (_, socket) in &state.connections {
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }

    // Ends the transfer, and its call, because a later call brings the sessions of the lease.
    fn replace(&self) {
        let mut state = self.state.lock();
        let fault = || Status::aborted("a later call brings the sessions of this lease");
        state.fault.get_or_insert_with(fault);
        self.end(&mut state);
        self.failed.notify_waiters();
    }

    fn enter(&self, session: u64, socket: &Arc<TcpStream>) -> Result<(), Verdict> {
        let mut state = self.state.lock();
        if state.is_over {
            return Err(Verdict::UnknownSession);
        }
        if state.connections.len() >= MOST_CONNECTIONS {
            return Err(Verdict::TooMany);
        }
        state.connections.push((session, Arc::clone(socket)));
        Ok(())
    }

    fn leave(&self, session: u64, socket: &Arc<TcpStream>, taken: Result<(), NotTaken>) {
        let mut state = self.state.lock();
        state.connections.retain(|(_, of)| !Arc::ptr_eq(of, socket));
        if let Err(error) = taken {
            if !state.is_over {
                tracing::debug!(%error, "a file of another node's session is not taken");
            }
            // A session that has ended needs no files.
            let is_needed = session > state.session || state.expects(session);
            if let (true, Some(fault), None) = (is_needed, error.fault(), &state.fault) {
                state.fault = Some(fault);
                self.failed.notify_waiters();
            }
        }
        // After the fault, which the call reports when the other node notices this.
        let _ = socket.shutdown(Shutdown::Both);
    }

    // Takes a file; runs on the connection's own thread.
    fn take(
        &self,
        preamble: &Introduction,
        bytes: &[u8; PREAMBLE],
        socket: &TcpStream,
    ) -> Result<(), NotTaken> {
        let deadline = Instant::now() + PROVED_WITHIN;
        let socket = socket.try_clone().map_err(NotDialled::Io)?;
        socket.set_nonblocking(false).map_err(NotDialled::Io)?;
        let tls = self.tls.as_ref();
        let line = welcome(socket, bytes, &self.secret, tls, deadline)?;
        self.expect(preamble)?;
        let mut coming = Coming {
            transfer: self,
            file: Some(self.files.make()?.into()),
            room: 0,
        };
        let Some(length) = self.receive(&line, preamble.link, &mut coming)? else {
            return Ok(());
        };
        self.arrived(preamble, coming)?;
        (&line).write_all(&length.to_le_bytes())?;
        Ok(())
    }

    // Waits until the session comes for which a connection is.
    fn expect(&self, preamble: &Introduction) -> Result<(), NotTaken> {
        let deadline = Instant::now() + SILENT_FOR;
        let mut state = self.state.lock();
        while state.session < preamble.link && !state.is_over {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return Err(NotTaken::NotBegun);
            }
        }
        let number = preamble.lane;
        let is_known = (1..=MOST_FURTHER).contains(&usize::from(number));
        if !is_known || !state.expects(preamble.link) || state.taken.contains_key(&number) {
            return Err(NotTaken::Unexpected);
        }
        state.taken.insert(number, None);
        Ok(())
    }

    // Writes a file. Returns its length; `None` if the sender has given it up.
    fn receive(
        &self,
        mut line: &Line,
        session: u64,
        coming: &mut Coming<'_>,
    ) -> Result<Option<u64>, NotTaken> {
        let (mut at, mut batch) = (0, vec![0; BATCH]);
        line.socket().set_read_timeout(Some(SILENT_FOR))?;
        loop {
            let mut head = [0; HEAD];
            line.read_exact(&mut head)?;
            let mut left = match Head::decode(head).ok_or(NotTaken::Nonsense)? {
                Head::Chunk(length) => length,
                Head::Ended => return Ok(Some(at)),
                Head::GivenUp => return Ok(None),
            };
            {
                let mut state = self.state.lock();
                if !state.expects(session) {
                    return Err(NotTaken::Over);
                }
                state.take_room(left).ok_or(NotTaken::NoRoom)?;
                coming.room += left;
            }
            let file = coming.file.as_ref().ok_or(NotTaken::Over)?;
            while left > 0 {
                let most = left.min(BATCH as u64) as usize;
                let read = match line.read(&mut batch[..most]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                    read => read?,
                };
                file.write_at(&batch[..read], at)?;
                at += read as u64;
                left -= read as u64;
            }
        }
    }

    fn arrived(&self, preamble: &Introduction, mut coming: Coming<'_>) -> Result<(), NotTaken> {
        let mut state = self.state.lock();
        let is_now = state.expects(preamble.link);
        let Some(place) = state.taken.get_mut(&preamble.lane).filter(|_| is_now) else {
            // What is coming takes the lock to leave.
            drop(state);
            return Err(NotTaken::Over);
        };
        *place = coming.file.take();
        state.bytes += std::mem::take(&mut coming.room);
        drop(state);
        Ok(())
    }
}

impl TakeState {
    // Whether contents of this session come now.
    fn expects(&self, session: u64) -> bool {
        !self.is_over && self.is_open && self.session == session
    }

    fn take_room(&mut self, bytes: u64) -> Option<()> {
        self.room = self.room.checked_sub(bytes)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_a_file_comes_back_when_it_is_closed() {
        let (transfers, files) = (Transfers::default(), ContentsFiles::default());
        let lease = LeaseId([1; 16]);
        let underway = transfers.begin(lease, 10, None, files.clone()).unwrap();
        let transfer = &underway.transfer;
        transfer.begin_session();
        transfer.take_room(1).unwrap();
        transfer.state.lock().take_room(6).unwrap();
        let coming = Coming {
            transfer,
            file: Some(files.make().unwrap().into()),
            room: 6,
        };
        transfer.forget_session();
        assert!(transfer.take_room(5).is_err());
        drop(coming);
        assert!(transfer.take_room(10).is_ok());
    }

    #[test]
    fn a_thread_that_panics_is_a_fault_and_closes_its_connection() {
        let (transfers, files) = (Transfers::default(), ContentsFiles::default());
        let underway = transfers.begin(LeaseId([1; 16]), 10, None, files).unwrap();
        underway.transfer.begin_session();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = Arc::new(listener.accept().unwrap().0);
        underway.transfer.enter(1, &far).unwrap();
        let leaving = Leaving {
            transfer: Arc::clone(&underway.transfer),
            socket: Arc::clone(&far),
            session: 1,
            taken: Err(NotTaken::Thread),
        };
        let thread = std::thread::spawn(move || {
            let _leaving = leaving;
            panic!("as a fault of the program");
        });
        assert!(thread.join().is_err());
        assert_eq!(near.read(&mut [0]).unwrap(), 0);
        let state = underway.transfer.state.lock();
        assert!(state.connections.is_empty());
        let fault = state.fault.as_ref().map(Status::code);
        assert_eq!(fault, Some(tonic::Code::Internal));
    }
}
