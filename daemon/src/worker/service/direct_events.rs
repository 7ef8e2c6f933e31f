//! Events over the direct carrier. The thread that has an event writes it, if the socket takes it at once.
//!
//! If the session outlives its connections, sent frames are kept until the client acknowledges them
//! ([`Window`]). A new connection first gets those that the client has not handled.
//!
//! Invariant: whole frames leave in the order of the [`EventSink::send`] calls, and `send` never waits for
//! the client. At most one thread writes at a time. Other threads' frames wait in one buffer, which that
//! thread writes on its next turn. When the socket is full, the `events` thread waits for it and continues.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use causeway_proto::command::EventBatch;
use causeway_proto::frame::{self, PREFIX};
use causeway_security::{Opener, Records};
use parking_lot::{Condvar, Mutex, MutexGuard};
use prost::Message;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::carrier::{Arrived, Carrier, GIVE_UP, GIVE_UP_IN_HOST, HIGH, LOW, Losses};
use super::ending::Ending;
use super::window::{BadNumber, Window};
use crate::worker::connection::EventSink;
use crate::worker::threads::Scope;

/// How many batches a calling thread writes before it leaves the rest to the `events` thread.
const TURNS: usize = 4;
/// A buffer larger than this is not kept for the next batch.
const KEEP: usize = 1 << 20;
/// Most bytes of kept frames that are written again in one turn.
const AGAIN: usize = 1 << 20;
const CONNECTION: &str = "commands";

pub(super) struct DirectEvents {
    losses: Box<dyn Losses>,
    /// With more bytes than this that wait or are not acknowledged, the client is given up.
    most: usize,
    state: Mutex<ChannelState>,
    /// Wakes the `events` thread to continue writing.
    stuck: Condvar,
    /// Signals that there is room again, or that the connection is lost.
    room: Condvar,
    /// Signals a new connection to the thread that reads commands.
    arrived: Condvar,
}

#[derive(Default)]
struct ChannelState {
    /// The writing half; `None` while there is no connection.
    line: Option<Arc<Writing>>,
    /// Number of the newest connection.
    number: u64,
    /// The reading half of a new connection, until the reading thread takes it.
    reading: Option<Reading>,
    /// The sent frames that the client has not acknowledged, if the session outlives its connections.
    window: Option<Window>,
    /// Number of the next kept frame that the newest connection gets again.
    again: u64,
    /// Number of the last frame in `waiting`.
    last: u64,
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

/// The writing half of a connection.
struct Writing {
    socket: TcpStream,
    /// Encrypts outgoing records; only with TLS.
    records: Option<Arc<Records>>,
}

/// The reading half of a connection.
pub(super) struct Reading {
    pub(super) socket: TcpStream,
    pub(super) opener: Option<Opener>,
    /// Number of the connection.
    pub(super) number: u64,
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
    /// Number of the connection to which the bytes belong.
    number: u64,
}

impl DirectEvents {
    /// Starts the `events` thread. The first connection comes by [`Carrier::switch`]. `keeps`: the session outlives
    /// its connections.
    pub(super) fn start(
        losses: impl Losses + 'static,
        keeps: bool,
        scope: &Scope,
    ) -> io::Result<Arc<DirectEvents>> {
        let events = Arc::new(DirectEvents {
            losses: Box::new(losses),
            most: match scope.is_hosted() {
                true => GIVE_UP_IN_HOST,
                false => GIVE_UP,
            },
            state: Mutex::new(ChannelState {
                window: keeps.then(Window::default),
                again: 1,
                ..ChannelState::default()
            }),
            stuck: Condvar::new(),
            room: Condvar::new(),
            arrived: Condvar::new(),
        });
        let own = Arc::clone(&events);
        scope.try_spawn("events", move || own.run())?;
        Ok(events)
    }

    /// Begins behind the event batches of the worker that has parked the session, which the client has handled up to
    /// `number`.
    pub(super) fn begin_behind(&self, number: u64) {
        let mut state = self.state.lock();
        state.window = Some(Window::behind(number));
        state.last = number;
        state.again = number + 1;
    }

    /// Waits for a connection that is newer than the last one that this has returned. Returns `None` if the session
    /// ends before.
    pub(super) fn next_connection(&self) -> Option<Reading> {
        let mut state = self.state.lock();
        loop {
            match state.reading.take() {
                Some(reading) => return Some(reading),
                None if state.is_closed => return None,
                None => self.arrived.wait(&mut state),
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
            // The client gets whole frames again over its new connection.
            if out.number != state.number {
                out.clear(state.number);
            }
            let fresh = out.sent == out.bytes.len();
            let Some(line) = state.line.clone() else {
                state.rest(out);
                return Outcome::Done;
            };
            if fresh {
                out.clear(state.number);
                if !state.take(&mut out.bytes) {
                    state.rest(out);
                    return Outcome::Done;
                }
                state.in_hand = out.bytes.len();
            }
            drop(state);
            // Only one thread at a time is here, so records leave in the order in which they are sealed.
            let sealed = match &line.records {
                Some(records) if fresh => out.seal(records),
                _ => Ok(()),
            };
            let wrote = sealed.and_then(|()| out.write(&line.socket));
            state = self.state.lock();
            state.in_hand = out.bytes.len() - out.sent;
            if state.backlog() <= LOW {
                self.room.notify_all();
            }
            match wrote {
                // The connection was replaced while this thread wrote to it.
                _ if out.number != state.number => {}
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.lose(state, error);
                    return Outcome::Done;
                }
            }
        }
        state.left_over = out;
        state.writer = Writer::EventsThread;
        Outcome::Stuck
    }

    /// Handles that the connection does not take events. If the session outlives it, they wait for the next one.
    fn lose(&self, mut state: MutexGuard<'_, ChannelState>, error: io::Error) {
        let number = state.number;
        if state.window.is_some() {
            // The thread that reads commands may be inside of the driver. So the other connections end, too.
            if let Some(line) = state.line.take() {
                let _ = line.socket.shutdown(Shutdown::Both);
            }
            state.rest(Outgoing::default());
            state.left_over = Outgoing::default();
            drop(state);
        } else {
            self.drop_all(state);
        }
        self.losses.lost(
            number,
            Ending::ClientLost {
                connection: CONNECTION,
                error,
            },
        );
    }

    /// Drops all events, because the session ends.
    fn drop_all(&self, mut state: MutexGuard<'_, ChannelState>) {
        *state = ChannelState {
            lost: true,
            is_closed: state.is_closed,
            number: state.number,
            line: state.line.take(),
            ..ChannelState::default()
        };
        drop(state);
        self.room.notify_all();
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
            if let Some(line) = state.line.clone() {
                MutexGuard::unlocked(&mut state, || wait_until_writable(&line.socket));
            }
            // One turn at a time: if the client is slow, the socket is soon full again.
            self.turns(state, out, 1);
        }
    }
}

fn wait_until_writable(socket: &TcpStream) {
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    // An error of `poll` or a hang-up shows at the write that follows.
    while rustix::event::poll(&mut fds, None) == Err(Errno::INTR) {}
}

enum Outcome {
    Done,
    /// The `events` thread has to send the rest.
    Stuck,
}

impl ChannelState {
    /// Returns the bytes that wait, or that were sent and may have to be sent again.
    fn backlog(&self) -> usize {
        let sent = self.window.as_ref().map_or(self.in_hand, Window::bytes);
        self.waiting.len() + sent
    }

    fn append(&mut self, mut batch: EventBatch) -> Result<(), frame::FrameTooLarge> {
        batch.number = self.last + 1;
        let length = batch.encoded_len();
        let prefix = frame::prefix(length)?;
        self.last += 1;
        self.waiting.reserve(PREFIX + length);
        self.waiting.extend_from_slice(&prefix);
        batch
            .encode(&mut self.waiting)
            .expect("a Vec grows as encoding needs it");
        Ok(())
    }

    /// Puts the next frames into `out`, which is empty. Returns whether there are any.
    fn take(&mut self, out: &mut Vec<u8>) -> bool {
        if let Some(window) = &mut self.window
            && self.again <= window.last()
        {
            self.again = window.copy(self.again, AGAIN, out);
            // The client may have got the rest over the connection before.
            if !out.is_empty() {
                return true;
            }
        }
        if self.waiting.is_empty() {
            return false;
        }
        std::mem::swap(out, &mut self.waiting);
        if let Some(window) = &mut self.window {
            window.keep(out);
            self.again = window.last() + 1;
        }
        true
    }

    /// Notes that no thread writes, and keeps the memory of a written buffer for the next frames.
    fn rest(&mut self, out: Outgoing) {
        self.writer = Writer::Nobody;
        self.in_hand = 0;
        let mut written = out.bytes;
        written.clear();
        if self.waiting.is_empty()
            && self.waiting.capacity() < written.capacity()
            && written.capacity() <= KEEP
        {
            self.waiting = written;
        }
    }
}

impl Outgoing {
    /// Forgets the bytes, and makes this belong to the connection with this number.
    fn clear(&mut self, number: u64) {
        self.bytes.clear();
        self.sent = 0;
        self.number = number;
    }

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
        if let Err(error) = state.append(batch) {
            drop(state);
            self.losses.end(Ending::Broken(error.to_string()));
            return;
        }
        if state.backlog() > self.most {
            self.drop_all(state);
            self.losses.end(Ending::ClientLost {
                connection: CONNECTION,
                error: io::Error::other("the client reads no events from its command connection"),
            });
            return;
        }
        if state.writer != Writer::Nobody || state.line.is_none() {
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

    fn wait_for_room(&self) {
        let mut state = self.state.lock();
        if state.backlog() > HIGH {
            while state.backlog() > LOW && !state.lost {
                self.room.wait(&mut state);
            }
        }
    }

    fn violated(&self, what: String) {
        self.losses.end(Ending::Violation(what));
    }
}

impl Carrier for DirectEvents {
    fn switch(&self, arrived: Arrived) {
        let (socket, tls) = arrived.line.into_parts();
        let (records, opener) = tls.unzip();
        let own = match socket.try_clone() {
            Ok(socket) => socket,
            Err(error) => {
                // The client sees the close, and connects again.
                let _ = socket.shutdown(Shutdown::Both);
                self.losses.lost(
                    arrived.number,
                    Ending::ClientLost {
                        connection: CONNECTION,
                        error,
                    },
                );
                return;
            }
        };
        let mut state = self.state.lock();
        if state.is_closed || state.lost || arrived.number <= state.number {
            return;
        }
        match state.window.as_mut().map(|of| of.resume(arrived.position)) {
            None => {}
            Some(Ok(again)) => state.again = again,
            Some(Err(wrong)) => {
                drop(state);
                self.losses.end(Ending::Violation(wrong.to_string()));
                return;
            }
        }
        state.number = arrived.number;
        let line = Arc::new(Writing {
            socket: own,
            records,
        });
        if let Some(before) = state.line.replace(line) {
            // The `events` thread may wait until it is writable.
            let _ = before.socket.shutdown(Shutdown::Both);
        }
        state.reading = Some(Reading {
            socket,
            opener,
            number: arrived.number,
        });
        // A thread that writes to the connection before sees that there is a new one. If none writes, the `events`
        // thread does.
        if state.writer == Writer::Nobody {
            state.writer = Writer::EventsThread;
        }
        drop(state);
        self.stuck.notify_one();
        self.room.notify_all();
        self.arrived.notify_all();
    }

    fn heard(&self) -> Option<u64> {
        let state = self.state.lock();
        let window = state.window.as_ref()?;
        let is_all = state.waiting.is_empty() && window.last() == state.last && window.is_heard();
        is_all.then_some(state.last)
    }

    fn last(&self) -> u64 {
        self.state.lock().last
    }

    fn acknowledge(&self, number: u64) -> Result<(), BadNumber> {
        let mut state = self.state.lock();
        let Some(window) = &mut state.window else {
            return Ok(());
        };
        window.acknowledge(number)?;
        if state.backlog() <= LOW {
            self.room.notify_all();
        }
        Ok(())
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.lost = true;
        drop(state);
        self.stuck.notify_all();
        self.room.notify_all();
        self.arrived.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::service::ending::Endings;
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

    fn connected(worker: TcpStream, endings: Endings) -> Arc<DirectEvents> {
        let events = DirectEvents::start(endings, false, &Scope::default()).unwrap();
        events.switch(arrived(worker, 1, 0));
        events
    }

    fn arrived(socket: TcpStream, number: u64, position: u64) -> Arrived {
        Arrived {
            line: socket.into(),
            number,
            position,
        }
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
        let events = connected(worker, Endings::new().0);
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
        let events = connected(worker, Endings::new().0);
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
        let events = connected(worker, endings);
        // Unread bytes make the kernel answer the close with a reset.
        drop(client);
        for event in 0..1000 {
            events.send(completion(event, 100_000));
        }
        assert!(matches!(ended.wait(), Ending::ClientLost { .. }));
        events.wait_for_room();
    }

    /// Counts the connections that are lost.
    struct Lost(std::sync::mpsc::Sender<Option<u64>>);

    impl Losses for Lost {
        fn lost(&self, number: u64, _: Ending) {
            self.0.send(Some(number)).unwrap();
        }

        fn end(&self, _: Ending) {
            self.0.send(None).unwrap();
        }
    }

    #[test]
    fn a_new_connection_gets_what_the_client_has_not_handled() {
        let (tell, lost) = std::sync::mpsc::channel();
        let events = DirectEvents::start(Lost(tell), true, &Scope::default()).unwrap();
        let mut last = 0;
        for connection in 1..20u64 {
            let (mut client, worker) = pair();
            events.switch(arrived(worker, connection, last));
            // More than the socket takes, so that the connection ends inside of a frame.
            for event in 0..30 {
                events.send(completion(event, 100_000));
            }
            for _ in 0..20 {
                let batch = next(&mut client);
                assert_eq!(batch.number, last + 1);
                last += 1;
            }
            events.acknowledge(last - 10).unwrap();
            assert_eq!(events.next_connection().unwrap().number, connection);
        }
        assert!(lost.try_iter().all(|number| number.is_some()));
        // An older connection changes nothing.
        let (_client, worker) = pair();
        events.switch(arrived(worker, 3, 0));
        let (mut client, worker) = pair();
        events.switch(arrived(worker, 20, last));
        assert_eq!(next(&mut client).number, last + 1);
        events.acknowledge(last).unwrap();
        assert!(events.acknowledge(last - 1).is_err());
        assert!(events.acknowledge(1 << 40).is_err());
    }

    #[test]
    fn an_acknowledgement_may_overtake_what_is_sent_again() {
        let (tell, _lost) = std::sync::mpsc::channel();
        let events = DirectEvents::start(Lost(tell), true, &Scope::default()).unwrap();
        // More than the socket takes.
        const EACH: usize = 8 << 20;
        let (mut before, worker) = pair();
        events.switch(arrived(worker, 1, 0));
        (0..3).for_each(|event| events.send(completion(event, EACH)));
        (0..3).for_each(|_| drop(next(&mut before)));
        let (mut client, worker) = pair();
        events.switch(arrived(worker, 2, 0));
        // The client had handled nothing when it said so, and reads the rest from the connection before.
        events.acknowledge(3).unwrap();
        events.send(completion(3, 1));
        while next(&mut client).number != 4 {}
    }

    #[test]
    fn commands_wait_for_acknowledgements_and_for_nothing_else() {
        let (tell, _lost) = std::sync::mpsc::channel();
        let events = DirectEvents::start(Lost(tell), true, &Scope::default()).unwrap();
        let (mut client, worker) = pair();
        events.switch(arrived(worker, 1, 0));
        const EACH: usize = 1 << 20;
        std::thread::scope(|scope| {
            let reading = scope.spawn(move || (0..70).for_each(|_| drop(next(&mut client))));
            (0..70).for_each(|event| events.send(completion(event, EACH)));
            reading.join().unwrap();
            // The client has read everything, and has acknowledged nothing.
            assert!(events.state.lock().backlog() > HIGH);
            let waiting = scope.spawn(|| events.wait_for_room());
            events.acknowledge(10).unwrap();
            assert!(!waiting.is_finished());
            events.acknowledge(70).unwrap();
            waiting.join().unwrap();
        });
        assert_eq!(events.state.lock().backlog(), 0);
    }

    #[test]
    fn a_client_cannot_have_what_was_not_sent() {
        let (tell, lost) = std::sync::mpsc::channel();
        let events = DirectEvents::start(Lost(tell), true, &Scope::default()).unwrap();
        let (_client, worker) = pair();
        events.switch(arrived(worker, 1, 1));
        assert_eq!(lost.recv().unwrap(), None);
    }
}
