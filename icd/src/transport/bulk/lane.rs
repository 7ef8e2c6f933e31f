//! A bulk connection: its two threads, and sending on it from other threads.
//!
//! Invariant: header and bytes of an item are written together, under the lane's lock.

mod opening;

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_lane::{
    Condition, Kept, Pace, Packer, PathState, PathWatch, Resumed, Stream, Unpacker, path_of,
};
use causeway_proto::bulk::{CHECKPOINT, HEADER, Header, Kind};
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::preamble::ClientWord;
use causeway_proto::socket::stays_inside;
use parking_lot::Mutex;

use self::opening::cannot_open;
pub(super) use self::opening::open_all;
use super::attempts::Attempts;
use super::memory::{HostRegion, Scratch};
use super::relay::Piece;
use super::table::{Chunk, Destination, DigestedBytes, Outcome};
use super::{Bulk, EventId, Guard, Item, Owner, relay};
use crate::config::Compression;
use crate::transport::ended::Broken;
use crate::transport::gauge::Direction;
use crate::transport::socket::plain;
use crate::transport::thread;

/// Time limit for each lane's connection and handshake.
pub(super) const OPEN_LIMIT: Duration = Duration::from_secs(5);
/// Buffer size for discarding unwanted bytes.
const THROW_AWAY: usize = 64 << 10;

/// Time limit for a reading thread to leave a connection that was shut.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// A bulk connection.
pub(super) struct Lane {
    number: u8,
    // See [`Bulk::worker_generation`].
    generation: u64,
    // The rail of the present connection.
    rail: AtomicUsize,
    // Used only if the server has several rails.
    watch: Mutex<PathWatch>,
    // Number of acknowledgements of this lane.
    answers: AtomicU64,
    stream: Stream,
    writing: Mutex<Writing>,
    // Used only if the stream outlives its connections.
    kept: Kept<Sent>,
    // Set when another worker has taken the place of the lane's.
    is_retired: AtomicBool,
}

/// What was sent and may have to be sent again.
enum Sent {
    /// A control message.
    Header([u8; HEADER]),
    /// Header and bytes of a compressed chunk.
    Packed(Vec<u8>),
    /// A chunk, whose bytes are in the application's memory.
    Own {
        header: Header,
        source: Arc<HostRegion>,
    },
    /// Bytes of another worker.
    Relayed(Piece),
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

    pub(super) fn number(&self) -> u8 {
        self.number
    }

    /// Whether bytes can be sent now.
    pub(super) fn is_connected(&self) -> bool {
        let resumed = self.stream.resumed();
        resumed.is_none_or(|resumed| resumed.condition() == Condition::Connected)
    }

    /// Breaks the connection, if it can be resumed.
    pub(super) fn break_off(&self) {
        if let Some(resumed) = self.stream.resumed() {
            resumed.break_off();
        }
    }

    /// Ends the lane, whose worker has ended.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
        self.stream.shut_down();
    }

    /// Whether the lane has ended with its worker.
    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }

    // Whether the end of the lane is no error.
    fn may_end(&self, owner: &dyn Owner) -> bool {
        self.is_retired() || owner.bulk().ends.load(Ordering::Acquire)
    }

    /// The rail of the present connection.
    pub(super) fn rail(&self) -> usize {
        self.rail.load(Ordering::Relaxed)
    }

    /// Looks whether the path of the present connection is dead. Sends something on a quiet path if bytes should cross
    /// it. Does not wait.
    pub(super) fn is_path_dead(&self, now: Instant, is_moving: bool) -> bool {
        let reading = self.stream.with_socket(path_of).flatten();
        let (Some(mut reading), Some(resumed)) = (reading, self.stream.resumed()) else {
            return false;
        };
        // The answer to a ping may come over another lane.
        reading.received += self.answers.load(Ordering::Relaxed);
        let state = self.watch.lock().look(now, reading, is_moving);
        if state == PathState::Quiet && is_moving {
            self.try_to_send(resumed, Header::ping());
        }
        state == PathState::Dead
    }

    /// Sends a chunk on a thread that is not the lane's. An error fails the session. The results are
    /// reported as on a lane's thread, where code must not wait for room on a connection.
    pub(super) fn send_now(&self, owner: &dyn Owner, chunk: Chunk) {
        let _guard = Guard(owner);
        let mut writing = self.writing.lock();
        let sent = send(owner, self, chunk, &mut writing);
        drop(writing);
        // The lane is unlocked here, because callbacks must not run under a transport lock.
        match sent {
            Ok((event, outcome)) => thread::as_ours(|| conclude(owner, event, outcome)),
            Err(error) => thread::as_ours(|| self.end(owner, broken("failed", &error))),
        }
    }

    /// Handles that the lane has failed. The end of shared memory says only that the worker is gone. So the session
    /// asks the node for the reason, as after a broken connection.
    fn end(&self, owner: &dyn Owner, broken: Broken) {
        match broken {
            _ if self.may_end(owner) => {}
            Broken::Connection(reason) if self.stream.is_shared() => {
                owner.shared_lane_ended(reason)
            }
            Broken::Connection(reason) | Broken::Nonsense(reason) => owner.fail(reason),
        }
    }
}

// What an error of a lane means. `how` the connection came to its end is a verb.
fn broken(how: &str, error: &io::Error) -> Broken {
    let reason = format!("a bulk connection {how}: {}", plain(error));
    match error.kind() {
        io::ErrorKind::InvalidData => Broken::Nonsense(reason),
        _ => Broken::Connection(reason),
    }
}

// ---- reading -------------------------------------------------------------------

// Runs the reading thread. Returns why the connection ended.
fn read(owner: &Arc<dyn Owner>, lane: &Lane) -> Broken {
    let mut stream = lane.stream();
    let mut scratch = Scratch::default();
    let mut unpacker = Unpacker::default();
    loop {
        let mut bytes = [0; HEADER];
        if let Err(error) = stream.read_exact(&mut bytes) {
            return broken("ended", &error);
        }
        let (header, packed) = match Header::decode_packed(&bytes) {
            Err(error) => return Broken::Nonsense(format!("the node sent invalid data: {error}")),
            Ok(decoded) => decoded,
        };
        let handled = match packed {
            None => handle(owner, stream, header, &mut scratch),
            Some(packed) => unpacker
                .receive(stream, packed, header.length)
                .and_then(|stream| handle(owner, stream, header, &mut scratch)),
        };
        if let Err(error) = handled {
            return broken("failed", &error);
        }
        if let Some(resumed) = stream.resumed()
            && let Some(bytes) = resumed.due(ends_a_read(&header))
        {
            lane.acknowledge(owner, resumed, Header::ack(lane.number, bytes));
        }
    }
}

// Whether the bytes may be the last of a read larger than a chunk. The node then waits for the acknowledgement.
fn ends_a_read(header: &Header) -> bool {
    header.kind == Kind::Data && header.offset > 0 && (header.length as usize) < BULK_CHUNK
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
    if kind == Kind::Ack {
        // Here `transfer` is the number of a lane.
        return match u8::try_from(transfer.0).map(|lane| owner.bulk().lane(lane)) {
            Ok(Some(lane)) => lane.acknowledged(offset),
            _ => Ok(()),
        };
    }
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
            handle_credit(owner.bulk(), transfer, offset);
            Ok(())
        }
        Kind::Cancel => {
            let outcome = owner.bulk().state.lock().table.handle_cancel(transfer);
            conclude(&**owner, transfer, outcome);
            Ok(())
        }
        Kind::Offer => {
            // The transfer is over here. A worker that still offers it must not wait for credit.
            owner.bulk().send_header(owner, relay::gone(transfer));
            Ok(())
        }
        Kind::Ack | Kind::Event | Kind::Eager | Kind::Pace | Kind::Compress | Kind::Ping => {
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the node sent a message that only nodes may get",
            ))
        }
    }
}

fn handle_credit(bulk: &Bulk, transfer: EventId, offset: u64) {
    let chunks = bulk.state.lock().table.handle_credit(transfer, offset);
    match chunks {
        0 => {}
        1 => drop(bulk.work.notify_one()),
        _ => drop(bulk.work.notify_all()),
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
            let begun = owner.bulk().begin_traced();
            // Nothing is compared with a checkpoint.
            let digests = owner.digests() && transfer != CHECKPOINT;
            let received = match digests {
                true => (target.receive_digested(stream, offset, length, scratch)).map(Some),
                false => (target.receive(stream, offset, length, scratch)).map(|()| None),
            };
            owner.bulk().trace(begun, transfer, length, Direction::In);
            owner
                .bulk()
                .gauge
                .end(Direction::In, Instant::now(), length);
            // The lane has left the memory even if receiving failed. The session's end waits for that.
            let outcome = owner.bulk().leave(|table| match &received {
                Ok(digest) => {
                    let digested = digest.map(|digest| DigestedBytes {
                        offset,
                        length,
                        digest,
                    });
                    table.data_done(transfer, digested)
                }
                Err(_) => table.data_failed(transfer, length),
            });
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
    send_settings(owner, lane)?;
    loop {
        match owner.bulk().wait_for_item(lane) {
            Next::Over => return Ok(()),
            Next::Broken => lane.reopen(owner)?,
            Next::Item(Item::Header(word)) => lane.send_header(word)?,
            Next::Item(Item::Own(chunk)) => {
                let mut writing = lane.writing.lock();
                let sent = send(owner, lane, chunk, &mut writing);
                drop(writing);
                let (event, outcome) = sent?;
                conclude(owner, event, outcome);
            }
            Next::Item(Item::Relayed(piece)) => {
                let length = piece.length();
                let mut writing = lane.writing.lock();
                writing.set_pace(owner, lane.stream());
                owner.bulk().gauge.begin(Direction::Out, Instant::now());
                let sent = lane.send_piece(piece);
                owner
                    .bulk()
                    .gauge
                    .end(Direction::Out, Instant::now(), length);
                sent?;
            }
        }
    }
}

/// What a lane's writing thread does next.
enum Next {
    Item(Item),
    /// The lane has no connection.
    Broken,
    /// The session is over.
    Over,
}

impl Lane {
    fn send_header(&self, word: Header) -> io::Result<()> {
        let _writing = self.writing.lock();
        let (bytes, mut stream) = (word.encode(), &self.stream);
        if stream.resumed().is_none() {
            return stream.write_all(&bytes);
        }
        let reserved = self.kept.reserve(HEADER as u64);
        // After a break the kept message is sent again.
        let _ = stream.write_all(&bytes);
        reserved.keep(Sent::Header(bytes));
        Ok(())
    }

    // The caller has the writing lock.
    fn send_piece(&self, piece: Piece) -> io::Result<()> {
        if self.stream.resumed().is_none() {
            return piece.send(&self.stream);
        }
        if !piece.is_over() {
            let reserved = self.kept.reserve(piece.on_the_wire());
            let _ = piece.put(&self.stream, 0);
            piece.passed();
            reserved.keep(Sent::Relayed(piece));
        }
        Ok(())
    }

    // Sends an acknowledgement on the reading thread, which must not wait. Leaves it to the queue if another thread
    // is writing or the socket has no room.
    fn acknowledge(&self, owner: &Arc<dyn Owner>, resumed: &Resumed, ack: Header) {
        if !self.try_to_send(resumed, ack) {
            owner.bulk().send_header_of(owner, Some(self), ack);
        }
    }

    // Sends a message without waiting. Returns false if another thread is writing or the socket has no room.
    fn try_to_send(&self, resumed: &Resumed, message: Header) -> bool {
        let Some(_writing) = self.writing.try_lock() else {
            return false;
        };
        let bytes = message.encode();
        let reserved = self.kept.reserve(HEADER as u64);
        match resumed.send(|stream| stream.write_some(&bytes)) {
            Ok(0) | Err(_) => {
                reserved.release();
                return false;
            }
            Ok(HEADER) => reserved.keep(Sent::Header(bytes)),
            Ok(_) => {
                // Part of a header is never left, because this thread cannot wait. The new connection gets all.
                reserved.keep(Sent::Header(bytes));
                resumed.break_off();
            }
        }
        true
    }

    fn acknowledged(&self, position: u64) -> io::Result<()> {
        self.answers.fetch_add(1, Ordering::Relaxed);
        if self.stream.resumed().is_none() {
            return Ok(());
        }
        let known = self.kept.acknowledge(position);
        known.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    // Opens the lane's connection again, and sends what the node does not have. Returns when the lane has a
    // connection or the session is over.
    fn reopen(&self, owner: &dyn Owner) -> io::Result<()> {
        let (bulk, Some(resumed)) = (owner.bulk(), self.stream.resumed()) else {
            return Ok(());
        };
        let mut attempts = Attempts::new(bulk, self.number);
        while bulk.wait_to_open(Duration::ZERO) {
            if resumed.condition() != Condition::Behind {
                let Some(stopped) = resumed.stop_receiving(LEAVE_LIMIT) else {
                    return match resumed.condition() {
                        Condition::Closed => Ok(()),
                        _ => Err(io::ErrorKind::TimedOut.into()),
                    };
                };
                let begun = Instant::now();
                let word = ClientWord {
                    position: stopped.position,
                    generation: self.generation,
                    ..ClientWord::default()
                };
                let deadline = begun + OPEN_LIMIT;
                let opened = (bulk.dialer).open_lane(self.number, word, deadline);
                match opened {
                    Ok((line, rail, theirs)) => {
                        self.rail.store(rail, Ordering::Relaxed);
                        resumed.install(stopped, line.into(), theirs);
                    }
                    Err(error) => {
                        if attempts.goes_on(bulk, begun, &error) {
                            continue;
                        }
                        cannot_open(owner, self.generation, &error);
                        return Ok(());
                    }
                }
            }
            return self.catch_up(owner, resumed);
        }
        Ok(())
    }

    fn catch_up(&self, owner: &dyn Owner, resumed: &Resumed) -> io::Result<()> {
        let mut ended = Vec::new();
        let mut writing = self.writing.lock();
        writing.pace.forget_socket();
        let scratch = &mut writing.scratch;
        let again = resumed.write_again(&self.kept, |stream, sent, skip| {
            sent.put_again(owner, stream, skip, scratch, &mut ended)
        });
        drop(writing);
        for (event, outcome) in ended {
            conclude(owner, event, outcome);
        }
        again.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

impl Sent {
    // Sends the item without its first `skip` bytes. Adds the consequences for an upload to `ended`.
    fn put_again(
        &self,
        owner: &dyn Owner,
        mut stream: &Stream,
        skip: u64,
        scratch: &mut Scratch,
        ended: &mut Vec<(EventId, Outcome)>,
    ) -> io::Result<()> {
        let (header, source) = match self {
            Sent::Header(bytes) => return stream.write_all(&bytes[skip as usize..]),
            Sent::Packed(bytes) => return stream.write_all(&bytes[skip as usize..]),
            Sent::Relayed(piece) => return piece.put(stream, skip),
            Sent::Own { header, source } => (header, source),
        };
        let of_header = skip.min(HEADER as u64);
        let of_bytes = skip - of_header;
        let bytes = &header.encode()[of_header as usize..];
        let length = u64::from(header.length) - of_bytes;
        let event = header.transfer;
        if !owner.bulk().state.lock().table.enter_again(event) {
            // The upload is over, and its memory is the application's again. The node has all of a successful upload
            // and discards the rest of another, so any bytes do.
            stream.write_all(bytes)?;
            return fill(stream, length);
        }
        let sent = source.send(stream, bytes, header.offset + of_bytes, length, scratch);
        let outcome = owner.bulk().leave(|table| table.chunk_sent(event));
        ended.push((event, outcome));
        sent
    }
}

// Sends `length` bytes without meaning.
fn fill(mut stream: &Stream, length: u64) -> io::Result<()> {
    let bytes = vec![0; THROW_AWAY];
    let mut left = length as usize;
    while left > 0 {
        let piece = left.min(bytes.len());
        stream.write_all(&bytes[..piece])?;
        left -= piece;
    }
    Ok(())
}

// Tells the worker how to send on this lane.
fn send_settings(owner: &dyn Owner, lane: &Lane) -> io::Result<()> {
    if let Some(most) = owner.bulk().most_of_a_lane() {
        lane.send_header(Header::pace(most))?;
    }
    if owner.bulk().compresses(lane.stream()) {
        lane.send_header(Header::compress())?;
    }
    Ok(())
}

// Sends a chunk. Returns its event, and the consequences of the chunk's end. The caller has the writing lock.
fn send(
    owner: &dyn Owner,
    lane: &Lane,
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
    writing.set_pace(owner, lane.stream());
    owner.sends(event, &source, offset, length);
    owner.bulk().gauge.begin(Direction::Out, Instant::now());
    let begun = owner.bulk().begin_traced();
    let sent = send_chunk(lane, header, source, writing);
    owner.bulk().trace(begun, event, length, Direction::Out);
    owner
        .bulk()
        .gauge
        .end(Direction::Out, Instant::now(), length);
    // As in `handle_data`: the lane has left the memory even if sending failed.
    let outcome = owner.bulk().leave(|table| match &sent {
        Ok(()) => table.chunk_sent(event),
        Err(_) => table.chunk_failed(event),
    });
    sent.map(|()| (event, outcome))
}

fn send_chunk(
    lane: &Lane,
    header: Header,
    source: Arc<HostRegion>,
    writing: &mut Writing,
) -> io::Result<()> {
    let Writing {
        scratch, packer, ..
    } = writing;
    let (offset, length) = (header.offset, u64::from(header.length));
    let mut stream = lane.stream();
    let packer = packer
        .as_mut()
        .and_then(|packer| packer.wants(header.transfer.0, length).then_some(packer));
    let packed = packer.map(|packer| {
        packer.pack(
            |packed| header.encode_packed(packed),
            |raw| source.send(raw, &[], offset, length, scratch),
        )
    });
    let packed = packed.transpose()?;
    if stream.resumed().is_none() {
        return match packed {
            Some(packed) => stream.write_all(packed.bytes),
            None => source.send(stream, &header.encode(), offset, length, scratch),
        };
    }
    // After a break the kept item is sent again, so an error ends nothing.
    let message = HEADER as u64 + length;
    let reserved = lane.kept.reserve(
        packed
            .as_ref()
            .map_or(message, |packed| packed.bytes.len() as u64),
    );
    let (_, item) = match packed {
        Some(packed) if packed.is_smaller => (
            stream.write_all(packed.bytes),
            Sent::Packed(packed.bytes.to_vec()),
        ),
        Some(packed) => (stream.write_all(packed.bytes), Sent::Own { header, source }),
        None => (
            source.send(stream, &header.encode(), offset, length, scratch),
            Sent::Own { header, source },
        ),
    };
    reserved.keep(item);
    Ok(())
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
        let leaves = stream.with_socket(|socket| !stays_inside(socket));
        let mut pace = Pace::new(leaves.unwrap_or(false));
        pace.set_most(self.most_of_a_lane());
        pace
    }

    // Waits for the next item to send on this lane.
    fn wait_for_item(&self, lane: &Lane) -> Next {
        let mut state = self.state.lock();
        loop {
            if state.table.is_closed() || lane.is_retired() {
                return Next::Over;
            }
            if !lane.is_connected() {
                // This thread may have been woken for an item, which another lane takes.
                self.work.notify_one();
                return Next::Broken;
            }
            if let Some(item) = state.next_item() {
                return Next::Item(item);
            }
            self.work.wait(&mut state);
        }
    }

    fn leave(&self, done: impl FnOnce(&mut super::TransferTable) -> Outcome) -> Outcome {
        let mut state = self.state.lock();
        let outcome = done(&mut state.table);
        // `conclude` must follow.
        state.concluding += usize::from(outcome.completion.is_some());
        if state.table.is_quiet() {
            self.quiet.notify_all();
        }
        outcome
    }

    // The completion of an outcome of `leave` was passed on.
    fn concluded(&self) {
        let mut state = self.state.lock();
        state.concluding -= 1;
        if state.concluding == 0 {
            self.quiet.notify_all();
        }
    }
}

// Reports the outcome to the session's objects. The caller must hold no lock.
fn conclude(owner: &dyn Owner, event: EventId, outcome: Outcome) {
    if let Some(keep) = outcome.uploaded {
        drop(keep);
        owner.uploaded(event);
    }
    if let Some(completion) = outcome.completion {
        owner.completed(completion, outcome.received);
        owner.bulk().concluded();
        owner.concluded();
    }
}
