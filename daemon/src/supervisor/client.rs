//! A session's client, seen from the supervisor: whether it is still there.
//!
//! A worker ends when its client has gone, and a worker that does not run any more cannot see that. The supervisor
//! holds duplicates of the two connections whose end is the session's end, and hears from the kernel of their end
//! alone: no command and no heartbeat wakes it. A client that a debugger has stopped is there, because its kernel
//! answers.
//!
//! What it is not: it reads and writes nothing. Invariant: of each kind the first connection counts, whether or not its
//! descriptor has arrived. The worker has shown the connection for commands before it applied a command, so no kernel of
//! the session can put another in its place; the pulse connection comes later.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;
use tokio::io::unix::AsyncFd;

use crate::handover::Line;
use crate::sys;

/// See the module.
#[derive(Debug)]
pub(super) struct Client {
    ends: AsyncFd<OwnedFd>,
    commands: Shown,
    pulse: Shown,
}

/// A connection of the client, as its worker has shown it.
#[derive(Debug, Default)]
struct Shown {
    has_come: bool,
    /// Watched for its end as long as it is held.
    _socket: Option<OwnedFd>,
}

/// The end of a connection that has come will not be seen here.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unseen {
    #[error("its descriptor was lost on the way from the worker")]
    Lost,
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Client {
    /// One that has no connection yet.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn new() -> io::Result<Client> {
        Ok(Client {
            ends: sys::readable(epoll::create(CreateFlags::CLOEXEC)?)?,
            commands: Shown::default(),
            pulse: Shown::default(),
        })
    }

    /// Its worker shows one of its connections. It has come, whatever this gives.
    ///
    /// # Errors
    /// [`Unseen`].
    pub(super) fn show(&mut self, line: Line, socket: Option<OwnedFd>) -> Result<(), Unseen> {
        let shown = match line {
            Line::Commands => &mut self.commands,
            Line::Pulse => &mut self.pulse,
        };
        if std::mem::replace(&mut shown.has_come, true) {
            return Ok(());
        }
        let socket = socket.ok_or(Unseen::Lost)?;
        let data = EventData::new_u64(line as u64);
        epoll::add(self.ends.get_ref(), &socket, data, EventFlags::RDHUP)
            .map_err(io::Error::from)?;
        shown._socket = Some(socket);
        Ok(())
    }

    /// Whether the connection for commands has come.
    pub(super) fn has_come(&self) -> bool {
        self.commands.has_come
    }

    /// Waits until a connection of the client has ended. Can be given up and called again.
    ///
    /// # Errors
    /// What the system says.
    pub(super) async fn gone(&self) -> io::Result<()> {
        loop {
            let mut ready = self.ends.readable().await?;
            let mut events = [const { std::mem::MaybeUninit::<Event>::uninit() }; 2];
            let at_once = Timespec::default();
            let (ended, _) = epoll::wait(self.ends.get_ref(), &mut events, Some(&at_once))?;
            if !ended.is_empty() {
                ready.retain_ready();
                return Ok(());
            }
            ready.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

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
        client.show(Line::Commands, Some(shown)).unwrap();
        let (pulse, shown) = pair();
        client.show(Line::Pulse, Some(shown)).unwrap();
        commands.write_all(&[7; 4096]).unwrap();
        assert!(!is_gone(&client).await);
        // Another in its place does not count.
        let (_other, shown) = pair();
        client.show(Line::Pulse, Some(shown)).unwrap();
        drop(pulse);
        client.gone().await.unwrap();
        client.gone().await.unwrap();
    }

    #[tokio::test]
    async fn a_client_has_come_although_its_end_would_not_be_seen() {
        let mut client = Client::new().unwrap();
        assert!(!client.has_come());
        // Nothing watches a regular file.
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let shown = client.show(Line::Commands, Some(file.into()));
        assert!(matches!(shown, Err(Unseen::System(_))), "{shown:?}");
        assert!(client.has_come());
        let shown = client.show(Line::Pulse, None);
        assert!(matches!(shown, Err(Unseen::Lost)), "{shown:?}");
        // Another in its place does not count.
        let (commands, shown) = pair();
        client.show(Line::Commands, Some(shown)).unwrap();
        drop(commands);
        assert!(!is_gone(&client).await);
    }
}
