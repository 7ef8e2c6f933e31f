//! Tokens: 256 random bits that a client sends, and of which servers store the digest.
//!
//! A plain SHA-256 digest is enough, because a random token cannot be guessed.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::files::{BadFile, read_secret};
use crate::secret::Secret;

/// Prefix by which people, and tools that search for leaked secrets, recognise a token.
const PREFIX: &str = "causeway_";
/// Maximum number of characters.
const MOST: usize = 512;

/// A client's token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(Secret);

/// The text is not a token.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid token; expected one line of printable characters without spaces")]
pub struct BadToken;

impl Token {
    /// Generates a token.
    #[must_use]
    pub fn generate() -> Token {
        let bits: Zeroizing<[u8; 32]> = Zeroizing::new(rand::random());
        let mut text = Vec::with_capacity(PREFIX.len() + 2 * bits.len());
        text.extend_from_slice(PREFIX.as_bytes());
        for byte in bits.iter() {
            for half in [byte >> 4, byte & 15] {
                text.push(b"0123456789abcdef"[usize::from(half)]);
            }
        }
        Token(Secret::new(text))
    }

    /// Parses a token; surrounding white space is ignored.
    ///
    /// # Errors
    /// [`BadToken`].
    pub fn parse(text: &[u8]) -> Result<Token, BadToken> {
        let text = text.trim_ascii();
        if text.is_empty() || text.len() > MOST || !text.iter().all(u8::is_ascii_graphic) {
            return Err(BadToken);
        }
        Ok(Token(Secret::new(text)))
    }

    /// Reads a token from a file, which others must not be able to read.
    ///
    /// # Errors
    /// [`BadFile`].
    pub fn from_file(path: &Path) -> Result<Token, BadFile> {
        let text = read_secret(path)?;
        Token::parse(text.reveal()).map_err(|error| BadFile::new(path, error))
    }

    /// The token's text, for the message that sends it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        // The constructors have checked that the text is ASCII.
        std::str::from_utf8(self.0.reveal()).unwrap_or_default()
    }

    /// The digest that servers store.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.0.reveal()).into())
    }
}

/// SHA-256 of a token.
#[derive(Clone, Copy, Debug)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// Compares two digests in constant time, so that the time reveals nothing about them.
    #[must_use]
    pub fn matches(&self, other: &TokenHash) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// A random key of this process, under which secrets are derived from stored digests (HMAC-SHA256). A derived secret
/// reveals neither the token nor its digest. Nobody who reads the stored digests alone can make or check one.
#[derive(Clone, Debug)]
pub struct DerivingKey(ring::hmac::Key);

impl DerivingKey {
    /// Generates a key.
    #[must_use]
    pub fn generate() -> DerivingKey {
        let bits: Zeroizing<[u8; 32]> = Zeroizing::new(rand::random());
        DerivingKey(ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &*bits))
    }

    /// The secret of a token.
    #[must_use]
    pub fn derive(&self, of: &TokenHash) -> TokenHash {
        let tag = ring::hmac::sign(&self.0, &of.0);
        let mut derived = TokenHash([0; 32]);
        derived.0.copy_from_slice(tag.as_ref());
        derived
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for TokenHash {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<TokenHash, BadToken> {
        let digits = text.as_bytes();
        let mut hash = [0; 32];
        if digits.len() != 2 * hash.len() {
            return Err(BadToken);
        }
        let value = |digit: u8| char::from(digit).to_digit(16).ok_or(BadToken);
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
        }
        Ok(TokenHash(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_hash_and_shown_by_nothing() {
        let (one, other) = (Token::generate(), Token::generate());
        assert!(one.hash().matches(&one.hash()));
        assert!(!one.hash().matches(&other.hash()));
        let written: TokenHash = one.hash().to_string().parse().unwrap();
        assert!(written.matches(&one.hash()));
        assert!(!format!("{one:?}").contains(&one.reveal()[PREFIX.len()..]));
        let read = Token::parse(format!("  {}\n", one.reveal()).as_bytes()).unwrap();
        assert_eq!(read, one);
    }

    #[test]
    fn each_token_has_a_secret_of_its_own_under_each_key() {
        let (one, other) = (Token::generate().hash(), Token::generate().hash());
        let (key, another) = (DerivingKey::generate(), DerivingKey::generate());
        assert!(key.derive(&one).matches(&key.derive(&one)));
        for wrong in [one, another.derive(&one), key.derive(&other)] {
            assert!(!key.derive(&one).matches(&wrong));
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for text in ["", "  \n", "two words", "line\nline", "caf\u{e9}"] {
            assert_eq!(Token::parse(text.as_bytes()), Err(BadToken), "{text:?}");
        }
        assert!(Token::parse(&[b'a'; MOST + 1]).is_err());
        for text in ["", "ab", &"g".repeat(64), &"a".repeat(63), &"a".repeat(65)] {
            assert!(text.parse::<TokenHash>().is_err(), "{text:?}");
        }
    }
}
