//! Events over the direct carrier. The thread that has an event writes it, if the socket takes it at once.
//!
//! Invariant: whole frames leave in the order of the [`EventSink::send`] calls, and `send` never waits for
//! the client. At most one thread writes at a time. Other threads' frames wait in one buffer, which that
//! thread writes on its next turn. When the socket is full, the `events` thread waits for it and continues.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use causeway_proto::command::EventBatch;
use causeway_proto::frame::{self, PREFIX};
use causeway_security::Records;
use parking_lot::{Condvar, Mutex, MutexGuard};
use prost::Message;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::ending::{Ending, Endings};
use crate::worker::connection::EventSink;
use crate::worker::threads::Scope;

/// With more waiting bytes than this, no further commands are read.
const HIGH: usize = 64 << 20;
/// With fewer waiting bytes than this, commands are read again.
const LOW: usize = 32 << 20;
/// With more waiting bytes than this, the client is given up. It reads nothing, while the commands that
/// it sent still produce events.
const GIVE_UP: usize = 512 << 20;
/// The same in a host, where the bytes would be taken from the neighbours.
pub(super) const GIVE_UP_IN_HOST: usize = 128 << 20;
/// How many batches a calling thread writes before it leaves the rest to the `events` thread.
const TURNS: usize = 4;
/// A buffer larger than this is not kept for the next batch.
const KEEP: usize = 1 << 20;

pub(super) struct DirectEvents {
    socket: TcpStream,
    /// Encrypts outgoing records; only with TLS.
    records: Option<Arc<Records>>,
    endings: Endings,
    /// With more waiting bytes than this, the client is given up.
    most: usize,
    state: Mutex<ChannelState>,
    /// Wakes the `events` thread to continue writing.
    stuck: Condvar,
    /// Signals that there is room again, or that the connection is lost.
    room: Condvar,
}

#[derive(Default)]
struct ChannelState {
    /// Frames that no thread has begun to write.
    waiting: Vec<u8>,
    /// Bytes that the writing thread has taken and not yet sent.
    in_hand: usize,
    writer: Writer,
    /// Bytes that the writing thread has left to the `events` thread.
    left_over: Outgoing,
    lost: bool,
    // Set when the carrier has ended, and with it the `events` thread.
    is_closed: bool,
}

#[derive(Default, PartialEq, Eq)]
enum Writer {
    #[default]
    Nobody,
    /// A thread inside [`DirectEvents::turns`].
    Somebody,
    /// The `events` thread writes, or is about to.
    EventsThread,
}

/// Bytes being written, and how many of them were sent.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl DirectEvents {
    /// Starts the `events` thread for a connection's socket. The caller keeps the reading half.
    pub(super) fn start(
        socket: TcpStream,
        records: Option<Arc<Records>>,
        endings: Endings,
        scope: &Scope,
    ) -> io::Result<Arc<DirectEvents>> {
        let events = Arc::new(DirectEvents {
            socket,
            records,
            endings,
            most: match scope.is_hosted() {
                true => GIVE_UP_IN_HOST,
                false => GIVE_UP,
            },
            state: Mutex::default(),
            stuck: Condvar::new(),
            room: Condvar::new(),
        });
        let own = Arc::clone(&events);
        scope.try_spawn("events", move || own.run())?;
        Ok(events)
    }

    /// Waits while too many bytes wait for the client. Returns at once otherwise.
    pub(super) fn wait_for_room(&self) {
        let mut state = self.state.lock();
        if state.backlog() > HIGH {
            while state.backlog() > LOW && !state.lost {
                self.room.wait(&mut state);
            }
        }
    }

    /// Writes waiting frames until none is left, the socket is full, or `turns` batches were written.
    fn turns<'a>(
        &'a self,
        mut state: MutexGuard<'a, ChannelState>,
        mut out: Outgoing,
        turns: usize,
    ) -> Outcome {
        for _ in 0..turns {
            let fresh = out.sent == out.bytes.len();
            if fresh {
                if state.waiting.is_empty() {
                    state.writer = Writer::Nobody;
                    state.keep(out.bytes);
                    return Outcome::Done;
                }
                out.bytes.clear();
                out.sent = 0;
                std::mem::swap(&mut out.bytes, &mut state.waiting);
                state.in_hand = out.bytes.len();
            }
            drop(state);
            // Only one thread at a time is here, so records leave in the order in which they are sealed.
            let sealed = match &self.records {
                Some(records) if fresh => out.seal(records),
                _ => Ok(()),
            };
            let wrote = sealed.and_then(|()| out.write(&self.socket));
            state = self.state.lock();
            state.in_hand = out.bytes.len() - out.sent;
            if state.backlog() <= LOW {
                self.room.notify_all();
            }
            match wrote {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.lose(&mut state, error);
                    return Outcome::Done;
                }
            }
        }
        state.left_over = out;
        state.writer = Writer::EventsThread;
        Outcome::Stuck
    }

    /// Ends the `events` thread, because the connection has ended. Later batches are dropped.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.lost = true;
        drop(state);
        self.stuck.notify_all();
        self.room.notify_all();
    }

    fn lose(&self, state: &mut ChannelState, error: io::Error) {
        *state = ChannelState {
            lost: true,
            is_closed: state.is_closed,
            ..ChannelState::default()
        };
        self.room.notify_all();
        self.endings.end(Ending::ClientLost {
            connection: "commands",
            error,
        });
    }

    /// The body of the `events` thread.
    fn run(&self) {
        loop {
            let mut state = self.state.lock();
            while state.writer != Writer::EventsThread && !state.is_closed {
                self.stuck.wait(&mut state);
            }
            if state.is_closed {
                return;
            }
            let out = std::mem::take(&mut state.left_over);
            MutexGuard::unlocked(&mut state, || self.wait_until_writable());
            // One turn at a time: if the client is slow, the socket is soon full again.
            self.turns(state, out, 1);
        }
    }

    fn wait_until_writable(&self) {
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
        // An error of `poll` or a hang-up shows at the write that follows.
        while rustix::event::poll(&mut fds, None) == Err(Errno::INTR) {}
    }
}

enum Outcome {
    Done,
    /// The `events` thread has to send the rest.
    Stuck,
}

impl ChannelState {
    fn backlog(&self) -> usize {
        self.waiting.len() + self.in_hand
    }

    fn append(&mut self, batch: &EventBatch) -> Result<(), frame::FrameTooLarge> {
        let length = batch.encoded_len();
        let prefix = frame::prefix(length)?;
        self.waiting.reserve(PREFIX + length);
        self.waiting.extend_from_slice(&prefix);
        batch
            .encode(&mut self.waiting)
            .expect("a Vec grows as encoding needs it");
        Ok(())
    }

    /// Keeps the memory of a written buffer for the next frames.
    fn keep(&mut self, mut written: Vec<u8>) {
        if self.waiting.capacity() < written.capacity() && written.capacity() <= KEEP {
            written.clear();
            self.waiting = written;
        }
    }
}

impl Outgoing {
    fn seal(&mut self, records: &Records) -> io::Result<()> {
        let plain = std::mem::take(&mut self.bytes);
        self.bytes.reserve(plain.len() + plain.len() / 512 + 64);
        records.seal(&plain, &mut self.bytes)
    }

    /// Writes as much as the socket takes. Returns whether all of it was sent; false means
    /// that the socket is full.
    fn write(&mut self, socket: &TcpStream) -> io::Result<bool> {
        while self.sent < self.bytes.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(socket, &self.bytes[self.sent..], flags) {
                Ok(n) => self.sent += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

impl EventSink for DirectEvents {
    fn send(&self, batch: EventBatch) {
        let mut state = self.state.lock();
        if state.lost {
            return;
        }
        if let Err(error) = state.append(&batch) {
            self.endings.end(Ending::Broken(error.to_string()));
            return;
        }
        if state.backlog() > self.most {
            self.lose(
                &mut state,
                io::Error::other("the client reads no events from its command connection"),
            );
            return;
        }
        if state.writer != Writer::Nobody {
            return;
        }
        state.writer = Writer::Somebody;
        if matches!(
            self.turns(state, Outgoing::default(), TURNS),
            Outcome::Stuck
        ) {
            self.stuck.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::command::Completion;
    use std::io::Read;
    use std::net::TcpListener;
    use std::time::Duration;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn completion(event: u64, bytes: usize) -> EventBatch {
        EventBatch {
            completions: vec![Completion {
                event,
                contents: vec![0; bytes].into(),
                ..Completion::default()
            }],
            ..EventBatch::default()
        }
    }

    fn next(client: &mut TcpStream) -> EventBatch {
        let mut prefix = [0; PREFIX];
        client.read_exact(&mut prefix).unwrap();
        let mut bytes = vec![0; frame::length(prefix).unwrap()];
        client.read_exact(&mut bytes).unwrap();
        EventBatch::decode(&bytes[..]).unwrap()
    }

    #[test]
    fn order_holds_while_the_client_is_slow() {
        let (mut client, worker) = pair();
        let events =
            DirectEvents::start(worker, None, Endings::new().0, &Scope::default()).unwrap();
        // Far more than both socket buffers hold, before the client reads anything.
        for event in 0..300 {
            events.send(completion(event, 100_000));
        }
        assert!(events.state.lock().backlog() > 0);
        for event in 0..300 {
            assert_eq!(next(&mut client).completions[0].event, event);
        }
        events.send(completion(300, 1));
        assert_eq!(next(&mut client).completions[0].event, 300);
    }

    #[test]
    fn every_event_of_many_threads_arrives_once() {
        let (mut client, worker) = pair();
        let events =
            DirectEvents::start(worker, None, Endings::new().0, &Scope::default()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let events = &events;
                scope.spawn(move || {
                    for n in 0..500 {
                        events.send(completion(thread * 1000 + n, 300));
                    }
                });
            }
            let mut last = [None; 8];
            for _ in 0..4000 {
                let event = next(&mut client).completions[0].event;
                let (thread, n) = ((event / 1000) as usize, event % 1000);
                assert_eq!(n, last[thread].map_or(0, |last: u64| last + 1));
                last[thread] = Some(n);
            }
        });
    }

    #[test]
    fn a_lost_client_is_said_once_and_then_ignored() {
        let (client, worker) = pair();
        let (endings, ended) = Endings::new();
        let events = DirectEvents::start(worker, None, endings, &Scope::default()).unwrap();
        // Unread bytes make the kernel answer the close with a reset.
        drop(client);
        for event in 0..1000 {
            events.send(completion(event, 100_000));
        }
        assert!(matches!(ended.wait(), Ending::ClientLost { .. }));
        events.wait_for_room();
    }
}
