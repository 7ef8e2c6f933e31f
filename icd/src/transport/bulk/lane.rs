//! A bulk connection: its two threads, and sending on it from other threads.
//!
//! Invariant: header and bytes of an item are written together, under the lane's lock.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use causeway_lane::{Pace, Packer, Stream, Unpacker};
use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::preamble::Purpose;
use causeway_proto::socket::stays_inside;
use causeway_proto::status::WireError;
use parking_lot::Mutex;

use super::memory::Scratch;
use super::table::{Chunk, Destination, Outcome};
use super::{Bulk, EventId, Guard, Item, Owner, relay};
use crate::config::Compression;
use crate::thread::Stack;
use crate::transport::gauge::Direction;
use crate::transport::socket::plain;
use crate::transport::thread;

/// Time limit for each lane's connection and handshake.
const OPEN_LIMIT: Duration = Duration::from_secs(5);
/// Buffer size for discarding unwanted bytes.
const THROW_AWAY: usize = 64 << 10;

/// A bulk connection.
pub(super) struct Lane {
    stream: Stream,
    writing: Mutex<Writing>,
}

/// State of the thread that is currently writing.
struct Writing {
    scratch: Scratch,
    pace: Pace,
    // `None` if nothing is compressed.
    packer: Option<Packer>,
}

impl Lane {
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Whether a thread is writing right now.
    pub(super) fn is_busy(&self) -> bool {
        self.writing.is_locked()
    }

    /// Sends a chunk on a thread that is not the lane's. An error fails the session. The results are
    /// reported as on a lane's thread, where code must not wait for room on a connection.
    pub(super) fn send_now(&self, owner: &dyn Owner, chunk: Chunk) {
        let _guard = Guard(owner);
        let mut writing = self.writing.lock();
        let sent = send(owner, &self.stream, chunk, &mut writing);
        drop(writing);
        // The lane is unlocked here, because callbacks must not run under a transport lock.
        match sent {
            Ok((event, outcome)) => thread::as_ours(|| conclude(owner, event, outcome)),
            Err(error) => thread::as_ours(|| owner.fail(plain(&error))),
        }
    }
}

/// Opens the session's lanes on a separate thread. The first lane must open. The session does without
/// further lanes that the node refuses. With `ahead`, no transfer needs the lanes yet, and a failure is
/// no error until one does.
pub(super) fn open_all(owner: &Arc<dyn Owner>, ahead: bool) {
    let opener = Arc::clone(owner);
    let started = thread::spawn("cw-bulk-open", Stack::Small, move || {
        if !open_shared(&opener) {
            open_tcp(&opener, ahead);
        }
    });
    if let Err(error) = started {
        if ahead {
            tracing::debug!(%error, "cannot start a thread for bulk connections ahead of need");
            if owner.bulk().spare_lane(0) {
                return;
            }
            // A transfer has started meanwhile, so try again.
            return open_all(owner, false);
        }
        owner.fail(format!(
            "the client cannot start a thread for bulk connections: {error}"
        ));
    }
}

fn open_tcp(owner: &Arc<dyn Owner>, mut ahead: bool) {
    let mut lane = 0;
    while lane < owner.bulk().lane_count {
        match open(owner, lane as u8) {
            Ok(()) => lane += 1,
            Err(WireError::Refused { reason, .. }) if lane > 0 => {
                tracing::debug!(lane, reason, "bulk lane refused");
                return;
            }
            Err(error) if std::mem::take(&mut ahead) => {
                tracing::debug!(lane, %error, "cannot open a bulk connection ahead of need");
                if owner.bulk().spare_lane(lane) {
                    return;
                }
                // A transfer has started meanwhile, so the loop tries again.
            }
            Err(error) => {
                return owner.fail(format!("the client cannot open a bulk connection: {error}"));
            }
        }
    }
}

// Opens lanes through shared memory, at most one for every two processors, since both ends need one to
// copy. Returns false if there is none; the reason appears only in the debug log.
fn open_shared(owner: &Arc<dyn Owner>) -> bool {
    if !owner.bulk().dialer.shares_memory() {
        return false;
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let lanes = owner.bulk().lane_count.min(processors as u32 / 2).max(1);
    for lane in 0..lanes {
        let opened = Crew::start(owner).and_then(|crew| {
            let deadline = Instant::now() + OPEN_LIMIT;
            let shared = owner.bulk().dialer.open_shared(lane as u8, deadline)?;
            Ok((crew, shared))
        });
        match opened {
            Ok((crew, shared)) => crew.take(&**owner, Stream::Shared(shared)),
            Err(error) => {
                tracing::debug!(lane, %error, "cannot open a bulk lane through shared memory");
                return lane > 0;
            }
        }
    }
    tracing::debug!(lanes, "bulk goes through shared memory");
    true
}

fn open(owner: &Arc<dyn Owner>, lane: u8) -> Result<(), WireError> {
    let crew = Crew::start(owner)?;
    let deadline = Instant::now() + OPEN_LIMIT;
    let line = owner.bulk().dialer.open(Purpose::Bulk, lane, deadline)?;
    crew.take(&**owner, line.into());
    Ok(())
}

// The threads of a lane. They start before the lane is opened, and end if it does not open. Once a lane
// is open the worker sends on it, so a thread must be there to read.
struct Crew {
    reader: Sender<Arc<Lane>>,
    writer: Sender<Arc<Lane>>,
}

impl Crew {
    fn start(owner: &Arc<dyn Owner>) -> Result<Crew, WireError> {
        let no_thread = |error: io::Error| WireError::Refused {
            address: owner.bulk().dialer.address.clone(),
            reason: format!("the client cannot start another thread: {error}"),
        };
        let reader = hire(owner, "cw-bulk-in", |owner, lane| {
            let reason = read(owner, lane.stream());
            owner.fail(reason);
        });
        let writer = hire(owner, "cw-bulk-out", |owner, lane| {
            if let Err(error) = write(&**owner, lane) {
                owner.fail(plain(&error));
            }
        });
        Ok(Crew {
            reader: reader.map_err(no_thread)?,
            writer: writer.map_err(no_thread)?,
        })
    }

    // Gives the opened lane to the threads.
    fn take(self, owner: &dyn Owner, stream: Stream) {
        let writing = Mutex::new(Writing {
            scratch: Scratch::default(),
            pace: owner.bulk().pace(&stream),
            packer: owner.bulk().compresses(&stream).then(Packer::default),
        });
        let lane = Arc::new(Lane { stream, writing });
        {
            let mut state = owner.bulk().state.lock();
            if state.table.is_closed() {
                // The session ended while the lane was being opened. Its shutdown did not find the lane.
                lane.stream().shut_down();
                return;
            }
            state.lanes.push(Arc::clone(&lane));
        }
        for thread in [self.reader, self.writer] {
            // The thread is waiting for the lane, so the send succeeds.
            let _ = thread.send(Arc::clone(&lane));
        }
    }
}

// Starts a thread that runs `work` with the lane that it receives.
fn hire(
    owner: &Arc<dyn Owner>,
    name: &str,
    work: impl FnOnce(&Arc<dyn Owner>, &Lane) + Send + 'static,
) -> io::Result<Sender<Arc<Lane>>> {
    let (sender, lanes) = mpsc::channel::<Arc<Lane>>();
    let owner = Arc::clone(owner);
    thread::spawn(name, Stack::Small, move || {
        let _guard = Guard(&*owner);
        if let Ok(lane) = lanes.recv() {
            work(&owner, &lane);
        }
    })?;
    Ok(sender)
}

// ---- reading -------------------------------------------------------------------

// Runs the reading thread. Returns why the connection ended.
fn read(owner: &Arc<dyn Owner>, mut stream: &Stream) -> String {
    let mut scratch = Scratch::default();
    let mut unpacker = Unpacker::default();
    loop {
        let mut bytes = [0; HEADER];
        if let Err(error) = stream.read_exact(&mut bytes) {
            return format!("a bulk connection ended: {}", plain(&error));
        }
        let handled = match Header::decode_packed(&bytes) {
            Err(error) => return format!("the node sent invalid data: {error}"),
            Ok((header, None)) => handle(owner, stream, header, &mut scratch),
            Ok((header, Some(packed))) => unpacker
                .receive(stream, packed, header.length)
                .and_then(|stream| handle(owner, stream, header, &mut scratch)),
        };
        if let Err(error) = handled {
            return format!("a bulk connection failed: {}", plain(&error));
        }
    }
}

fn handle(
    owner: &Arc<dyn Owner>,
    stream: &Stream,
    header: Header,
    scratch: &mut Scratch,
) -> io::Result<()> {
    let Header {
        kind,
        transfer,
        offset,
        length,
    } = header;
    // A relayed transfer belongs to another session too, and is not in the table.
    let relayed = owner.bulk().relay_of(transfer);
    if let Some(end) = relayed {
        return relay::handle(&**owner, stream, end, header);
    }
    match kind {
        Kind::Data => handle_data(
            &**owner,
            stream,
            transfer,
            offset,
            u64::from(length),
            scratch,
        ),
        Kind::Credit => {
            let chunks = owner
                .bulk()
                .state
                .lock()
                .table
                .handle_credit(transfer, offset);
            match chunks {
                0 => {}
                1 => drop(owner.bulk().work.notify_one()),
                _ => drop(owner.bulk().work.notify_all()),
            }
            Ok(())
        }
        Kind::Cancel => {
            let kept = owner.bulk().state.lock().table.handle_cancel(transfer);
            drop(kept);
            Ok(())
        }
        Kind::Offer => {
            // The transfer is over here. A worker that still offers it must not wait for credit.
            owner.bulk().send_header(owner, relay::gone(transfer));
            Ok(())
        }
        // Nothing is kept of what was sent.
        Kind::Ack => Ok(()),
        Kind::Event | Kind::Eager | Kind::Pace | Kind::Compress => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the node sent a message that only nodes may get",
        )),
    }
}

fn handle_data(
    owner: &dyn Owner,
    stream: &Stream,
    transfer: EventId,
    offset: u64,
    length: u64,
    scratch: &mut Scratch,
) -> io::Result<()> {
    let destination = owner
        .bulk()
        .state
        .lock()
        .table
        .handle_data(transfer, offset, length);
    match destination {
        Destination::Memory(target) => {
            owner.bulk().gauge.begin(Direction::In, Instant::now());
            let received = target.receive(stream, offset, length, scratch);
            owner
                .bulk()
                .gauge
                .end(Direction::In, Instant::now(), length);
            // The lane has left the memory even if receiving failed. The session's end waits for that.
            let outcome = owner.bulk().leave(|table| table.data_done(transfer));
            received?;
            conclude(owner, transfer, outcome);
            Ok(())
        }
        Destination::Nowhere => throw_away(stream, length),
        Destination::Impossible => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "the node sent bytes {offset}+{length}, which are outside of {transfer:?} or came twice"
            ),
        )),
    }
}

pub(super) fn throw_away(stream: &Stream, length: u64) -> io::Result<()> {
    let mut rest = stream.take(length);
    let mut bytes = vec![0; THROW_AWAY];
    while rest.limit() > 0 {
        match rest.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

// ---- writing -------------------------------------------------------------------

fn write(owner: &dyn Owner, lane: &Lane) -> io::Result<()> {
    let mut stream = lane.stream();
    send_settings(owner, lane)?;
    while let Some(item) = owner.bulk().wait_for_item() {
        let mut writing = lane.writing.lock();
        match item {
            Item::Header(word) => stream.write_all(&word.encode())?,
            Item::Own(chunk) => {
                let sent = send(owner, stream, chunk, &mut writing);
                drop(writing);
                let (event, outcome) = sent?;
                conclude(owner, event, outcome);
            }
            Item::Relayed(piece) => {
                let length = piece.length();
                writing.set_pace(owner, stream);
                owner.bulk().gauge.begin(Direction::Out, Instant::now());
                let sent = piece.send(stream);
                owner
                    .bulk()
                    .gauge
                    .end(Direction::Out, Instant::now(), length);
                sent?;
            }
        }
    }
    Ok(())
}

// Tells the worker how to send on this lane.
fn send_settings(owner: &dyn Owner, lane: &Lane) -> io::Result<()> {
    let writing = lane.writing.lock();
    let mut stream = lane.stream();
    if let Some(most) = owner.bulk().most_of_a_lane() {
        stream.write_all(&Header::pace(most).encode())?;
    }
    if writing.packer.is_some() {
        stream.write_all(&Header::compress().encode())?;
    }
    Ok(())
}

// Sends a chunk. Returns its event, and the consequences of the chunk's end.
fn send(
    owner: &dyn Owner,
    stream: &Stream,
    chunk: Chunk,
    writing: &mut Writing,
) -> io::Result<(EventId, Outcome)> {
    let Chunk {
        event,
        source,
        offset,
        length,
        eager,
    } = chunk;
    let header = Header {
        kind: if eager { Kind::Eager } else { Kind::Data },
        transfer: event,
        offset,
        length: length as u32,
    };
    writing.set_pace(owner, stream);
    owner.bulk().gauge.begin(Direction::Out, Instant::now());
    let Writing {
        scratch, packer, ..
    } = writing;
    let packer = packer
        .as_mut()
        .and_then(|packer| packer.wants(event.0, length).then_some(packer));
    let sent = match packer {
        Some(packer) => packer.send(
            stream,
            |packed| header.encode_packed(packed),
            |raw| source.send(raw, &[], offset, length, scratch),
        ),
        None => source.send(stream, &header.encode(), offset, length, scratch),
    };
    owner
        .bulk()
        .gauge
        .end(Direction::Out, Instant::now(), length);
    // As in `handle_data`: the lane has left the memory even if sending failed.
    let outcome = owner.bulk().leave(|table| table.chunk_sent(event));
    sent.map(|()| (event, outcome))
}

impl Writing {
    fn set_pace(&mut self, owner: &dyn Owner, stream: &Stream) {
        self.pace.before_chunk(stream, &owner.bulk().beside);
    }
}

impl Bulk {
    // The node's limit is divided among its lanes, which are all equally busy.
    fn most_of_a_lane(&self) -> Option<u64> {
        let lanes = u64::from(self.lane_count);
        self.most.map(|most| (most / lanes).max(1))
    }

    fn compresses(&self, stream: &Stream) -> bool {
        self.compression == Compression::Lz4 && !stream.is_shared()
    }

    // The pacing of a lane over this stream. A connection inside the machine crosses no network and is
    // not paced, except by the configured limit.
    fn pace(&self, stream: &Stream) -> Pace {
        let mut pace = Pace::new(stream.socket().is_some_and(|socket| !stays_inside(socket)));
        pace.set_most(self.most_of_a_lane());
        pace
    }

    // Waits for the next item to send. Returns `None` when the session is over.
    fn wait_for_item(&self) -> Option<Item> {
        let mut state = self.state.lock();
        loop {
            if state.table.is_closed() {
                return None;
            }
            if let Some(item) = state.next_item() {
                return Some(item);
            }
            self.work.wait(&mut state);
        }
    }

    fn leave(&self, done: impl FnOnce(&mut super::Table) -> Outcome) -> Outcome {
        let mut state = self.state.lock();
        let outcome = done(&mut state.table);
        if state.table.is_quiet() {
            self.quiet.notify_all();
        }
        outcome
    }
}

// Reports the outcome to the session's objects. The caller must hold no lock.
fn conclude(owner: &dyn Owner, event: EventId, outcome: Outcome) {
    if let Some(keep) = outcome.uploaded {
        drop(keep);
        owner.uploaded(event);
    }
    if let Some(completion) = outcome.completion {
        owner.completed(completion);
    }
}
