//! Watches a session's client on behalf of the supervisor, to learn when the client has gone.
//!
//! A worker ends by itself when its client has gone, but a worker that hangs cannot notice. The supervisor
//! therefore holds duplicates of two client connections, for commands and for heartbeats. The kernel
//! notifies it only when one of them ends; commands and heartbeats do not wake it. A client that is stopped
//! in a debugger still counts as present, because its kernel keeps the connections open.
//!
//! This module reads no data, and writes only a reason after the worker's end ([`Client::tell`]).
//!
//! Invariant: the first connection of each kind counts, even if its descriptor was lost. The worker reports the command connection before it applies any command, so no
//! kernel of the session can replace it with another one. The heartbeat connection is reported later. If the session
//! outlives its connections, a later one replaces the first. The caller then makes sure that it is one that the supervisor
//! has passed to this session, and not one that a kernel has made.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use causeway_proto::id::SessionSecret;
use causeway_security::seal_reason;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::{SendFlags, Shutdown};
use rustix::time::Timespec;
use tokio::io::unix::AsyncFd;

use crate::handover::{SessionLine, WorkerFile};
use crate::sys;

/// Time for the client to read why its session has ended.
const READ_WITHIN: Duration = Duration::from_millis(500);

/// The watched connections of one client.
#[derive(Debug)]
pub(super) struct Client {
    ends: AsyncFd<OwnedFd>,
    commands: Shown,
    heartbeat: Shown,
}

/// A connection of the client that the worker has reported.
#[derive(Debug, Default)]
struct Shown {
    has_come: bool,
    has_ended: bool,
    /// The duplicate of the connection. Epoll watches it as long as it is open.
    socket: Option<WorkerFile>,
}

/// The end of a reported connection cannot be observed here.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShowError {
    #[error("the descriptor of the client's connection was lost between worker and supervisor")]
    Lost,
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Client {
    /// Makes a client without connections.
    pub(super) fn new() -> io::Result<Client> {
        Ok(Client {
            ends: sys::readable(epoll::create(CreateFlags::CLOEXEC)?)?,
            commands: Shown::default(),
            heartbeat: Shown::default(),
        })
    }

    /// Registers a connection that the worker reports, in place of the one before. The one before stays if this fails.
    ///
    /// # Errors
    /// [`ShowError`] if the end of the connection cannot be observed.
    pub(super) fn replace(
        &mut self,
        line: SessionLine,
        socket: Option<WorkerFile>,
    ) -> Result<(), ShowError> {
        if !self.shown(line).has_come {
            return self.show(line, socket);
        }
        let socket = self.watch(line, socket)?;
        self.forget(line);
        let shown = self.shown(line);
        shown.has_ended = false;
        shown.socket = Some(socket);
        Ok(())
    }

    fn watch(
        &self,
        line: SessionLine,
        socket: Option<WorkerFile>,
    ) -> Result<WorkerFile, ShowError> {
        let socket = socket.ok_or(ShowError::Lost)?;
        let data = EventData::new_u64(line as u64);
        epoll::add(self.ends.get_ref(), &socket, data, EventFlags::RDHUP)
            .map_err(io::Error::from)?;
        Ok(socket)
    }

    /// Watches a connection no longer. Its descriptor stays open in the worker, so closing it here is not enough.
    fn forget(&mut self, line: SessionLine) {
        if let Some(socket) = self.shown(line).socket.take() {
            let _ = epoll::delete(self.ends.get_ref(), &socket);
        }
    }

    fn shown(&mut self, line: SessionLine) -> &mut Shown {
        match line {
            SessionLine::Commands => &mut self.commands,
            SessionLine::Heartbeat => &mut self.heartbeat,
        }
    }

    /// Returns whether no reported connection has ended.
    pub(super) fn is_whole(&self) -> bool {
        self.has_come() && !self.commands.has_ended && !self.heartbeat.has_ended
    }

    /// Waits until a connection of the client has ended. If others may follow (`is_away`), watches it no longer.
    /// Cancel safe.
    pub(super) async fn has_left(&mut self, is_away: bool) -> io::Result<()> {
        let ended = self.ended().await?;
        for line in [SessionLine::Commands, SessionLine::Heartbeat] {
            if is_away && ended.contains(&(line as u64)) {
                self.forget(line);
                self.shown(line).has_ended = true;
            }
        }
        Ok(())
    }

    /// Registers a connection that the worker reports. The connection counts as present even if this fails.
    ///
    /// # Errors
    /// [`ShowError`] if the end of the connection cannot be observed.
    pub(super) fn show(
        &mut self,
        line: SessionLine,
        socket: Option<WorkerFile>,
    ) -> Result<(), ShowError> {
        if !std::mem::replace(&mut self.shown(line).has_come, true) {
            self.shown(line).socket = Some(self.watch(line, socket)?);
        }
        Ok(())
    }

    /// Tells the client why its session has ended, on behalf of a worker that has ended. Then waits until the
    /// client has gone, at most [`READ_WITHIN`].
    ///
    /// The heartbeat connection takes the text. Each heartbeat is one byte, so the worker has left no part of a message
    /// there. The command connection may end inside of a frame. If the connections are encrypted, `secret` is the
    /// session's: the worker's keys are gone, so the reason is encrypted with it.
    pub(super) async fn tell(&self, reason: &str, secret: Option<&SessionSecret>) {
        let sealed = secret.map(|secret| seal_reason(secret, reason));
        let bytes = match &sealed {
            None => reason.as_bytes(),
            Some(Some(sealed)) => sealed,
            Some(None) => return,
        };
        let Some(socket) = &self.heartbeat.socket else {
            return;
        };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = rustix::net::send(socket, bytes, flags)
            .and_then(|_| rustix::net::shutdown(socket, Shutdown::Write));
        match sent {
            // The command connection stays open meanwhile, so that its end is not the first that the client sees.
            Ok(()) => drop(tokio::time::timeout(READ_WITHIN, self.gone()).await),
            Err(error) => {
                tracing::debug!(%error, "a client was not told why its session has ended")
            }
        }
    }

    /// Returns whether the worker has reported the command connection.
    pub(super) fn has_come(&self) -> bool {
        self.commands.has_come
    }

    /// Waits until a connection of the client has ended. Cancel safe.
    pub(super) async fn gone(&self) -> io::Result<()> {
        self.ended().await.map(drop)
    }

    // Waits until connections of the client have ended. Returns their lines. Cancel safe.
    async fn ended(&self) -> io::Result<Vec<u64>> {
        loop {
            let mut ready = self.ends.readable().await?;
            let mut events = [const { std::mem::MaybeUninit::<Event>::uninit() }; 2];
            let at_once = Timespec::default();
            let (ended, _) = epoll::wait(self.ends.get_ref(), &mut events, Some(&at_once))?;
            if !ended.is_empty() {
                // The readiness stays set, so that later calls also return at once.
                ready.retain_ready();
                return Ok(ended.iter().map(|event| event.data.u64()).collect());
            }
            ready.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0.into())
    }

    async fn is_gone(client: &Client) -> bool {
        tokio::time::timeout(Duration::from_millis(50), client.gone())
            .await
            .is_ok()
    }

    #[tokio::test]
    async fn the_end_of_a_connection_is_heard_and_what_is_said_on_it_is_not() {
        let mut client = Client::new().unwrap();
        let (mut commands, shown) = pair();
        client
            .show(SessionLine::Commands, Some(shown.into()))
            .unwrap();
        let (heartbeat, shown) = pair();
        client
            .show(SessionLine::Heartbeat, Some(shown.into()))
            .unwrap();
        commands.write_all(&[7; 4096]).unwrap();
        assert!(!is_gone(&client).await);
        // A second heartbeat connection does not replace the first one.
        let (_other, shown) = pair();
        client
            .show(SessionLine::Heartbeat, Some(shown.into()))
            .unwrap();
        drop(heartbeat);
        client.gone().await.unwrap();
        client.gone().await.unwrap();
    }

    #[tokio::test]
    async fn the_newest_connection_counts_for_a_session_that_outlives_them() {
        let mut client = Client::new().unwrap();
        let (first, shown) = pair();
        let kept = shown.try_clone().unwrap();
        client
            .replace(SessionLine::Commands, Some(shown.into()))
            .unwrap();
        let (heartbeat, shown) = pair();
        client
            .replace(SessionLine::Heartbeat, Some(shown.into()))
            .unwrap();
        let (second, shown) = pair();
        client
            .replace(SessionLine::Commands, Some(shown.into()))
            .unwrap();
        drop(first);
        let left = tokio::time::timeout(Duration::from_millis(50), client.has_left(true));
        assert!(left.await.is_err() && client.is_whole());
        drop(kept);
        drop(heartbeat);
        client.has_left(true).await.unwrap();
        assert!(!client.is_whole());
        let (_heartbeat, shown) = pair();
        client
            .replace(SessionLine::Heartbeat, Some(shown.into()))
            .unwrap();
        assert!(client.is_whole());
        // A lost descriptor cannot be watched, so the connection does not count.
        drop(second);
        client.has_left(true).await.unwrap();
        assert!(client.replace(SessionLine::Commands, None).is_err());
        assert!(!client.is_whole());
    }

    #[tokio::test]
    async fn a_reason_goes_beside_a_frame_that_is_not_complete() {
        let mut client = Client::new().unwrap();
        let (mut commands, shown) = pair();
        let mut worker = TcpStream::from(shown.try_clone().unwrap());
        client
            .show(SessionLine::Commands, Some(shown.into()))
            .unwrap();
        let (mut heartbeat, shown) = pair();
        client
            .show(SessionLine::Heartbeat, Some(shown.into()))
            .unwrap();
        worker.write_all(b"half of a frame").unwrap();
        drop(worker);
        client.tell("the reason", None).await;
        drop(client);
        let (mut frame, mut reason) = (String::new(), String::new());
        commands.read_to_string(&mut frame).unwrap();
        heartbeat.read_to_string(&mut reason).unwrap();
        assert_eq!((&*frame, &*reason), ("half of a frame", "the reason"));
    }

    #[tokio::test]
    async fn a_reason_for_a_client_with_tls_is_for_that_client_only() {
        let secret = SessionSecret([3; 32]);
        let mut client = Client::new().unwrap();
        let (mut heartbeat, shown) = pair();
        let mut worker = TcpStream::from(shown.try_clone().unwrap());
        client
            .show(SessionLine::Heartbeat, Some(shown.into()))
            .unwrap();
        worker.write_all(b"a record").unwrap();
        drop(worker);
        client.tell("the reason", Some(&secret)).await;
        drop(client);
        let mut bytes = Vec::new();
        heartbeat.read_to_end(&mut bytes).unwrap();
        assert!(bytes.starts_with(b"a record"));
        let reason = causeway_security::open_reason(&secret, &bytes);
        assert_eq!(reason.as_deref(), Some("the reason"));
    }

    #[tokio::test]
    async fn a_client_has_come_although_its_end_would_not_be_seen() {
        let mut client = Client::new().unwrap();
        assert!(!client.has_come());
        // Epoll cannot watch a regular file.
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let shown = client.show(SessionLine::Commands, Some(OwnedFd::from(file).into()));
        assert!(matches!(shown, Err(ShowError::System(_))), "{shown:?}");
        assert!(client.has_come());
        let shown = client.show(SessionLine::Heartbeat, None);
        assert!(matches!(shown, Err(ShowError::Lost)), "{shown:?}");
        // A second command connection does not replace the first one.
        let (commands, shown) = pair();
        client
            .show(SessionLine::Commands, Some(shown.into()))
            .unwrap();
        drop(commands);
        assert!(!is_gone(&client).await);
    }
}
