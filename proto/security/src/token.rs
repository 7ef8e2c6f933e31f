//! Tokens: 256 random bits that a client says, of which servers keep the digest.
//!
//! Their randomness is what makes the plain SHA-256 enough: there is nothing to guess.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::files::{BadFile, read_secret};
use crate::secret::Secret;

/// So that people, and tools that look for leaked secrets, know one when they see it.
const PREFIX: &str = "causeway_";
/// Characters of the longest that is looked at.
const MOST: usize = 512;

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(Secret);

/// Not a token.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a token is one line of printable characters without spaces")]
pub struct BadToken;

impl Token {
    /// A fresh one.
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

    /// As somebody wrote it; white space around it does not count.
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

    /// The one that a file holds, which others must not be able to read.
    ///
    /// # Errors
    /// [`BadFile`].
    pub fn from_file(path: &Path) -> Result<Token, BadFile> {
        let text = read_secret(path)?;
        Token::parse(text.reveal()).map_err(|error| BadFile::new(path, error))
    }

    /// For the message that says it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        // It was all ASCII when it was made.
        std::str::from_utf8(self.0.reveal()).unwrap_or_default()
    }

    /// What servers keep.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.0.reveal()).into())
    }
}

/// SHA-256 of a token.
#[derive(Clone, Copy, Debug)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// Whether both are of the same token, in a time that does not tell how much of them is alike.
    #[must_use]
    pub fn matches(&self, other: &TokenHash) -> bool {
        self.0.ct_eq(&other.0).into()
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
