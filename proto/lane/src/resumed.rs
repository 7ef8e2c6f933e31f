//! A lane's stream that outlives its connections.
//!
//! The reading thread does not see a break: it waits inside of its read for the next connection, and continues with
//! the rest of its bytes. Senders hand each item to [`Kept`] before or while they write it. After a break, one thread
//! writes the missing items again ([`Resumed::write_again`]) before anything else is sent. A break is no error to
//! them, because a kept item is written again.
//!
//! Invariant: nothing is sent on a new connection before the missing items. After [`Resumed::stop_receiving`] has
//! returned a position, no byte is counted before the connection is installed that follows this stop. If another stop
//! comes first, no connection can follow this one.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::stream::Stream;
use crate::window::{Impossible, Received, Reserved, Window};

/// The stream. See the module.
pub struct Resumed {
    state: Mutex<ResumedState>,
    changed: Condvar,
    broke: Box<dyn Fn(u64) + Send + Sync>,
}

struct ResumedState {
    connection: Option<Arc<Stream>>,
    // Number of the newest connection that was installed.
    number: u64,
    // How often the receiving was stopped.
    stops: u64,
    // The other end's position on a new connection, on which nothing may be sent before the missing items.
    again_from: Option<u64>,
    received: Received,
    // A thread is in a read.
    is_reading: bool,
    is_closed: bool,
}

/// A stop of the receiving, which one connection may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// How much was received over all connections, in bytes.
    pub position: u64,
    /// The number of the connection that may follow.
    pub next: u64,
}

/// What a sender can do with the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The sender can send.
    Connected,
    /// The missing items must be written before.
    Behind,
    /// There is no connection.
    Broken,
    /// There is no connection, and there will be none.
    Closed,
}

impl std::fmt::Debug for Resumed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Resumed").field(&self.condition()).finish()
    }
}

impl Resumed {
    /// Makes the stream of a first connection, which has number 0. `broke` is called after each break with the number
    /// of the connection. At that time the next one may be installed already. The caller of a read or a send calls
    /// `broke`, so it may hold the lane's writing lock.
    #[must_use]
    pub fn new(first: Stream, broke: impl Fn(u64) + Send + Sync + 'static) -> Resumed {
        Resumed {
            state: Mutex::new(ResumedState {
                connection: Some(Arc::new(first)),
                number: 0,
                stops: 0,
                again_from: None,
                received: Received::default(),
                is_reading: false,
                is_closed: false,
            }),
            changed: Condvar::new(),
            broke: Box::new(broke),
        }
    }

    /// What a sender can do now.
    #[must_use]
    pub fn condition(&self) -> Condition {
        let state = self.state.lock();
        match (state.is_closed, &state.connection, state.again_from) {
            (true, ..) => Condition::Closed,
            (_, None, _) => Condition::Broken,
            (_, Some(_), Some(_)) => Condition::Behind,
            (_, Some(_), None) => Condition::Connected,
        }
    }

    /// The present connection, if there is one.
    #[must_use]
    pub fn present(&self) -> Option<Arc<Stream>> {
        self.state.lock().connection.clone()
    }

    /// Ends the stream for good. Waiting threads return.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let connection = state.connection.take();
        drop(state);
        self.changed.notify_all();
        if let Some(connection) = connection {
            connection.shut_down();
        }
    }

    /// Breaks the connection, if there is one. A new one can be installed.
    pub fn break_off(&self) {
        if let Some(connection) = self.present() {
            self.note_break(&connection);
        }
    }

    /// Breaks the connection and waits until no thread reads from it. `None` if the stream is closed, or the thread
    /// still reads after `limit`. No connection can follow an earlier stop any more.
    #[must_use]
    pub fn stop_receiving(&self, limit: Duration) -> Option<Stopped> {
        // Counted first. Otherwise the connection of an earlier stop could come while this one waits.
        let next = {
            let mut state = self.state.lock();
            state.stops += 1;
            state.stops
        };
        self.break_off();
        let deadline = Instant::now() + limit;
        let mut state = self.state.lock();
        while state.is_reading && !state.is_closed {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return None;
            }
        }
        let position = state.received.bytes();
        (!state.is_closed).then_some(Stopped { position, next })
    }

    /// Installs the connection that follows a stop. Its other end has received `position` bytes. Returns false, and
    /// shuts the connection down, if the stream is closed, or was stopped again.
    pub fn install(&self, after: Stopped, connection: Stream, position: u64) -> bool {
        let mut state = self.state.lock();
        if state.is_closed || after.next != state.stops || after.next == state.number {
            drop(state);
            connection.shut_down();
            return false;
        }
        state.connection = Some(Arc::new(connection));
        state.number = after.next;
        state.again_from = Some(position);
        drop(state);
        self.changed.notify_all();
        true
    }

    /// The number of received bytes that is to be acknowledged now: after each MiB, or `at_once`.
    #[must_use]
    pub fn due(&self, at_once: bool) -> Option<u64> {
        self.state.lock().received.due(at_once)
    }

    /// Calls `some` to read at least one byte, with the present connection or the next one. Returns 0 if the stream
    /// is closed.
    pub(crate) fn receive(
        &self,
        mut some: impl FnMut(&Stream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let Some(connection) = self.begin_receiving() else {
                return Ok(0);
            };
            let got = some(&connection);
            let mut state = self.state.lock();
            state.is_reading = false;
            match got {
                Ok(count) if count > 0 => {
                    state.received.add(count);
                    drop(state);
                    self.changed.notify_all();
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => {
                    drop(state);
                    self.note_break(&connection);
                }
            }
            self.changed.notify_all();
        }
    }

    fn begin_receiving(&self) -> Option<Arc<Stream>> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(connection) = &state.connection {
                let connection = Arc::clone(connection);
                state.is_reading = true;
                return Some(connection);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Calls `send` with the present connection. The caller has the lane's writing lock.
    ///
    /// # Errors
    /// The error of `send`, after which the connection is broken; `NotConnected` if nothing can be sent now.
    pub fn send<T>(&self, send: impl FnOnce(&Stream) -> io::Result<T>) -> io::Result<T> {
        let connection = {
            let state = self.state.lock();
            match (&state.connection, state.again_from) {
                (Some(connection), None) => Arc::clone(connection),
                _ => return Err(io::ErrorKind::NotConnected.into()),
            }
        };
        send(&connection).inspect_err(|_| self.note_break(&connection))
    }

    /// After a new connection was installed: writes the items again that the other end does not have. `put` writes
    /// an item without its first bytes, whose number it gets. The caller has the lane's writing lock. A further break
    /// is no error.
    ///
    /// # Errors
    /// [`Impossible`] if the other end's position is. The caller then ends the session.
    pub fn write_again<K>(
        &self,
        kept: &Kept<K>,
        mut put: impl FnMut(&Stream, &mut K, u64) -> io::Result<()>,
    ) -> Result<(), Impossible> {
        let (connection, position) = {
            let state = self.state.lock();
            match (&state.connection, state.again_from) {
                (Some(connection), Some(position)) => (Arc::clone(connection), position),
                _ => return Ok(()),
            }
        };
        let mut again = kept.0.lock().again_from(position)?;
        let written = again
            .items()
            .try_for_each(|(item, skip)| put(&connection, item, skip));
        kept.0.lock().put_back(again);
        kept.drop_acknowledged();
        match written {
            Ok(()) => {
                let mut state = self.state.lock();
                let is_present = (state.connection.as_ref())
                    .is_some_and(|present| Arc::ptr_eq(present, &connection));
                if is_present {
                    state.again_from = None;
                }
            }
            Err(_) => self.note_break(&connection),
        }
        Ok(())
    }

    // The thread that finds the break of the present connection reports it.
    fn note_break(&self, connection: &Arc<Stream>) {
        let mut state = self.state.lock();
        let is_present =
            (state.connection.as_ref()).is_some_and(|present| Arc::ptr_eq(present, connection));
        if !is_present {
            return;
        }
        state.connection = None;
        state.again_from = None;
        let number = state.number;
        drop(state);
        // Ends the read or write of another thread.
        connection.shut_down();
        self.changed.notify_all();
        (self.broke)(number);
    }
}

/// The items that a lane has sent and that the other end may not have. Items are dropped without a lock of the lane.
#[derive(Debug)]
pub struct Kept<K>(Mutex<Window<K>>);

impl<K> Default for Kept<K> {
    fn default() -> Kept<K> {
        Kept(Mutex::default())
    }
}

impl<K> Kept<K> {
    /// Reserves the bytes of an item. [`Reservation::keep`] follows after the item was written, or has failed.
    /// The caller has the lane's writing lock until then.
    pub fn reserve(&self, length: u64) -> Reservation<'_, K> {
        Reservation {
            kept: self,
            reserved: self.0.lock().reserve(length),
        }
    }

    /// Keeps the item whose reservation came last and was dropped, because the item was written in two steps. The
    /// caller has had the lane's writing lock at each step, and nothing was reserved in between.
    pub fn adopt(&self, length: u64, item: K) {
        let acknowledged = self.0.lock().adopt(length, item);
        drop(acknowledged);
    }

    /// Processes an acknowledgement.
    ///
    /// # Errors
    /// [`Impossible`] if so many bytes were not sent.
    pub fn acknowledge(&self, position: u64) -> Result<(), Impossible> {
        self.0.lock().acknowledge(position)?;
        self.drop_acknowledged();
        Ok(())
    }

    /// Number of bytes that the other end has not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> u64 {
        self.0.lock().unacknowledged()
    }

    /// Drops all items, because the lane has ended.
    pub fn clear(&self) {
        let items = self.0.lock().clear();
        drop(items);
    }

    fn drop_acknowledged(&self) {
        loop {
            // A statement of its own, so that the lock is free when the item is dropped.
            let item = self.0.lock().pop_acknowledged();
            if item.is_none() {
                return;
            }
        }
    }
}

/// The reserved bytes of one item.
#[must_use]
pub struct Reservation<'a, K> {
    kept: &'a Kept<K>,
    reserved: Reserved,
}

impl<K> Reservation<'_, K> {
    /// Keeps the item until the other end has its bytes.
    pub fn keep(self, item: K) {
        let acknowledged = self.kept.0.lock().keep(self.reserved, item);
        drop(acknowledged);
    }

    /// Gives the bytes back, because nothing of the item was written.
    pub fn release(self) {
        self.kept.0.lock().release(self.reserved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    const LIMIT: Duration = Duration::from_secs(10);

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    #[test]
    fn a_reader_goes_on_in_the_middle_of_its_bytes() {
        let message = bytes(100);
        for cut in 0..=message.len() {
            let (near, mut far) = pair();
            let stream = Arc::new(Stream::Resumed(Box::new(Resumed::new(near.into(), |_| {}))));
            let resumed = stream.resumed().unwrap();
            let reader = std::thread::spawn({
                let stream = Arc::clone(&stream);
                move || {
                    let (mut first, mut second) = ([0; 40], [0; 60]);
                    (&*stream).read_exact(&mut first).unwrap();
                    (&*stream).read_exact(&mut second).unwrap();
                    [&first[..], &second[..]].concat()
                }
            });
            far.write_all(&message[..cut]).unwrap();
            drop(far);
            // The reader notices the end after it has read what came before, or has all.
            while cut < message.len() && resumed.condition() != Condition::Broken {
                std::thread::yield_now();
            }
            if cut < message.len() {
                let stopped = resumed.stop_receiving(LIMIT).unwrap();
                assert_eq!(stopped.position, cut as u64);
                let (near, mut far) = pair();
                assert!(resumed.install(stopped, near.into(), 0));
                far.write_all(&message[cut..]).unwrap();
                assert_eq!(reader.join().unwrap(), message);
            } else {
                assert_eq!(reader.join().unwrap(), message);
            }
        }
    }

    #[test]
    fn what_is_missing_is_written_before_all_else() {
        let message = bytes(64);
        for have in 0..=message.len() {
            let (near, far) = pair();
            let resumed = Resumed::new(near.into(), |_| {});
            let kept = Kept::default();
            let put = |stream: &Stream, part: &[u8]| {
                let mut stream = stream;
                stream.write_all(part)
            };
            for part in message.chunks(16) {
                let reserved = kept.reserve(16);
                let _ = resumed.send(|stream| put(stream, part));
                reserved.keep(part.to_vec());
            }
            drop(far);
            let stopped = resumed.stop_receiving(LIMIT).unwrap();
            assert_eq!(resumed.condition(), Condition::Broken);
            let error = resumed.send(|stream| put(stream, b"x")).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotConnected);
            let (near, mut far) = pair();
            assert!(resumed.install(stopped, near.into(), have as u64));
            assert_eq!(resumed.condition(), Condition::Behind);
            assert!(resumed.send(|stream| put(stream, b"x")).is_err());
            let again =
                |stream: &Stream, item: &mut Vec<u8>, skip| put(stream, &item[skip as usize..]);
            resumed.write_again(&kept, again).unwrap();
            assert_eq!(resumed.condition(), Condition::Connected);
            resumed.send(|stream| put(stream, b"next")).unwrap();
            let mut got = vec![0; message.len() - have + 4];
            far.read_exact(&mut got).unwrap();
            assert_eq!(got, [&message[have..], b"next"].concat());
            kept.acknowledge(64).unwrap();
            assert!(kept.acknowledge(65).is_err());
        }
    }

    #[test]
    fn only_the_newest_stop_lets_a_connection_follow() {
        let broken = Arc::new(Mutex::new(Vec::new()));
        let resumed = Resumed::new(pair().0.into(), {
            let broken = Arc::clone(&broken);
            move |number| broken.lock().push(number)
        });
        let first = resumed.stop_receiving(LIMIT).unwrap();
        let second = resumed.stop_receiving(LIMIT).unwrap();
        let (near, _far) = pair();
        // Otherwise its bytes would make the position of the second stop untrue.
        assert!(!resumed.install(first, near.into(), 0));
        assert!(resumed.install(second, pair().0.into(), 0));
        // Each stop has one connection, also if that one breaks.
        resumed.break_off();
        assert!(!resumed.install(second, pair().0.into(), 0));
        assert_eq!(*broken.lock(), [0, 2]);
    }

    #[test]
    fn a_closed_stream_lets_its_threads_go() {
        let (near, _far) = pair();
        let stream = Arc::new(Stream::Resumed(Box::new(Resumed::new(near.into(), |_| {}))));
        let reader = std::thread::spawn({
            let stream = Arc::clone(&stream);
            move || (&*stream).read(&mut [0; 4]).unwrap()
        });
        stream.shut_down();
        assert_eq!(reader.join().unwrap(), 0);
        let resumed = stream.resumed().unwrap();
        let stopped = Stopped {
            position: 0,
            next: 0,
        };
        assert!(!resumed.install(stopped, pair().0.into(), 0));
        assert_eq!(resumed.stop_receiving(LIMIT), None);
    }
}
