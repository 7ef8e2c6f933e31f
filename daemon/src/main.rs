//! `causewayd`, the node daemon.
fn main() {}
