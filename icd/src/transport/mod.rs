//! Everything between the client's objects and the sockets: nodes, sessions, carriers, bulk.
//!
//! ```text
//! discover(settings) ──► Node ──session(events)──► Session ──► carrier (direct | grpc)   commands, events
//!                                                    ├───────► pulse                     heartbeats
//!                                                    └───────► bulk lanes                bytes
//! ```
//! The upper half sends encoded commands ([`Session::send`], [`Session::request`]), registers memory
//! for bulk ([`Session::upload`], [`Session::download`]) and implements [`SessionEvents`], through
//! which it hears what came back.
//!
//! What it is not: it knows no OpenCL object, holds no event graph and decides nothing about
//! ordering; the order of [`Session::send`] is the order on the wire.
//!
//! Invariants:
//! - A session is lost once and for good; whoever waits in it is woken then.
//! - No transport lock is held while [`SessionEvents`] or a caller's closure runs.
//! - After `fork` the child gets [`WireError::Forked`] from every call, before any lock is touched.
//! - The application's memory is touched only between `upload`/`download` and the event's
//!   [`SessionEvents::completed`], or [`SessionEvents::lost`].
#![deny(unsafe_code)]

pub mod bulk;
mod carrier;
pub mod clock;
mod control;
mod core;
mod discover;
pub mod encode;
pub mod events;
mod exit;
mod flusher;
mod fork;
pub mod gauge;
mod local;
pub mod manager;
pub mod node;
mod outbox;
mod pulse;
mod reader;
mod requests;
mod resolve;
mod security;
pub mod session;
mod socket;
mod standard;
mod sys;
mod thread;
mod turn;
mod wait;

pub use bulk::EagerGrant;
pub use bulk::memory::HostRegion;
pub use bulk::relay::relayed_bytes;
pub use bulk::rows::Rows;
pub use causeway_proto::status::WireError;
pub use discover::{Discovered, LIMIT as ENUMERATION_LIMIT, Reply, Target, ask, ask_any, discover};
pub use encode::EncodeCommand;
pub use events::SessionEvents;
pub use exit::{at_end, at_exit_flush, is_ending};
pub use fork::check as check_not_forked;
pub use node::{DISCONNECTED, Node, node_status};
pub use session::{Location, Session};
pub(crate) use thread::{as_ours as as_transport_thread, waiting_next};
