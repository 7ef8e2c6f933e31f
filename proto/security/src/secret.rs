//! Bytes that nobody is to see by accident.
//!
//! Invariant: neither `Debug` nor any error shows them, and their memory is wiped when they go. Copies that
//! others make of what [`Secret::reveal`] gives are theirs to wipe.

use std::fmt;

use zeroize::Zeroizing;

/// A token, a key, a password: shown as dots.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Secret {
        Secret(Zeroizing::new(bytes.into()))
    }

    /// The bytes themselves, for what has to send or use them.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_it_is_shown() {
        let secret = Secret::new(*b"hunter2");
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        assert_eq!(secret.reveal(), b"hunter2");
    }
}
