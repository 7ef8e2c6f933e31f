//! Transfers between two workers that have no path to each other: this process passes them on.
//!
//! ```text
//! sender's worker ── Offer, Data, Cancel ──► its lanes │ relay │ the other's lanes ──► receiver's worker
//!                 ◄── Credit, Cancel ──────            │       │            ◄── Credit, Cancel ──
//! ```
//! The thread that reads a lane takes a chunk off the socket into a buffer and puts that on the other
//! session's queue; a writer of that session's lanes sends the buffer as it is, header and all. So no byte is
//! copied, and no reader waits for another session's socket. How much lies here is bounded by what the
//! sender is granted (`account`).
//!
//! What it is not: it does not know which transfers there are until the upper half says so, and opens no
//! path. Invariants: a transfer's words go from one of its two ends to the other and nowhere else; locks of
//! two sessions are never held at once; and a relay that is over holds no room and no bytes.
#![forbid(unsafe_code)]

mod account;
mod buffer;

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use causeway_lane::Stream;
use causeway_proto::bulk::{Header, Kind};
use causeway_proto::id::EventId;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use self::account::{Account, ROOM, Room};
use self::buffer::Buffer;
use crate::transport::core::Core;
use crate::transport::gauge::Direction;

static SHARED_ROOM: Mutex<Room<Weak<Relay>>> = Mutex::new(Room::new(ROOM));
static RELAYED: AtomicU64 = AtomicU64::new(0);
static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// Words that wait for a session's lanes. Its own relays' are fewer; a node that takes none of so many has
/// gone mad.
const MOST_WORDS: usize = 1 << 20;

/// Bytes that have gone from worker to worker through this process.
#[must_use]
pub fn relayed_bytes() -> u64 {
    RELAYED.load(Ordering::Relaxed)
}

/// One of a transfer's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Sender,
    Receiver,
}

/// One transfer.
pub(super) struct Relay {
    transfer: EventId,
    sender: Weak<Core>,
    receiver: Weak<Core>,
    account: Mutex<Account>,
}

/// What a session has to do with relays: its ends of them, and what waits for its lanes.
#[derive(Default)]
pub(super) struct Relays {
    ends: HashMap<EventId, (Side, Arc<Relay>)>,
    words: VecDeque<Header>,
    pieces: VecDeque<Piece>,
}

/// A chunk on its way through.
pub(super) struct Piece {
    // Dropped first: with the last relay the buffers that are kept go.
    buffer: Buffer,
    relay: Arc<Relay>,
}

/// What was known of a relay that is over; to be dropped under no lock.
pub(super) type Forgotten = (Option<(Side, Arc<Relay>)>, VecDeque<Piece>);

/// Passes on what belongs to `transfer` from now on. False when one of the sessions is over.
pub(in crate::transport) fn begin(
    sender: &Arc<Core>,
    receiver: &Arc<Core>,
    transfer: EventId,
    bytes: u64,
) -> bool {
    ALIVE.fetch_add(1, Ordering::Relaxed);
    let relay = Arc::new(Relay {
        transfer,
        sender: Arc::downgrade(sender),
        receiver: Arc::downgrade(receiver),
        account: Mutex::new(Account::new(bytes)),
    });
    let both = [(sender, Side::Sender), (receiver, Side::Receiver)];
    let added = both
        .into_iter()
        .all(|(core, side)| core.bulk.add_relay(core, side, &relay));
    if !added {
        relay.end();
    }
    added
}

/// The transfer is over for the receiver, or will not be: a sender that has not sent everything shall not.
pub(in crate::transport) fn end(core: &Core, transfer: EventId) {
    let Some((_, relay)) = core.bulk.relay_of(transfer) else {
        return;
    };
    let complete = relay.account.lock().has_everything();
    if relay.end() && !complete {
        relay.tell(Side::Sender, gone(transfer));
    }
}

/// The session is over: so are its relays, and their other ends hear of it.
pub(in crate::transport) fn end_all(core: &Core) {
    for (side, relay) in core.bulk.take_relays() {
        if relay.end() {
            relay.tell(side.other(), gone(relay.transfer));
        }
    }
}

/// Takes off the lane, and passes on, what the worker at `side` has said of the transfer.
///
/// # Errors
/// The connection's, and when that worker has no business to say this.
pub(super) fn handle(
    core: &Core,
    stream: &Stream,
    (side, relay): (Side, Arc<Relay>),
    header: Header,
) -> io::Result<()> {
    match (header.kind, side) {
        (Kind::Data, Side::Sender) => return relay.take_in(core, stream, header),
        (Kind::Offer, Side::Sender) => {
            if relay.account.lock().offer() {
                relay.tell(Side::Receiver, header);
            }
            relay.pump();
        }
        (Kind::Credit, Side::Receiver) => {
            if relay.account.lock().credit(header.offset) {
                relay.tell(Side::Sender, header);
            }
            relay.pump();
        }
        (Kind::Cancel, _) => {
            if relay.end() {
                relay.tell(side.other(), header);
            }
        }
        _ => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{:?} does not come from this end", header.kind),
            ));
        }
    }
    Ok(())
}

/// Gives a transfer up on behalf of an end that is no more.
pub(in crate::transport) fn gone(transfer: EventId) -> Header {
    Header::cancel(transfer, Status::DEVICE_NOT_AVAILABLE.0)
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Sender => Side::Receiver,
            Side::Receiver => Side::Sender,
        }
    }
}

impl Relay {
    fn core(&self, side: Side) -> Option<Arc<Core>> {
        match side {
            Side::Sender => self.sender.upgrade(),
            Side::Receiver => self.receiver.upgrade(),
        }
    }

    fn tell(&self, side: Side, word: Header) {
        if let Some(core) = self.core(side) {
            core.bulk.say(&core, word);
        }
    }

    fn take_in(self: Arc<Self>, core: &Core, stream: &Stream, header: Header) -> io::Result<()> {
        let length = u64::from(header.length);
        let wanted = self.account.lock().arrive(header.offset, length);
        let wanted = wanted.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if !wanted {
            return super::lane::throw_away(stream, length);
        }
        core.bulk.gauge.begin(Direction::In, Instant::now());
        let received = Buffer::receive(header, stream);
        core.bulk.gauge.end(Direction::In, Instant::now(), length);
        let buffer = received?;
        RELAYED.fetch_add(length, Ordering::Relaxed);
        if let Some(receiver) = self.core(Side::Receiver) {
            let relay = self;
            receiver.bulk.pass_on(Piece { buffer, relay });
        }
        Ok(())
    }

    /// Grants the sender what there is room for.
    fn pump(self: &Arc<Self>) {
        let granted = {
            let mut account = self.account.lock();
            let wish = account.wish();
            if wish == 0 {
                return;
            }
            let taken = SHARED_ROOM.lock().take(wish, || Arc::downgrade(self));
            account.grant(taken)
        };
        let Some(granted) = granted else { return };
        let credit = Header {
            kind: Kind::Credit,
            transfer: self.transfer,
            offset: granted,
            length: 0,
        };
        self.tell(Side::Sender, credit);
    }

    /// Ends it; whether it was not over before.
    fn end(&self) -> bool {
        let Some(room) = self.account.lock().close() else {
            return false;
        };
        for side in [Side::Sender, Side::Receiver] {
            if let Some(core) = self.core(side) {
                core.bulk.forget_relay(self.transfer);
            }
        }
        give_back(room);
        true
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if ALIVE.fetch_sub(1, Ordering::Relaxed) == 1 {
            buffer::let_go();
        }
    }
}

// Those who wait for room have it before those who have some.
fn give_back(bytes: u64) {
    SHARED_ROOM.lock().give_back(bytes);
    loop {
        let next = SHARED_ROOM.lock().next_in_line();
        match next {
            Some(relay) => {
                if let Some(relay) = relay.upgrade() {
                    relay.account.lock().leave_line();
                    relay.pump();
                }
            }
            None => return,
        }
    }
}

impl Relays {
    /// Says what a worker's transfer is to this session.
    pub(super) fn add(&mut self, side: Side, relay: &Arc<Relay>) {
        self.ends.insert(relay.transfer, (side, Arc::clone(relay)));
    }

    /// The relay of a transfer and this session's side of it.
    pub(super) fn of(&self, transfer: EventId) -> Option<(Side, Arc<Relay>)> {
        self.ends.get(&transfer).cloned()
    }

    /// All of them.
    pub(super) fn take_all(&mut self) -> Vec<(Side, Arc<Relay>)> {
        self.ends.drain().map(|(_, end)| end).collect()
    }

    /// It is over.
    #[must_use]
    pub(super) fn forget(&mut self, transfer: EventId) -> Forgotten {
        let end = self.ends.remove(&transfer);
        let waiting = std::mem::take(&mut self.pieces);
        let is_its = |piece: &Piece| piece.relay.transfer == transfer;
        let (dropped, kept): (VecDeque<_>, VecDeque<_>) = waiting.into_iter().partition(is_its);
        self.pieces = kept;
        (end, dropped)
    }

    /// Something to be said; whether there is room for it.
    pub(super) fn say(&mut self, word: Header) -> bool {
        let has_room = self.words.len() < MOST_WORDS;
        if has_room {
            self.words.push_back(word);
        }
        has_room
    }

    /// Bytes to be sent.
    pub(super) fn pass_on(&mut self, piece: Piece) {
        self.pieces.push_back(piece);
    }

    /// The next word to be said.
    pub(super) fn next_word(&mut self) -> Option<Header> {
        self.words.pop_front()
    }

    /// The next bytes to be sent.
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        self.pieces.pop_front()
    }
}

impl Piece {
    /// Bytes of the transfer in it.
    pub(super) fn length(&self) -> u64 {
        self.buffer.length()
    }

    /// Sends it, unless nobody wants it any more.
    pub(super) fn send(self, mut stream: &Stream) -> io::Result<()> {
        if self.relay.account.lock().is_over() {
            return Ok(());
        }
        stream.write_all(self.buffer.bytes())?;
        let length = self.length();
        let Piece { buffer, relay } = self;
        drop(buffer);
        let room = relay.account.lock().forward(length);
        give_back(room);
        relay.pump();
        Ok(())
    }
}
