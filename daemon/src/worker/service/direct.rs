//! The direct carrier: frames over the socket, read and applied by one thread.
//!
//! Before that thread sleeps, it polls for the next frame for a while ([`SpinBudget`]). A client that waits
//! for each command sends the next one within microseconds of the last completion.
//!
//! Events travel the other way, sent by the thread that has them; see [`DirectEvents`].

use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{Command, CommandBatch};
use causeway_proto::frame::{self, PREFIX};
use causeway_proto::spin_budget::SpinBudget;
use causeway_security::Opener;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::batch;
use super::carrier::{self, Arrived, Carrier};
use super::direct_events::{DirectEvents, Reading};
use super::ending::Ending;
use super::stage::{Commands, Stage};
use crate::worker::connection::EventSink;
use crate::worker::session::Session;
use crate::worker::threads::Scope;

/// Size of the read buffer in bytes. Longer frames get memory of their own.
const STAGING: usize = 64 << 10;
/// Capacity for commands that is kept between batches: about as many launches as fit in a
/// frame that is not long.
const KEEP_COMMANDS: usize = 2048;
const CONNECTION: &str = "commands";

/// Carries commands to the session that `begin` starts, until the session ends. If the session outlives its
/// connections, the next one follows when one ends.
pub(super) fn carry(
    first: Arrived,
    stage: &Arc<Stage>,
    arrivals: &std::sync::mpsc::Receiver<Commands>,
    scope: &Scope,
    begin: impl FnOnce(Arc<dyn EventSink>) -> Arc<Session>,
) -> Ending {
    let events = match DirectEvents::start(stage.losses(), stage.resumes(), scope) {
        Ok(events) => events,
        Err(error) => {
            return Ending::Broken(format!("cannot set up the command connection: {error}"));
        }
    };
    match carrier::begins_behind(stage, &first) {
        Ok(Some(number)) => events.begin_behind(number),
        Ok(None) => {}
        Err(ending) => return ending,
    }
    // Also when this thread unwinds. In a worker of its own, events still leave until the process exits.
    let _closing = scope.is_hosted().then(|| Closing(Arc::clone(&events)));
    events.switch(first);
    stage.carries(Arc::<DirectEvents>::clone(&events));
    for later in arrivals.try_iter() {
        events.switch(later.arrived);
    }
    let session = begin(Arc::<DirectEvents>::clone(&events));
    let mut spin_budget = SpinBudget::new();
    let next = || {
        let reading = events.next_connection()?;
        Some((reading.number, reading))
    };
    carrier::read_all(stage, &session, next, |reading| {
        read(reading, &mut spin_budget, &events, &session, stage)
    })
}

/// Applies the commands of one connection until it ends. Returns how it ended.
fn read(
    from: Reading,
    spin_budget: &mut SpinBudget,
    events: &DirectEvents,
    session: &Session,
    stage: &Arc<Stage>,
) -> Ending {
    let patient = Patient {
        socket: from.socket,
        spin_budget,
    };
    let mut frames = Frames::new(Source {
        patient,
        opener: from.opener,
    });
    loop {
        // Back-pressure: while many events wait for a slow client, its commands are not read.
        events.wait_for_room();
        match frames.next() {
            Ok(Some(mut batch)) => {
                session.received(frames.length);
                if let Some(ending) = carrier::apply(stage, session, &mut batch) {
                    return ending;
                }
                frames.give_back(batch.commands);
            }
            Ok(None) => return Ending::ClientClosed,
            Err(Unreadable::Io(error)) => {
                return Ending::ClientLost {
                    connection: CONNECTION,
                    error,
                };
            }
            Err(Unreadable::Frame(what)) => return Ending::Violation(what),
        }
    }
}

/// Closes the way of the events when the carrier ends.
struct Closing(Arc<DirectEvents>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A socket whose reader polls for a while before it sleeps, and meanwhile yields its core to other threads.
struct Patient<'a> {
    socket: TcpStream,
    spin_budget: &'a mut SpinBudget,
}

impl Read for Patient<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut look = || match rustix::net::recv(&self.socket, &mut *into, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => None,
            read => Some(read.map(|(count, _)| count).map_err(io::Error::from)),
        };
        if let Some(read) = look() {
            // Nothing was waited for, so `SpinBudget` has nothing to learn.
            return read;
        }
        let mut patient = self.spin_budget.begin();
        let mut found = None;
        while found.is_none() && patient.goes_on() {
            found = look();
        }
        let was_found = found.is_some();
        let read = found.unwrap_or_else(|| self.socket.read(into));
        patient.end(was_found);
        read
    }
}

/// The bytes of frames, decrypted if the connection has TLS.
struct Source<'a> {
    patient: Patient<'a>,
    opener: Option<Opener>,
}

impl Read for Source<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Source { patient, opener } = self;
        match opener {
            None => patient.read(into),
            Some(opener) => opener.read(into, |sealed| patient.read(sealed)),
        }
    }
}

/// Why there is no next batch.
#[derive(Debug)]
enum Unreadable {
    Io(io::Error),
    Frame(String),
}

/// Reads frames off a stream. Small frames, several per read, are decoded in the buffer. A large frame is
/// read into its own memory, which its payloads then share.
struct Frames<R> {
    from: R,
    staging: Box<[u8]>,
    start: usize,
    end: usize,
    /// Length of the last frame, with its prefix.
    length: usize,
    // Spare memory for the next batch's commands.
    spare: Vec<Command>,
}

impl<R: Read> Frames<R> {
    fn new(from: R) -> Frames<R> {
        Frames {
            from,
            staging: vec![0; STAGING].into_boxed_slice(),
            start: 0,
            end: 0,
            length: 0,
            spare: Vec::new(),
        }
    }

    /// Takes back the commands of an applied batch, to reuse their memory.
    fn give_back(&mut self, commands: Vec<Command>) {
        if commands.capacity() <= KEEP_COMMANDS {
            self.spare = commands;
        }
    }

    /// Reads the next batch; `None` when the client closed the connection between two frames.
    fn next(&mut self) -> Result<Option<CommandBatch>, Unreadable> {
        if !self.fill(PREFIX)? {
            return Ok(None);
        }
        let prefix = std::array::from_fn(|i| self.staging[self.start + i]);
        let length = frame::length(prefix).map_err(|e| Unreadable::Frame(e.to_string()))?;
        self.start += PREFIX;
        self.length = PREFIX + length;
        let decoded = if length <= STAGING {
            if length > 0 && !self.fill(length)? {
                return Err(Unreadable::Io(io::ErrorKind::UnexpectedEof.into()));
            }
            let at = self.start;
            self.start += length;
            batch::decode(
                &self.staging[at..at + length],
                std::mem::take(&mut self.spare),
            )
        } else {
            let spare = std::mem::take(&mut self.spare);
            batch::decode(self.large(length)?, spare)
        };
        decoded
            .map(Some)
            .map_err(|error| Unreadable::Frame(error.to_string()))
    }

    /// Ensures that the buffer has at least `wanted` bytes. Returns false if the stream ended
    /// before the first of them.
    fn fill(&mut self, wanted: usize) -> Result<bool, Unreadable> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start + wanted > STAGING {
            self.staging.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < wanted {
            match self.from.read(&mut self.staging[self.end..]) {
                Ok(0) if self.start == self.end => return Ok(false),
                Ok(0) => return Err(Unreadable::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => self.end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Unreadable::Io(error)),
            }
        }
        Ok(true)
    }

    fn large(&mut self, length: usize) -> Result<Bytes, Unreadable> {
        let mut bytes = Vec::with_capacity(length);
        let staged = (self.end - self.start).min(length);
        bytes.extend_from_slice(&self.staging[self.start..self.start + staged]);
        self.start += staged;
        let missing = length - staged;
        let read = self
            .from
            .by_ref()
            .take(missing as u64)
            .read_to_end(&mut bytes)
            .map_err(Unreadable::Io)?;
        if read == missing {
            Ok(bytes.into())
        } else {
            Err(Unreadable::Io(io::ErrorKind::UnexpectedEof.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::command::{Command, CreateBuffer, command::Kind};
    use proptest::prelude::*;
    use prost::Message;

    /// Returns its bytes in pieces of the given sizes, repeatedly.
    struct Pieces {
        bytes: io::Cursor<Vec<u8>>,
        sizes: Vec<usize>,
        turn: usize,
    }

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let size = self.sizes[self.turn % self.sizes.len()].min(into.len());
            self.turn += 1;
            self.bytes.read(&mut into[..size])
        }
    }

    fn frame(first: u64, payload: usize) -> Vec<u8> {
        let kind = Kind::CreateBuffer(CreateBuffer {
            buffer: first,
            contents: vec![first as u8; payload].into(),
            ..CreateBuffer::default()
        });
        let batch = CommandBatch {
            commands: vec![Command { kind: Some(kind) }],
            first,
            ..CommandBatch::default()
        }
        .encode_to_vec();
        [&frame::prefix(batch.len()).unwrap()[..], &batch[..]].concat()
    }

    proptest! {
        #[test]
        fn frames_come_out_whole_however_they_are_cut(
            payloads in prop::collection::vec(prop_oneof![0..100usize, 60_000..70_000usize, 200_000..200_001usize], 1..6),
            sizes in prop::collection::vec(1..100_000usize, 1..5),
        ) {
            let bytes = payloads.iter().enumerate().flat_map(|(i, &n)| frame(i as u64 + 1, n)).collect();
            let mut frames = Frames::new(Pieces { bytes: io::Cursor::new(bytes), sizes, turn: 0 });
            for (i, &n) in payloads.iter().enumerate() {
                let batch = frames.next().unwrap().unwrap();
                prop_assert_eq!(batch.first, i as u64 + 1);
                let Some(Kind::CreateBuffer(create)) = &batch.commands[0].kind else { panic!() };
                prop_assert_eq!(&create.contents[..], &vec![batch.first as u8; n][..]);
            }
            prop_assert!(frames.next().unwrap().is_none());
        }

        #[test]
        fn garbage_ends_in_an_error_or_a_batch(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut frames = Frames::new(&bytes[..]);
            while let Ok(Some(_)) = frames.next() {}
        }
    }

    #[test]
    fn a_huge_length_is_refused_before_memory_is_taken() {
        let mut frames = Frames::new(&[0xff; 64][..]);
        assert!(matches!(frames.next(), Err(Unreadable::Frame(_))));
    }

    #[test]
    fn a_cut_frame_is_a_loss_and_no_end() {
        let whole = frame(1, 10);
        for cut in 1..whole.len() {
            let mut frames = Frames::new(&whole[..cut]);
            assert!(
                matches!(frames.next(), Err(Unreadable::Io(_))),
                "cut at {cut}"
            );
        }
        assert!(Frames::new(&whole[..0]).next().unwrap().is_none());
    }
}
