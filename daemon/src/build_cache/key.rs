//! The key under which an entry is stored.
//!
//! A key is a digest of everything that determines the result of a build. Each part is preceded by its
//! length, so that different lists of parts never give the same bytes. Invariant: a change of this format,
//! of an entry's format, or of the way a worker builds requires a new [`FORMAT`].

use std::fmt;

use sha2::{Digest, Sha256};

/// Version of the format. A new one makes all older entries unreachable.
const FORMAT: &[u8] = b"causeway build cache 3";

/// Length of a key in bytes.
pub const KEY: usize = 32;

/// The key of one build for one device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub [u8; KEY]);

impl Key {
    /// Computes the key of a source text, as the compiler receives it, with the application's options, for
    /// the device of `identity`.
    #[must_use]
    pub fn of(identity: &Identity, text: &[u8], options: &str) -> Key {
        let mut parts = Parts::default();
        parts.add(FORMAT);
        parts.add(&identity.0);
        parts.add(text);
        parts.add(options.as_bytes());
        Key(parts.finish())
    }

    /// Parses the hexadecimal form of a key.
    #[must_use]
    pub fn parse(text: &str) -> Option<Key> {
        let digits = text.as_bytes();
        if digits.len() != 2 * KEY || digits.iter().any(|d| !b"0123456789abcdef".contains(d)) {
            return None;
        }
        let mut key = [0; KEY];
        for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Key(key))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Six bytes are enough to distinguish keys in a log.
        self.0[..6]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The tenant to whom an entry belongs. All sessions have the same owner at present. The supervisor
/// determines it, never a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(pub u64);

/// Digest of a device, its drivers, and everything else on the node that influences its compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity([u8; KEY]);

impl Identity {
    /// Computes the digest of these parts.
    #[must_use]
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Identity {
        let mut all = Parts::default();
        for part in parts {
            all.add(part);
        }
        Identity(all.finish())
    }
}

#[derive(Default)]
struct Parts(Sha256);

impl Parts {
    fn add(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    fn finish(self) -> [u8; KEY] {
        self.0.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_part_counts() {
        let one = Identity::of([&b"device"[..], b"1.0"]);
        let other = Identity::of([&b"device1"[..], b".0"]);
        assert_ne!(one, other);
        let key = Key::of(&one, b"kernel", "-w");
        assert_eq!(key, Key::of(&one, b"kernel", "-w"));
        for different in [
            Key::of(&other, b"kernel", "-w"),
            Key::of(&one, b"kernel-", "w"),
            Key::of(&one, b"kernel", "-w "),
            Key::of(&one, b"kerne", "-w"),
        ] {
            assert_ne!(key, different);
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_back(bytes: [u8; KEY]) {
            let key = Key(bytes);
            prop_assert_eq!(Key::parse(&key.to_string()), Some(key));
        }

        #[test]
        fn nothing_else_is_a_name(text in "[0-9a-fA-FxX+ é]{0,70}") {
            if let Some(key) = Key::parse(&text) {
                prop_assert_eq!(key.to_string(), text);
            }
        }
    }
}
