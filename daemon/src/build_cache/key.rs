//! The name under which an entry is stored: its owner, and the key of the build.
//!
//! A key is a digest of everything that determines the result of a build. Each part is preceded by its
//! length, so that different lists of parts never give the same bytes. An owner is a digest, too. So a
//! file's name never contains what somebody chose. Invariant: a change of this format, of an entry's
//! format, or of the way a worker builds requires a new [`FORMAT`].

use std::fmt;

use sha2::{Digest, Sha256};

/// Version of the format. A new one makes all older entries unreachable.
const FORMAT: &[u8] = b"causeway build cache 4";

/// Length of a key in bytes.
pub const KEY: usize = 32;
/// Length of an owner's digest in bytes.
const OWNER: usize = 16;
/// Length of the owner in the names of formats 1 to 3, in digits.
const FORMER_OWNER: usize = 16;

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
        digits(text).map(Key)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Parses lowercase hexadecimal digits, two for each byte.
fn digits<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_digit = |d: &u8| b"0123456789abcdef".contains(d);
    if text.len() != 2 * N || !text.as_bytes().iter().all(is_digit) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Six bytes are enough to distinguish keys in a log.
        self.0[..6]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The user to whom an entry belongs, as a digest. The supervisor determines it, never a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner([u8; OWNER]);

impl Owner {
    /// Returns the owner for the user of this name. `None` stands for the one user of a daemon that
    /// authenticates nobody.
    #[must_use]
    pub fn of(user: Option<&str>) -> Owner {
        let mut parts = Parts::default();
        parts.add(b"owner");
        if let Some(user) = user {
            parts.add(user.as_bytes());
        }
        let mut owner = [0; OWNER];
        owner.copy_from_slice(&parts.finish()[..OWNER]);
        Owner(owner)
    }
}

/// The name of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The user to whom the entry belongs.
    pub owner: Owner,
    /// The build.
    pub key: Key,
}

impl Name {
    /// Returns the name of the entry's file.
    pub fn file(&self) -> String {
        let owner = self.owner.0.iter().map(|byte| format!("{byte:02x}"));
        format!("{}-{}", owner.collect::<String>(), self.key)
    }

    /// Parses the name of a file. Accepts only the spelling of [`Name::file`], so that each entry has
    /// exactly one file.
    #[must_use]
    pub fn parse(text: &str) -> Option<Name> {
        let (owner, key) = text.split_once('-')?;
        Some(Name {
            owner: Owner(digits(owner)?),
            key: Key::parse(key)?,
        })
    }

    /// Returns whether a file has the name of an entry of an earlier format.
    #[must_use]
    pub fn is_former(text: &str) -> bool {
        text.split_once('-').is_some_and(|(owner, key)| {
            digits::<{ FORMER_OWNER / 2 }>(owner).is_some() && Key::parse(key).is_some()
        })
    }
}

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

    #[test]
    fn every_user_is_another_owner() {
        let users = [None, Some(""), Some("ann"), Some("ann/../bob"), Some("bob")];
        let owners: std::collections::HashSet<Owner> = users.map(Owner::of).into();
        assert_eq!(owners.len(), users.len());
        assert_eq!(Owner::of(Some("ann")), Owner::of(Some("ann")));
        for user in users {
            let (owner, key) = (Owner::of(user), Key([0xab; KEY]));
            let file = Name { owner, key }.file();
            assert_eq!(file.len(), 2 * OWNER + 1 + 2 * KEY);
            assert!(
                file.bytes().all(|c| c.is_ascii_hexdigit() || c == b'-'),
                "{file}"
            );
        }
    }

    #[test]
    fn names_have_one_spelling() {
        let name = Name {
            owner: Owner::of(Some("ann")),
            key: Key([0xab; KEY]),
        };
        let text = name.file();
        assert_eq!(Name::parse(&text), Some(name));
        let former = &text[FORMER_OWNER..];
        for other in [
            &text.to_uppercase(),
            &format!("+{}", &text[1..]),
            &text[1..],
            former,
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
        assert!(Name::is_former(former));
        assert!(!Name::is_former(&text) && !Name::is_former(&former[1..]));
    }

    proptest! {
        #[test]
        fn a_key_is_read_back(bytes: [u8; KEY]) {
            let key = Key(bytes);
            prop_assert_eq!(Key::parse(&key.to_string()), Some(key));
        }

        #[test]
        fn nothing_else_is_a_key(text in "[0-9a-fA-FxX+ é]{0,70}") {
            if let Some(key) = Key::parse(&text) {
                prop_assert_eq!(key.to_string(), text);
            }
        }
    }
}
