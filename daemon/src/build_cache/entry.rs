//! The binary format of an entry: header, the answer for a client, the driver's binary.
//!
//! ```text
//! magic 8 | key 32 | length of the answer u32 | length of the binary u64 | SHA-256 of all else 32 | answer | binary
//! ```
//! Numbers are little-endian. The answer is protobuf with a low size limit, because it grows when it is
//! decoded. The binary is only copied. Invariant: bytes that [`CachedBuild::decode`] accepts were encoded for
//! exactly this key, by a session of the entry's user. That session may be hostile.

use causeway_proto::command::{DeviceBuild, KernelSignature};
use prost::Message;
use sha2::{Digest, Sha256};

use super::key::{KEY, Key};
use super::stamp::{MAX_STAMPS, Stamp};

const MAGIC: [u8; 8] = *b"cwbuild1";
const DIGEST: usize = 32;
const ANSWER_AT: usize = 8 + KEY;
const BINARY_AT: usize = ANSWER_AT + 4;
const DIGEST_AT: usize = BINARY_AT + 8;
/// Length of the header, in bytes.
const HEADER: usize = DIGEST_AT + DIGEST;
/// Maximum length of an answer, in bytes. Decoding can turn 2 bytes into 150.
const MAX_ANSWER: usize = 1 << 20;
/// Maximum length of a binary, in bytes.
const MAX_BINARY: usize = 64 << 20;
/// Maximum length of an entry, in bytes.
pub const MAX_ENTRY: usize = HEADER + MAX_ANSWER + MAX_BINARY;

/// The result of a build for one device.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedBuild {
    /// The answer for the client.
    pub answer: Answer,
    /// The driver's binary, from `CL_PROGRAM_BINARIES`.
    pub binary: Vec<u8>,
}

/// The answer for the client of a build. The device has number 0 in it.
#[derive(Clone, PartialEq, Message)]
pub struct Answer {
    /// Whether the build recorded argument info, so that it is also requested when the binary is loaded.
    #[prost(bool, tag = "1")]
    pub arg_info: bool,
    /// Status, log and binary type.
    #[prost(message, optional, tag = "2")]
    pub build: Option<DeviceBuild>,
    /// All kernels, in the driver's order. Drivers' binaries contain less about kernels than this.
    #[prost(message, repeated, tag = "3")]
    pub kernels: Vec<KernelSignature>,
    /// Files that the driver loaded to compile and that are not in the key. This is not for the client.
    #[prost(message, repeated, tag = "4")]
    pub loaded: Vec<Stamp>,
}

/// Reasons for which bytes are not a valid entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The entry is truncated, or the bytes are something else.
    #[error("the data is not an entry of the build cache")]
    Shape,
    /// The entry was modified.
    #[error("the entry's checksum is wrong")]
    Checksum,
    /// The entry belongs to another build.
    #[error("the entry belongs to another build")]
    Key,
    /// The entry exceeds a length limit.
    #[error("the entry exceeds the length limit")]
    Length,
}

impl CachedBuild {
    /// Encodes the entry.
    ///
    /// # Errors
    /// [`Broken::Length`] if a length limit is exceeded.
    pub fn encode(&self, key: &Key) -> Result<Vec<u8>, Broken> {
        let answer = self.answer.encode_to_vec();
        let stamps = self.answer.loaded.len();
        if answer.len() > MAX_ANSWER || self.binary.len() > MAX_BINARY || stamps > MAX_STAMPS {
            return Err(Broken::Length);
        }
        let mut bytes = Vec::with_capacity(HEADER + answer.len() + self.binary.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&key.0);
        bytes.extend_from_slice(&(answer.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.binary.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&[0; DIGEST]);
        bytes.extend_from_slice(&answer);
        bytes.extend_from_slice(&self.binary);
        let digest = digest(&bytes);
        bytes[DIGEST_AT..HEADER].copy_from_slice(&digest);
        Ok(bytes)
    }

    /// Decodes the entry of `key`.
    ///
    /// # Errors
    /// [`Broken`] if the bytes are not an intact entry of `key`.
    pub fn decode(bytes: &[u8], key: &Key) -> Result<CachedBuild, Broken> {
        if key_of(bytes)? != *key {
            return Err(Broken::Key);
        }
        let (answer, binary) = parts(bytes)?;
        let answer = Answer::decode(answer).map_err(|_| Broken::Shape)?;
        if answer.loaded.len() > MAX_STAMPS {
            return Err(Broken::Length);
        }
        let binary = binary.to_vec();
        Ok(CachedBuild { answer, binary })
    }

    /// Returns whether all files that the driver loaded to compile are unchanged. Accesses the disk.
    pub fn is_current(&self) -> bool {
        self.answer.loaded.iter().all(Stamp::is_current)
    }
}

/// Returns the key of an entry after checking its shape and checksum.
fn key_of(bytes: &[u8]) -> Result<Key, Broken> {
    parts(bytes)?;
    if bytes[DIGEST_AT..HEADER] != digest(bytes) {
        return Err(Broken::Checksum);
    }
    let key = bytes[MAGIC.len()..ANSWER_AT].try_into();
    Ok(Key(key.map_err(|_| Broken::Shape)?))
}

/// Splits an entry into answer and binary, after checking their lengths.
fn parts(bytes: &[u8]) -> Result<(&[u8], &[u8]), Broken> {
    let (header, body) = bytes.split_at_checked(HEADER).ok_or(Broken::Shape)?;
    if header[..MAGIC.len()] != MAGIC {
        return Err(Broken::Shape);
    }
    let number = |from: usize, to: usize| {
        let mut wide = [0; 8];
        wide[..to - from].copy_from_slice(&header[from..to]);
        usize::try_from(u64::from_le_bytes(wide)).map_err(|_| Broken::Length)
    };
    let answer = number(ANSWER_AT, BINARY_AT)?;
    let binary = number(BINARY_AT, DIGEST_AT)?;
    if answer > MAX_ANSWER || binary > MAX_BINARY {
        return Err(Broken::Length);
    }
    if body.len() != answer + binary {
        return Err(Broken::Shape);
    }
    Ok(body.split_at(answer))
}

fn digest(bytes: &[u8]) -> [u8; DIGEST] {
    let mut digest = Sha256::new();
    digest.update(&bytes[..DIGEST_AT]);
    digest.update(&bytes[HEADER..]);
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HERS: Key = Key([7; KEY]);

    fn entry(name: &str, binary: Vec<u8>) -> CachedBuild {
        CachedBuild {
            answer: Answer {
                arg_info: true,
                build: Some(DeviceBuild {
                    log: "warning".to_owned(),
                    ..DeviceBuild::default()
                }),
                kernels: vec![KernelSignature {
                    name: name.to_owned(),
                    ..KernelSignature::default()
                }],
                loaded: vec![Stamp::of("/").unwrap()],
            },
            binary,
        }
    }

    #[test]
    fn another_builds_entry_is_not_taken() {
        let bytes = entry("f", vec![1]).encode(&HERS).unwrap();
        assert_eq!(
            CachedBuild::decode(&bytes, &Key([8; KEY])),
            Err(Broken::Key)
        );
    }

    #[test]
    fn what_is_too_long_is_not_made() {
        let log = "x".repeat(MAX_ANSWER);
        let mut long = entry("f", Vec::new());
        long.answer.kernels[0].name = log;
        assert_eq!(long.encode(&HERS), Err(Broken::Length));
    }

    proptest! {
        #[test]
        fn entries_are_read_back(name in ".{0,9}", binary: Vec<u8>) {
            let entry = entry(&name, binary);
            let bytes = entry.encode(&HERS).unwrap();
            prop_assert_eq!(CachedBuild::decode(&bytes, &HERS), Ok(entry));
        }

        #[test]
        fn one_changed_byte_is_noticed(binary: Vec<u8>, at: prop::sample::Index, with in 1u8..) {
            let mut bytes = entry("f", binary).encode(&HERS).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= with;
            prop_assert!(CachedBuild::decode(&bytes, &HERS).is_err());
        }

        #[test]
        fn one_that_was_cut_is_noticed(binary: Vec<u8>, at: prop::sample::Index) {
            let bytes = entry("f", binary).encode(&HERS).unwrap();
            prop_assert!(CachedBuild::decode(&bytes[..at.index(bytes.len())], &HERS).is_err());
        }

        #[test]
        fn anything_ends_in_an_answer(mut bytes: Vec<u8>, sign: bool) {
            // The checksum is valid, as an attacker would make it.
            if sign {
                let mut whole = entry("", Vec::new()).encode(&HERS).unwrap();
                whole.truncate(HEADER);
                whole[ANSWER_AT..BINARY_AT].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
                whole.append(&mut bytes);
                let digest = digest(&whole);
                whole[DIGEST_AT..HEADER].copy_from_slice(&digest);
                bytes = whole;
            }
            let _ = CachedBuild::decode(&bytes, &HERS);
        }
    }
}
