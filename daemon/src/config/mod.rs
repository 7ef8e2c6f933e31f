//! Settings: flags and file, raw first, then validated.
#![forbid(unsafe_code)]
