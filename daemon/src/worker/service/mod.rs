//! The connection service: sockets from the supervisor, greeting and proof, carriers.
//!
//! What it is not: it knows no command. Invariant: nothing that a socket says reaches the session
//! before the session's secret was proved on it.
#![forbid(unsafe_code)]
