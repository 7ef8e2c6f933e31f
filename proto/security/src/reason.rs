//! The reason why a session has ended, encrypted by the supervisor for the session's client.
//!
//! The keys of a session's TLS connections are gone with the worker's process. So the supervisor encrypts the
//! reason with a key that it derives from the session's secret, and sends it after the worker's last bytes. TLS
//! cannot read it. The client keeps the last bytes of the connection and looks for a reason at their end.
//!
//! ```text
//! ciphertext and tag (ChaCha20-Poly1305) | length of these, 2 bytes
//! ```
//! Invariant: a session's supervisor encrypts one reason at most, so the nonce may be constant.

use causeway_proto::id::SessionSecret;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;

/// Maximum length of a reason in bytes.
pub const MAX_REASON: usize = 1024;
/// Maximum length of an encrypted reason in bytes.
pub const MAX_SEALED_REASON: usize = MAX_REASON + 16 + LENGTH;

/// Size of the length at the end.
const LENGTH: usize = 2;
/// Distinguishes the key from all other uses of the secret.
const USE: &[u8] = b"causeway: the reason of a session's end";

fn key(secret: &SessionSecret) -> Option<LessSafeKey> {
    let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret.0), USE);
    let key = UnboundKey::new(&CHACHA20_POLY1305, derived.as_ref()).ok()?;
    Some(LessSafeKey::new(key))
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; ring::aead::NONCE_LEN])
}

/// Encrypts the reason, of which the first [`MAX_REASON`] bytes count. The caller must do this once for a session at
/// most. Returns `None` if ring refuses.
#[must_use]
pub fn seal_reason(secret: &SessionSecret, reason: &str) -> Option<Vec<u8>> {
    let mut sealed = reason.as_bytes()[..reason.len().min(MAX_REASON)].to_vec();
    let key = key(secret)?;
    key.seal_in_place_append_tag(nonce(), Aad::empty(), &mut sealed)
        .ok()?;
    let length = u16::try_from(sealed.len()).ok()?;
    sealed.extend(length.to_be_bytes());
    Some(sealed)
}

/// Returns the reason with which `bytes` end; `None` if the node's supervisor has encrypted none.
#[must_use]
pub fn open_reason(secret: &SessionSecret, bytes: &[u8]) -> Option<String> {
    let (rest, length) = bytes.split_last_chunk::<LENGTH>()?;
    let length = usize::from(u16::from_be_bytes(*length));
    let mut sealed = rest[rest.len().checked_sub(length)?..].to_vec();
    let key = key(secret)?;
    let reason = key.open_in_place(nonce(), Aad::empty(), &mut sealed).ok()?;
    Some(String::from_utf8_lossy(reason).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: SessionSecret = SessionSecret([7; 32]);

    proptest! {
        #[test]
        fn a_reason_is_read_after_any_bytes(reason: String, before: Vec<u8>) {
            let sealed = seal_reason(&SECRET, &reason).unwrap();
            prop_assert!(sealed.len() <= MAX_SEALED_REASON);
            let bytes = [before, sealed].concat();
            prop_assert_eq!(open_reason(&SECRET, &bytes), Some(reason));
        }

        #[test]
        fn nobody_else_makes_or_changes_a_reason(bytes: Vec<u8>, at: prop::sample::Index, bit in 0..8) {
            prop_assert_eq!(open_reason(&SECRET, &bytes), None);
            let mut sealed = seal_reason(&SECRET, "why").unwrap();
            prop_assert_eq!(open_reason(&SessionSecret([8; 32]), &sealed), None);
            let at = at.index(sealed.len());
            sealed[at] ^= 1_u8 << bit;
            prop_assert_eq!(open_reason(&SECRET, &sealed), None);
        }
    }

    #[test]
    fn a_long_reason_is_cut_and_text_is_not_shown() {
        let sealed = seal_reason(&SECRET, &"é".repeat(MAX_REASON)).unwrap();
        assert_eq!(sealed.len(), MAX_SEALED_REASON);
        assert!(open_reason(&SECRET, &sealed).unwrap().starts_with("éé"));
        let sealed = seal_reason(&SECRET, "a name").unwrap();
        assert!(!String::from_utf8_lossy(&sealed).contains("name"));
    }
}
