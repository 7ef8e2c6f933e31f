//! Takes further files of sessions that come from another node, over connections of their own.
//!
//! A call for sessions begins a [`Transfer`] when it has admitted the first one, and its answer names the transfer. A
//! connection for it proves the transfer's secret. Each has a thread of its own, because a file may wait for a disk. This
//! module admits nobody.
//!
//! Invariants: a connection is served only for a transfer that is under way, and all connections of a transfer end with
//! it. All files of a transfer together have no more bytes than its room.
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
use super::SILENT_FOR;
use super::further::{HEAD, Head, MOST_FURTHER};

/// Time for a connection to prove the secret, and for its session to begin.
const BEGUN_WITHIN: Duration = Duration::from_secs(5);
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
    secret: SessionSecret,
    certificate: Option<SessionCertificate>,
    tls: Option<ServerTls>,
    files: ContentsFiles,
    state: Mutex<State>,
    /// Notified when another session begins, and at the end.
    changed: Condvar,
    /// Notified when a connection has failed.
    failed: Notify,
}

struct State {
    /// Bytes that may still come.
    room: u64,
    /// The number of the session that came last.
    session: u64,
    /// Whether contents of that session may still come.
    is_open: bool,
    /// Bytes of that session.
    bytes: u64,
    /// The further files of that session. `None`: it is still coming.
    taken: BTreeMap<u8, Option<Contents>>,
    connections: Vec<Arc<TcpStream>>,
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
    #[error("the connection of a file has failed: {0}")]
    Io(#[from] io::Error),
    #[error("the chunk of a file has an impossible length")]
    Nonsense,
    #[error("the sessions have more than their devices' memory")]
    NoRoom,
    #[error("the transfer has ended")]
    Over,
}

impl NotTaken {
    /// What the transfer's call answers; `None` if the connection has no part in the transfer.
    fn fault(&self) -> Option<Status> {
        let text = self.to_string();
        match self {
            NotTaken::NotProved(_) | NotTaken::Unexpected | NotTaken::Over => None,
            NotTaken::Io(_) => Some(Status::unavailable(text)),
            NotTaken::Nonsense => Some(Status::invalid_argument(text)),
            NotTaken::NoRoom => Some(Status::resource_exhausted(text)),
        }
    }
}

impl Transfers {
    /// Begins a transfer with this room.
    ///
    /// # Errors
    /// TLS is not to be had.
    pub(super) fn begin(
        &self,
        room: u64,
        certificate: Option<SessionCertificate>,
        files: ContentsFiles,
    ) -> io::Result<Transferring> {
        let tls = certificate.as_ref().map(SessionCertificate::server);
        let transfer = Arc::new(Transfer {
            id: SessionId(rand::random()),
            secret: SessionSecret(rand::random()),
            tls: tls.transpose()?,
            certificate,
            files,
            state: Mutex::new(State {
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
        self.0.lock().push(Arc::clone(&transfer));
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
        if let Err(verdict) = transfer.enter(&socket) {
            return match Arc::into_inner(socket) {
                Some(socket) => Err((socket.into(), verdict)),
                None => Ok(()),
            };
        }
        let (of_thread, introduction, own) =
            (Arc::clone(&transfer), *preamble, Arc::clone(&socket));
        let thread = std::thread::Builder::new().name("file".into());
        let spawned = thread.spawn(move || {
            let taken = of_thread.take(&introduction, &bytes, &own);
            of_thread.leave(&own, taken);
        });
        if let Err(error) = spawned {
            transfer.leave(&socket, Err(error.into()));
        }
        Ok(())
    }
}

impl Drop for Transferring {
    fn drop(&mut self) {
        let transfer = &self.transfer;
        self.all.0.lock().retain(|of| !Arc::ptr_eq(of, transfer));
        let mut state = transfer.state.lock();
        state.is_over = true;
        for socket in &state.connections {
            let _ = socket.shutdown(Shutdown::Both);
        }
        transfer.changed.notify_all();
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
            files: MOST_FURTHER as u32,
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
        let taken = self.state.lock().take_room(bytes);
        taken.ok_or_else(|| Status::resource_exhausted(NotTaken::NoRoom.to_string()))
    }

    /// Gives back the room of the session that comes now, because it has ended.
    pub(super) fn forget_session(&self) {
        let mut state = self.state.lock();
        state.room = state.room.saturating_add(state.bytes);
        state.bytes = 0;
        state.taken.clear();
        state.is_open = false;
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
                Status::invalid_argument("a session's description comes before its contents")
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

    fn enter(&self, socket: &Arc<TcpStream>) -> Result<(), Verdict> {
        let mut state = self.state.lock();
        if state.is_over {
            return Err(Verdict::UnknownSession);
        }
        if state.connections.len() >= MOST_CONNECTIONS {
            return Err(Verdict::TooMany);
        }
        state.connections.push(Arc::clone(socket));
        Ok(())
    }

    fn leave(&self, socket: &Arc<TcpStream>, taken: Result<(), NotTaken>) {
        let _ = socket.shutdown(Shutdown::Both);
        let mut state = self.state.lock();
        state.connections.retain(|of| !Arc::ptr_eq(of, socket));
        let Err(error) = taken else { return };
        if !state.is_over {
            tracing::debug!(%error, "a file of another node's session is not taken");
        }
        if let (Some(fault), None) = (error.fault(), &state.fault) {
            state.fault = Some(fault);
            self.failed.notify_waiters();
        }
    }

    // Takes a file; runs on the connection's own thread.
    fn take(
        &self,
        preamble: &Introduction,
        bytes: &[u8; PREAMBLE],
        socket: &TcpStream,
    ) -> Result<(), NotTaken> {
        let deadline = Instant::now() + BEGUN_WITHIN;
        let socket = socket.try_clone().map_err(NotDialled::Io)?;
        socket.set_nonblocking(false).map_err(NotDialled::Io)?;
        let tls = self.tls.as_ref();
        let line = welcome(socket, bytes, &self.secret, tls, deadline)?;
        self.expect(preamble, deadline)?;
        let file = Contents::from(self.files.make()?);
        let Some(length) = self.receive(&line, preamble.link, &file)? else {
            return Ok(());
        };
        self.arrived(preamble, file)?;
        (&line).write_all(&length.to_le_bytes())?;
        Ok(())
    }

    // Waits until the session comes for which a connection is.
    fn expect(&self, preamble: &Introduction, deadline: Instant) -> Result<(), NotTaken> {
        let mut state = self.state.lock();
        while state.session < preamble.link && !state.is_over {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return Err(NotTaken::Unexpected);
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
        file: &Contents,
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
            }
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

    fn arrived(&self, preamble: &Introduction, file: Contents) -> Result<(), NotTaken> {
        let mut state = self.state.lock();
        let is_now = state.expects(preamble.link);
        match state.taken.get_mut(&preamble.lane).filter(|_| is_now) {
            Some(place) => {
                *place = Some(file);
                Ok(())
            }
            None => Err(NotTaken::Over),
        }
    }
}

impl State {
    // Whether contents of this session come now.
    fn expects(&self, session: u64) -> bool {
        !self.is_over && self.is_open && self.session == session
    }

    fn take_room(&mut self, bytes: u64) -> Option<()> {
        self.room = self.room.checked_sub(bytes)?;
        self.bytes += bytes;
        Some(())
    }
}
