//! Events over the direct carrier: written by the thread that has them, when the socket takes them.
//!
//! Invariant: frames leave in the order of the [`EventSink::send`] calls, whole; `send` never waits
//! for the client. At any moment at most one thread writes; what comes meanwhile waits in one
//! buffer and leaves with that thread's next turn. When the socket is full, the `events` thread waits
//! for it and goes on.

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
use super::named;
use crate::worker::connection::EventSink;

/// With more than this waiting, no further commands are read.
const HIGH: usize = 64 << 20;
/// With less than this, they are again.
const LOW: usize = 32 << 20;
/// With more than this, the client is given up: it takes nothing, and what it asked for is still
/// being made.
const GIVE_UP: usize = 512 << 20;
/// Turns that a calling thread takes before it leaves the rest to the `events` thread.
const TURNS: usize = 4;
/// A buffer that grew beyond this is not kept for the next batch.
const KEEP: usize = 1 << 20;

pub(super) struct DirectEvents {
    socket: TcpStream,
    /// With TLS, what seals what leaves.
    records: Option<Arc<Records>>,
    endings: Endings,
    state: Mutex<State>,
    /// The `events` thread is to go on.
    stuck: Condvar,
    /// There is room again, or none is needed any more.
    room: Condvar,
}

#[derive(Default)]
struct State {
    /// Frames that nobody has begun to write.
    waiting: Vec<u8>,
    /// Bytes that the writing thread still has in its hands.
    in_hand: usize,
    writer: Writer,
    /// What the writing thread handed over to the `events` thread.
    left_over: Outgoing,
    lost: bool,
}

#[derive(Default, PartialEq, Eq)]
enum Writer {
    #[default]
    Nobody,
    /// A thread inside [`DirectEvents::turns`].
    Somebody,
    /// The `events` thread, or it is about to.
    EventsThread,
}

/// Bytes on their way, and how many of them have left.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl DirectEvents {
    /// Starts with a connection's socket; the reading half stays with the caller.
    pub(super) fn start(
        socket: TcpStream,
        records: Option<Arc<Records>>,
        endings: Endings,
    ) -> io::Result<Arc<DirectEvents>> {
        let events = Arc::new(DirectEvents {
            socket,
            records,
            endings,
            state: Mutex::default(),
            stuck: Condvar::new(),
            room: Condvar::new(),
        });
        let own = Arc::clone(&events);
        named("events", move || own.run())?;
        Ok(events)
    }

    /// Returns at once while little waits; else when the client has taken enough.
    pub(super) fn wait_for_room(&self) {
        let mut state = self.state.lock();
        if state.backlog() > HIGH {
            while state.backlog() > LOW && !state.lost {
                self.room.wait(&mut state);
            }
        }
    }

    /// Writes what waits until nothing does, the socket is full, or the turns are over.
    fn turns<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
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
            // One thread at a time is here, so records leave in the order in which they are sealed.
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

    fn lose(&self, state: &mut State, error: io::Error) {
        *state = State {
            lost: true,
            ..State::default()
        };
        self.room.notify_all();
        self.endings.end(Ending::ClientLost {
            connection: "commands",
            error,
        });
    }

    /// The `events` thread.
    fn run(&self) {
        loop {
            let mut state = self.state.lock();
            while state.writer != Writer::EventsThread {
                self.stuck.wait(&mut state);
            }
            let out = std::mem::take(&mut state.left_over);
            MutexGuard::unlocked(&mut state, || self.wait_until_writable());
            // One turn at a time: it is stuck again at once when the client is slow.
            self.turns(state, out, 1);
        }
    }

    fn wait_until_writable(&self) {
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
        // An error of poll itself, or a hang-up, shows at the write that follows.
        while rustix::event::poll(&mut fds, None) == Err(Errno::INTR) {}
    }
}

enum Outcome {
    Done,
    /// The rest is the `events` thread's.
    Stuck,
}

impl State {
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

    /// Keeps a written buffer's memory for the next frames.
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

    /// Whether all of it has left; `false` when the socket is full.
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
        if state.backlog() > GIVE_UP {
            self.lose(&mut state, io::Error::other("the client takes no events"));
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
        let events = DirectEvents::start(worker, None, Endings::new().0).unwrap();
        // Far more than both socket buffers take, before the client reads anything.
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
        let events = DirectEvents::start(worker, None, Endings::new().0).unwrap();
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
        let events = DirectEvents::start(worker, None, endings).unwrap();
        // Unread bytes make the kernel answer the close with a reset.
        drop(client);
        for event in 0..1000 {
            events.send(completion(event, 100_000));
        }
        assert!(matches!(ended.wait(), Ending::ClientLost { .. }));
        events.wait_for_room();
    }
}
