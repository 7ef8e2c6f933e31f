//! Tests with real networks: sockets on hosts, and the effect of shapes, cuts and counters on them.
//!
//! Without root, or without `ip`, `tc` and `nft`, each test reports that it is skipped. Tests check only
//! lower bounds of times, because a busy machine makes everything later, never earlier.

mod command_line;
mod counters;
mod cuts;
mod large;
mod lifetime;
mod shapes;
mod support;
