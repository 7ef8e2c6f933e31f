//! What the tool says on standard error: `say!("…")`, a line.
//!
//! Invariant: nobody else writes there, and that nobody can read it (a full disk, a terminal that is gone) changes nothing
//! of what the tool does: a program that runs and a lease that is held must not be abandoned for a word about them.

use std::fmt::Arguments;
use std::io::Write as _;

/// Writes this, whole, as far as anybody takes it.
pub(crate) fn put(words: Arguments<'_>) {
    let mut error = std::io::stderr().lock();
    let _ = error.write_all(words.to_string().as_bytes());
    let _ = error.flush();
}

/// Says a line, as `eprintln!` does.
macro_rules! say {
    () => { $crate::say::put(format_args!("\n")) };
    ($($words:tt)*) => { $crate::say::put(format_args!("{}\n", format_args!($($words)*))) };
}

pub(crate) use say;
