//! Relays transfers between two workers that have no path to each other through this process.
//!
//! ```text
//! sender's worker ── Offer, Data, Cancel ──► its lanes │ relay │ the other's lanes ──► receiver's worker
//!                 ◄── Credit, Cancel ──────            │       │            ◄── Credit, Cancel ──
//! ```
//! The thread that reads a lane takes a chunk off the socket into a buffer, and queues it at the other
//! session. A writer of that session's lanes sends the buffer as it is, header included. So no byte is
//! copied, and no reader waits for another session's socket. The sender's credit bounds the number of
//! bytes in this process (`account`).
//!
//! The objects above announce each transfer before it starts; a relay opens no connections. Invariants: a
//! transfer's messages go from one of its two ends to the other and nowhere else. Locks of two sessions
//! are never held at the same time. A relay that is over holds no room and no bytes.
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
use super::Owner;
use crate::transport::gauge::Direction;

static SHARED_ROOM: Mutex<Room<Weak<Relay>>> = Mutex::new(Room::new(ROOM));
static RELAYED: AtomicU64 = AtomicU64::new(0);
static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// Maximum number of control messages that wait for a session's lanes. A session's own relays need fewer.
/// A node that accepts none of so many is broken.
const MOST_WORDS: usize = 1 << 20;

/// Number of bytes that this process has relayed between workers.
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

/// One relayed transfer.
pub(super) struct Relay {
    transfer: EventId,
    sender: Weak<dyn Owner>,
    receiver: Weak<dyn Owner>,
    account: Mutex<Account>,
}

/// A session's part in relays: its ends of them, and the messages and bytes that wait for its lanes.
#[derive(Default)]
pub(super) struct Relays {
    ends: HashMap<EventId, (Side, Arc<Relay>)>,
    words: VecDeque<Header>,
    pieces: VecDeque<Piece>,
}

/// A chunk that is being relayed.
pub(super) struct Piece {
    // The buffer must be dropped before the relay: dropping the last relay frees the idle buffers.
    buffer: Buffer,
    relay: Arc<Relay>,
}

/// The remains of a relay that is over. They must be dropped without a lock.
pub(super) type Forgotten = (Option<(Side, Arc<Relay>)>, VecDeque<Piece>);

/// Starts to relay messages and bytes of `transfer`. Returns false when one of the sessions is over.
pub(in crate::transport) fn begin(
    sender: &Arc<dyn Owner>,
    receiver: &Arc<dyn Owner>,
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
        .all(|(owner, side)| owner.bulk().add_relay(owner, side, &relay));
    if !added {
        // Removes the side that was added, if any.
        relay.end();
    }
    added
}

/// Ends a relay on behalf of the receiver. A sender that has not sent everything is told to stop.
pub(in crate::transport) fn end(owner: &dyn Owner, transfer: EventId) {
    let Some((_, relay)) = owner.bulk().relay_of(transfer) else {
        return;
    };
    let complete = relay.account.lock().has_everything();
    if relay.end() && !complete {
        relay.tell(Side::Sender, gone(transfer));
    }
}

/// Ends all relays of a session that is over, and tells their other ends.
pub(in crate::transport) fn end_all(owner: &dyn Owner) {
    for (side, relay) in owner.bulk().take_relays() {
        if relay.end() {
            relay.tell(side.other(), gone(relay.transfer));
        }
    }
}

/// Takes a message of the worker at `side` off the lane, and passes it on.
///
/// # Errors
/// Errors of the connection; also a message that this side must not send.
pub(super) fn handle(
    owner: &dyn Owner,
    stream: &Stream,
    (side, relay): (Side, Arc<Relay>),
    header: Header,
) -> io::Result<()> {
    match (header.kind, side) {
        (Kind::Data, Side::Sender) => return relay.take_in(owner, stream, header),
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
                format!(
                    "the node sent a {:?} message from the wrong end of a transfer",
                    header.kind
                ),
            ));
        }
    }
    Ok(())
}

/// The message that cancels a transfer on behalf of an end that is gone.
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
    fn owner(&self, side: Side) -> Option<Arc<dyn Owner>> {
        match side {
            Side::Sender => self.sender.upgrade(),
            Side::Receiver => self.receiver.upgrade(),
        }
    }

    fn tell(&self, side: Side, word: Header) {
        if let Some(owner) = self.owner(side) {
            owner.bulk().send_header(&owner, word);
        }
    }

    fn take_in(
        self: Arc<Self>,
        owner: &dyn Owner,
        stream: &Stream,
        header: Header,
    ) -> io::Result<()> {
        let length = u64::from(header.length);
        let wanted = self.account.lock().arrive(header.offset, length);
        let wanted = wanted.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if !wanted {
            return super::lane::throw_away(stream, length);
        }
        owner.bulk().gauge.begin(Direction::In, Instant::now());
        let received = Buffer::receive(header, stream);
        owner
            .bulk()
            .gauge
            .end(Direction::In, Instant::now(), length);
        let buffer = received?;
        RELAYED.fetch_add(length, Ordering::Relaxed);
        if let Some(receiver) = self.owner(Side::Receiver) {
            let relay = self;
            receiver.bulk().pass_on(Piece { buffer, relay });
        }
        Ok(())
    }

    /// Grants the sender as many bytes as there is room for.
    fn pump(self: &Arc<Self>) {
        // The lock must be free before `tell`, which locks the sender's session.
        let granted = {
            let mut account = self.account.lock();
            let wanted = account.wanted();
            if wanted == 0 {
                return;
            }
            let taken = SHARED_ROOM.lock().take(wanted, || Arc::downgrade(self));
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

    fn passed(self: &Arc<Self>, length: u64) {
        let room = self.account.lock().forward(length);
        give_back(room);
        self.pump();
    }

    /// Ends the relay. Returns false if it was over before.
    fn end(&self) -> bool {
        let Some(room) = self.account.lock().close() else {
            return false;
        };
        for side in [Side::Sender, Side::Receiver] {
            if let Some(owner) = self.owner(side) {
                owner.bulk().forget_relay(self.transfer);
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

// Returns room. Transfers that wait for room come before those that have some.
fn give_back(bytes: u64) {
    SHARED_ROOM.lock().give_back(bytes);
    loop {
        // The room is locked only for this step, because `pump` locks it too.
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
    /// Registers this session's side of a relay.
    pub(super) fn add(&mut self, side: Side, relay: &Arc<Relay>) {
        self.ends.insert(relay.transfer, (side, Arc::clone(relay)));
    }

    /// The relay of a transfer, and this session's side of it.
    pub(super) fn of(&self, transfer: EventId) -> Option<(Side, Arc<Relay>)> {
        self.ends.get(&transfer).cloned()
    }

    pub(super) fn take_all(&mut self) -> Vec<(Side, Arc<Relay>)> {
        self.ends.drain().map(|(_, end)| end).collect()
    }

    /// Forgets a relay that is over, with its queued bytes.
    #[must_use]
    pub(super) fn forget(&mut self, transfer: EventId) -> Forgotten {
        let end = self.ends.remove(&transfer);
        let waiting = std::mem::take(&mut self.pieces);
        let is_its = |piece: &Piece| piece.relay.transfer == transfer;
        let (dropped, kept): (VecDeque<_>, VecDeque<_>) = waiting.into_iter().partition(is_its);
        self.pieces = kept;
        (end, dropped)
    }

    /// Queues a control message. Returns false if there is no room for it.
    pub(super) fn send_header(&mut self, word: Header) -> bool {
        let has_room = self.words.len() < MOST_WORDS;
        if has_room {
            self.words.push_back(word);
        }
        has_room
    }

    /// Queues bytes to be sent.
    pub(super) fn pass_on(&mut self, piece: Piece) {
        self.pieces.push_back(piece);
    }

    /// Drops the control messages that wait for lanes.
    pub(super) fn forget_headers(&mut self) {
        self.words.clear();
    }

    /// The next control message to send.
    pub(super) fn next_word(&mut self) -> Option<Header> {
        self.words.pop_front()
    }

    /// The next bytes to send.
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        self.pieces.pop_front()
    }
}

impl Piece {
    /// Number of bytes of the transfer in this piece.
    pub(super) fn length(&self) -> u64 {
        self.buffer.length()
    }

    /// Sends the piece, unless its transfer is over.
    pub(super) fn send(self, stream: &Stream) -> io::Result<()> {
        if self.is_over() {
            return Ok(());
        }
        self.put(stream, 0)?;
        let length = self.length();
        let Piece { buffer, relay } = self;
        // The memory is freed before its room, so the queued chunks never exceed the room.
        drop(buffer);
        relay.passed(length);
        Ok(())
    }

    /// Whether the piece's transfer is over.
    pub(super) fn is_over(&self) -> bool {
        self.relay.account.lock().is_over()
    }

    /// Number of bytes that [`Piece::put`] sends in all.
    pub(super) fn on_the_wire(&self) -> u64 {
        self.buffer.bytes().len() as u64
    }

    /// Sends header and bytes without the first `skip` bytes.
    pub(super) fn put(&self, mut stream: &Stream, skip: u64) -> io::Result<()> {
        stream.write_all(&self.buffer.bytes()[skip as usize..])
    }

    /// Gives the piece's room back, although the piece is kept in case that it must be sent again. The room would
    /// otherwise wait for an acknowledgement, which may come with the next MiB only.
    pub(super) fn passed(&self) {
        self.relay.passed(self.length());
    }
}
