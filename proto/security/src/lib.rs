//! Who may, and who is it: TLS, certificates, tokens.
//!
//! - [`Secret`]: bytes that no log and no error text shows.
//!
//! What it is not: it opens no socket and knows no message. Invariant: nothing secret leaves a type of
//! this crate but by a method that says so in its name.
#![forbid(unsafe_code)]

mod secret;

pub use secret::Secret;
