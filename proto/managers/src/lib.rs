//! How a node or a client finds the leader among the device managers of a cluster, and which answers it
//! believes.
//!
//! - [`highest`]: the highest term that was met, and the cluster; pure;
//! - [`search`]: which manager is asked next, and when; pure;
//! - [`probe`]: asks one manager over a connection whether it leads;
//! - [`find`]: runs a search over probes;
//! - [`kept`]: connections to standbys, to ask them again;
//! - [`sought`]: which announced addresses lead to the manager of a name.
//!
//! This crate opens no connection and knows no configuration: the caller says how each manager is reached.
//! Invariant: an answer with a lower term than the highest known one, or of another cluster, is never
//! believed.
#![forbid(unsafe_code)]

pub mod find;
pub mod highest;
pub mod kept;
pub mod probe;
pub mod search;
pub mod sought;

pub use find::{Finder, NotLeader, Patience};
pub use highest::{Disbelieved, HighestTerm};
pub use kept::{Answered, Kept};
pub use search::{Refusal, Search};
