//! Measurements: native, bare socket and Causeway in one run.
fn main() {}
