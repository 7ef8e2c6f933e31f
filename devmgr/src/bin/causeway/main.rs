//! `causeway`, the command-line tool.
fn main() {}
