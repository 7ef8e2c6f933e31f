//! Output on standard error: `say!("…")` prints a line.
//!
//! Invariant: nothing else writes to standard error. If the output cannot be written (a full disk, a
//! closed terminal), the tool goes on. It must not abandon a running program or a lease because of a
//! message.

use std::fmt::Arguments;
use std::io::Write as _;

/// Writes this text as far as possible.
pub(crate) fn put(words: Arguments<'_>) {
    let mut error = std::io::stderr().lock();
    let _ = error.write_all(words.to_string().as_bytes());
    let _ = error.flush();
}

/// Prints a line to standard error like `eprintln!`, but ignores errors.
macro_rules! say {
    () => { $crate::say::put(format_args!("\n")) };
    ($($words:tt)*) => { $crate::say::put(format_args!("{}\n", format_args!($($words)*))) };
}

pub(crate) use say;
