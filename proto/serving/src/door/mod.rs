//! A server's door: what a connection of a stranger may cost until somebody was let in over it.
//!
//! - [`Port`]: what HTTP/2 runs over; [`Connection`]: the same for tonic to serve, ended when nobody was let in in time;
//! - [`Standing`]: among whom a connection counts, strangers or those who are known;
//! - [`Judged`]: callers are judged by the head of a call, before anything of its message is taken.
//!
//! What it is not: it does not know by what anybody is known; each server's [`Judge`] does. Invariant: whoever is not let in
//! has no byte of a message in memory, no connection for longer than was given, and says no more than a few calls take.

mod budget;
mod connection;
mod judged;
mod port;
mod standing;

pub use connection::{Connection, Peer};
pub use judged::{Judge, Judged};
pub use port::Port;
pub use standing::{Full, Places, Standing};
