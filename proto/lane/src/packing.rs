//! Compression of chunks: decides when to try it, and reads and writes LZ4 blocks.
//!
//! Compression pays where a network is slower than one core compresses, and only for data that becomes
//! smaller. The first chunk of each transfer is the sample. Headers are up to the caller. Invariant: an
//! unpacked chunk has exactly the announced length, or is an error. Nothing that the peer sends makes a
//! buffer larger than that.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use crate::buffer::Buffer;
use crate::stream::Stream;

/// Size of the header in front of each chunk.
const HEADER: usize = 32;
/// Chunks below this size are not compressed.
const SMALL: u64 = 16 << 10;
/// After this number of chunks in a row that do not become smaller, the transfer is sent uncompressed.
/// The first chunk of a transfer decides alone.
const MISSES: u32 = 2;
/// Number of uncompressed chunks before the next attempt.
const AGAIN: u32 = 64;

/// Decides whether the chunks of a transfer are compressed. Pure.
#[derive(Debug, Default)]
struct Trial {
    transfer: Option<u64>,
    misses: u32,
    // Number of chunks to send uncompressed before the next attempt.
    alone: u32,
}

impl Trial {
    fn wants(&mut self, transfer: u64, length: u64) -> bool {
        if self.transfer != Some(transfer) {
            *self = Trial {
                transfer: Some(transfer),
                // For the first chunk, one miss is enough.
                misses: MISSES - 1,
                alone: 0,
            };
        }
        if length < SMALL {
            return false;
        }
        if self.alone == 0 {
            return true;
        }
        self.alone -= 1;
        false
    }

    fn learn(&mut self, smaller: bool) {
        if smaller {
            self.misses = 0;
            return;
        }
        self.misses += 1;
        if self.misses >= MISSES {
            self.alone = AGAIN;
            // After the pause, one more miss is enough.
            self.misses = MISSES - 1;
        }
    }
}

/// The compressing end of one lane.
#[derive(Debug)]
pub struct Packer {
    trial: Trial,
    raw: Stream,
    packed: Vec<u8>,
}

impl Default for Packer {
    fn default() -> Packer {
        Packer {
            trial: Trial::default(),
            raw: Stream::Buffer(Buffer::default()),
            packed: Vec::new(),
        }
    }
}

impl Packer {
    /// Whether the next chunk of `transfer`, with `length` bytes, should be sent by [`Packer::send`].
    pub fn wants(&mut self, transfer: u64, length: u64) -> bool {
        self.trial.wants(transfer, length)
    }

    /// Sends a chunk, compressed if that makes it smaller by at least an eighth. `put` writes the chunk's
    /// bytes. `header` makes its header from the number of compressed bytes, or `None`.
    ///
    /// # Errors
    /// Errors of the stream.
    pub fn send(
        &mut self,
        mut stream: &Stream,
        header: impl FnOnce(Option<u32>) -> [u8; HEADER],
        put: impl FnOnce(&Stream) -> io::Result<()>,
    ) -> io::Result<()> {
        let packed = self.pack(header, put)?;
        stream.write_all(packed.bytes)
    }

    /// As [`Packer::send`], but returns the message instead of sending it.
    ///
    /// # Errors
    /// Errors of `put`.
    pub fn pack(
        &mut self,
        header: impl FnOnce(Option<u32>) -> [u8; HEADER],
        put: impl FnOnce(&Stream) -> io::Result<()>,
    ) -> io::Result<Packed<'_>> {
        let Stream::Buffer(raw) = &mut self.raw else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        raw.renew(|bytes| {
            bytes.clear();
            bytes.resize(HEADER, 0);
        });
        put(&self.raw)?;
        let Stream::Buffer(raw) = &mut self.raw else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let packed = &mut self.packed;
        let bytes = raw.bytes_mut();
        let length = bytes.len() - HEADER;
        packed.resize(HEADER + get_maximum_output_size(length), 0);
        let smaller = compress_into(&bytes[HEADER..], &mut packed[HEADER..])
            .ok()
            .filter(|smaller| *smaller <= length - length / 8);
        self.trial.learn(smaller.is_some());
        let message = match smaller {
            Some(smaller) => {
                packed[..HEADER].copy_from_slice(&header(Some(smaller as u32)));
                &packed[..HEADER + smaller]
            }
            None => {
                bytes[..HEADER].copy_from_slice(&header(None));
                &bytes[..]
            }
        };
        Ok(Packed {
            bytes: message,
            is_smaller: smaller.is_some(),
        })
    }
}

/// A chunk's message, with its header.
#[derive(Debug)]
pub struct Packed<'a> {
    /// Header and bytes.
    pub bytes: &'a [u8],
    /// Whether the chunk is compressed.
    pub is_smaller: bool,
}

/// The unpacking end of one lane.
#[derive(Debug)]
pub struct Unpacker {
    packed: Vec<u8>,
    raw: Stream,
}

impl Default for Unpacker {
    fn default() -> Unpacker {
        Unpacker {
            packed: Vec::new(),
            raw: Stream::Buffer(Buffer::default()),
        }
    }
}

impl Unpacker {
    /// Reads `packed` bytes from the stream and unpacks them into `length` bytes. Returns a stream of
    /// those. The caller has checked that neither number exceeds a chunk's size.
    ///
    /// # Errors
    /// Errors of the stream; `InvalidData` if the bytes are no LZ4 block of that length.
    pub fn receive(&mut self, stream: &Stream, packed: u32, length: u32) -> io::Result<&Stream> {
        let mut stream = stream;
        self.packed.resize(packed as usize, 0);
        stream.read_exact(&mut self.packed)?;
        let Stream::Buffer(raw) = &self.raw else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        raw.renew(|bytes| {
            bytes.resize(length as usize, 0);
            let got = decompress_into(&self.packed, bytes)
                .map_err(|error| bad(format!("a compressed chunk cannot be unpacked: {error}")))?;
            if got == bytes.len() {
                Ok(())
            } else {
                Err(bad(format!(
                    "a compressed chunk has {got} bytes instead of {length}"
                )))
            }
        })?;
        Ok(&self.raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream_of(bytes: &[u8]) -> Stream {
        let buffer = Buffer::default();
        buffer.renew(|held| held.extend_from_slice(bytes));
        Stream::Buffer(buffer)
    }

    // Sends a chunk with the packer. Returns the length that the header got, and the bytes after the
    // header.
    fn sent(packer: &mut Packer, bytes: &[u8]) -> (Option<u32>, Stream) {
        let mut said = None;
        let wire = Stream::Buffer(Buffer::default());
        let header = |packed| {
            said = packed;
            [7; HEADER]
        };
        let put = |mut raw: &Stream| raw.write_all(bytes);
        packer.send(&wire, header, put).unwrap();
        let mut head = [0; HEADER];
        (&wire).read_exact(&mut head).unwrap();
        assert_eq!(head, [7; HEADER]);
        (said, wire)
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in(
            (length, period, seed) in (1..100_000usize, 1..3000usize, any::<u8>()),
        ) {
            let mut bytes: Vec<u8> = noise(period).into_iter().cycle().take(length).collect();
            bytes[0] = seed;
            let (said, wire) = sent(&mut Packer::default(), &bytes);
            let mut got = vec![0; length];
            match said {
                Some(packed) => {
                    prop_assert!((packed as usize) < length);
                    let mut unpacker = Unpacker::default();
                    let mut raw = unpacker.receive(&wire, packed, length as u32).unwrap();
                    raw.read_exact(&mut got).unwrap();
                    prop_assert_eq!(raw.read(&mut [0]).unwrap(), 0);
                }
                None => (&wire).read_exact(&mut got).unwrap(),
            }
            prop_assert!(got == bytes);
            prop_assert_eq!((&wire).read(&mut [0]).unwrap(), 0, "nothing is left");
        }

        #[test]
        fn any_bytes_unpack_to_the_length_that_was_said_or_are_refused(
            bytes in prop::collection::vec(any::<u8>(), 1..300),
            length in 1..100_000u32,
        ) {
            let mut unpacker = Unpacker::default();
            let packed = bytes.len() as u32;
            if let Ok(mut raw) = unpacker.receive(&stream_of(&bytes), packed, length) {
                let mut got = Vec::new();
                raw.read_to_end(&mut got).unwrap();
                prop_assert_eq!(got.len(), length as usize);
            }
        }
    }

    #[test]
    fn a_block_of_another_length_is_refused() {
        let (said, wire) = sent(&mut Packer::default(), &[0; 50_000]);
        let packed = said.unwrap();
        let mut bytes = vec![0; packed as usize];
        (&wire).read_exact(&mut bytes).unwrap();
        for length in [49_999, 50_001, 1] {
            let error = Unpacker::default()
                .receive(&stream_of(&bytes), packed, length)
                .unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        let mut unpacker = Unpacker::default();
        let cut = unpacker.receive(&stream_of(&bytes[1..]), packed, 50_000);
        assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_does_not_become_smaller_is_sent_as_it_is_and_not_tried_for_a_while() {
        let mut packer = Packer::default();
        let bytes = noise(100_000);
        assert!(packer.wants(1, 100_000));
        assert_eq!(sent(&mut packer, &bytes).0, None);
        for _ in 0..AGAIN {
            assert!(!packer.wants(1, 100_000));
        }
        assert!(packer.wants(1, 100_000), "it may have changed");
        assert!(packer.wants(2, 100_000), "another transfer, another sample");
        assert!(!packer.wants(3, SMALL - 1));
    }

    #[test]
    fn one_bad_chunk_amid_good_ones_is_borne() {
        let mut packer = Packer::default();
        for bad in [false, true, false, true] {
            assert!(packer.wants(1, 100_000));
            let bytes = if bad {
                noise(100_000)
            } else {
                vec![1; 100_000]
            };
            assert_eq!(sent(&mut packer, &bytes).0.is_none(), bad);
        }
    }
}
