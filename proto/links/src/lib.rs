//! Measured links: how fast two nodes, or a client and a node, reach each other.
//!
//! - [`rounds`]: which pairs are measured at the same time; pure.
//! - [`RoundTrip`], [`Meter`], [`Measured`]: the figures of one measurement; pure.
//! - [`Admission`]: whether a daemon measures now; pure.
//! - [`LinkTable`]: the figures that are kept; pure. [`LinkMemory`] is their file.
//! - [`put_slow_last`]: which of a node's addresses is tried first; pure.
//! - [`dial`], [`lead`], [`follow`]: one measurement, over connections that both ends have proved;
//! - [`dial_with`], [`welcome`]: other connections between nodes, proved in the same way.
//!
//! Nothing here listens, and nothing here decides who may measure. Invariant: a measurement ends within
//! [`Terms::limit`], whatever the other end does.
#![forbid(unsafe_code)]

mod admission;
mod dial;
mod exchange;
mod figures;
mod memory;
mod order;
mod plan;
mod stream;
mod table;
mod wire;

pub use admission::{Admission, Asker, Busy, MOST_TRAFFIC, Refused, SessionLoad, Used};
pub use dial::{
    Dialled, FarNode, NotDialled, WrongDigest, certificate, dial, dial_any, dial_with, welcome,
};
pub use exchange::{Ends, NotMeasured, Terms, follow, lanes, lead};
pub use figures::{Measured, Meter, PROBES, RoundTrip};
pub use memory::{BadMemory, LinkMemory, seconds_now};
pub use order::{is_speed_of, link_speed, put_slow_last};
pub use plan::rounds;
pub use table::{LinkEntry, LinkTable, MOST_BYTES, MOST_ENTRIES, is_old};
