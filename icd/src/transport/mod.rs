//! Everything between the client's objects and the sockets: nodes, sessions, carriers and bulk lanes.
//!
//! ```text
//! discover(settings) ──► Node ──session(events)──► Session ──► carrier (direct | grpc)   commands, events
//!                                                    ├───────► heartbeat                 heartbeats
//!                                                    └───────► bulk lanes                bytes
//! ```
//! The objects send encoded commands ([`Session::send`], [`Session::request`]) and register memory for
//! bulk transfers ([`Session::upload`], [`Session::download`]). They implement [`SessionEvents`], which
//! receives completions, notices and the loss of the session.
//!
//! This module knows no OpenCL objects, has no event graph and decides nothing about order. The order of
//! [`Session::send`] is the order on the wire.
//!
//! Invariants:
//! - A session is lost once and for good. Every thread that waits in it wakes up then.
//! - No transport lock is held while [`SessionEvents`] or a caller's closure runs.
//! - After `fork`, every call in the child returns [`WireError::Forked`] before it touches a lock.
//! - The application's memory is accessed only between `upload`/`download` and the event's
//!   [`SessionEvents::completed`] or [`SessionEvents::lost`].
#![deny(unsafe_code)]

pub mod bulk;
mod carrier;
pub mod checkpoints;
pub mod clock;
mod control;
mod core;
mod dealing;
mod discover;
pub mod encode;
mod ended;
mod equal_devices;
pub mod events;
mod exit;
pub mod figures;
pub mod finder;
mod flusher;
pub mod gauge;
pub mod given;
mod granted;
mod heartbeat;
mod held;
pub mod inline_reads;
pub mod kept;
mod leader;
pub mod links;
mod local;
pub mod manager;
pub mod node;
mod outbox;
mod patience;
mod process;
mod rails;
mod reader;
mod reader_role;
pub mod received;
mod reconnect;
mod record;
pub mod replay;
pub mod report;
mod requests;
mod resolve;
mod retry;
mod security;
mod sent_bytes;
pub mod session;
mod socket;
mod sought;
mod speeds;
mod standard;
mod stops;
mod sys;
mod thread;
mod wait;

pub use bulk::EagerGrant;
pub use bulk::memory::HostRegion;
pub use bulk::relay::relayed_bytes;
pub use bulk::rows::Rows;
pub use causeway_proto::status::WireError;
pub use discover::{
    Discovered, LIMIT as ENUMERATION_LIMIT, Reply, are_copies, are_other_starts, ask, ask_by_uuid,
    ask_found, copied, discover,
};
pub use encode::EncodeCommand;
pub use events::SessionEvents;
pub(crate) use exit::end_trace_at_end;
pub use exit::{at_end, at_exit_flush, is_ending};
pub use node::{Node, Target, node_status};
pub use session::{Location, Session};
pub(crate) use standard::open_lasting;
pub(crate) use thread::{as_ours as as_transport_thread, waiting_next};
