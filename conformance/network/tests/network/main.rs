//! Networks for real: sockets on hosts, and what shapes, cuts and counters do to them.
//!
//! Without root, or without `ip`, `tc` and `nft`, each test says that it is skipped. Times are asserted from below
//! only: a busy machine makes everything later, never earlier.

mod command_line;
mod counters;
mod cuts;
mod lifetime;
mod shapes;
mod support;
