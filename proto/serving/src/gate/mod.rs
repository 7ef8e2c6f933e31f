//! Limits for the connections of a server's port until somebody has authenticated over them.
//!
//! A *stranger* is a peer that has not authenticated; a caller is *known* afterwards.
//! - [`Port`]: the stream under HTTP/2. [`Connection`]: the same for tonic, with a deadline for
//!   authentication;
//! - [`Standing`]: whether a connection counts as a stranger's or as a known caller's;
//! - [`Judged`]: authenticates callers by the headers of a call, before anything of its message is read.
//!
//! This module does not authenticate; each server's [`Judge`] does. Invariant: for a stranger, no byte of a
//! message is in memory, no connection outlives its deadline unless a call [keeps it open](Standing::keep_open), and the data
//! read is limited to a few calls.

mod budget;
mod connection;
mod judged;
mod port;
mod standing;

pub use connection::{Connection, Peer};
pub use judged::{Judge, Judged};
pub use port::Port;
pub use standing::{Full, KeptOpen, Places, Standing};
