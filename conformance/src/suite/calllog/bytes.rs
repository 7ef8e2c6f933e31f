//! Ranges and rectangles of bytes, and their digests, as logs show them.
//!
//! Invariant: the digests of two adjacent pieces combine to that of the whole, wherever it was cut.

use std::fmt;

use super::line::{Call, number};

/// A transfer of a range, or a piece of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) verb: &'static str,
    pub(super) memory: String,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) digest: Option<Digest>,
    /// Whether all pieces of the transfer are included.
    pub(super) whole: bool,
}

impl Transfer {
    /// Whether both may be pieces of one transfer.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        self.verb == other.verb && self.memory == other.memory
    }

    /// Joins pieces to one transfer, if together they are a range without gaps.
    pub(super) fn joined(mut pieces: Vec<&Self>) -> Option<Self> {
        pieces.sort_by_key(|piece| piece.offset);
        let (first, rest) = pieces.split_first()?;
        let mut whole = (*first).clone();
        for piece in rest {
            if whole.offset + whole.size != piece.offset {
                return None;
            }
            whole.size += piece.size;
            let digests = whole.digest.zip(piece.digest);
            whole.digest = digests.map(|(before, next)| before.followed_by(next));
        }
        whole.whole = true;
        Some(whole)
    }
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {}+{}",
            self.verb, self.memory, self.offset, self.size
        )?;
        self.digest.map_or(Ok(()), |digest| write!(f, " {digest}"))
    }
}

/// The device's side of a rectangle.
#[derive(Debug)]
pub(super) struct Region {
    offset: u64,
    row: u64,
    rows: u64,
    slices: u64,
    row_pitch: u64,
    slice_pitch: u64,
}

impl Region {
    pub(super) fn of(call: &Call, side: &str) -> Self {
        let triple = |name: &str| {
            let list = call.list(name);
            [0, 1, 2].map(|at| list.get(at).map_or(0, |text| number(text)))
        };
        let [row, rows, slices] = triple("region");
        let [x, y, z] = triple(&format!("{side}_origin"));
        let or = |value: u64, default: u64| if value == 0 { default } else { value };
        let row_pitch = or(call.number(&format!("{side}_row_pitch")), row);
        let slice_pitch = or(
            call.number(&format!("{side}_slice_pitch")),
            row_pitch * rows,
        );
        Self {
            offset: x + y * row_pitch + z * slice_pitch,
            row,
            rows,
            slices,
            row_pitch,
            slice_pitch,
        }
    }

    /// Returns offset and size if the rectangle is a plain range.
    pub(super) fn plain(&self) -> Option<(u64, u64)> {
        let tight_rows = self.rows == 1 || self.row_pitch == self.row;
        let tight_slices = self.slices == 1 || self.slice_pitch == self.row * self.rows;
        let size = self.row * self.rows * self.slices;
        (tight_rows && tight_slices).then_some((self.offset, size))
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            offset,
            row,
            rows,
            slices,
            row_pitch,
            slice_pitch,
        } = self;
        write!(
            f,
            "{offset}+{row}×{rows}×{slices} by {row_pitch},{slice_pitch}"
        )
    }
}

/// Length and hash of bytes, as in the fake driver's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    length: u64,
    hash: u128,
}

impl Digest {
    const PRIME: u128 = (1 << 61) - 1;
    const K: u128 = 0x1234_5678_9ABC_DEF1;

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (length, hash) = text.split_once(':')?;
        Some(Self {
            length: length.parse().ok()?,
            hash: u128::from_str_radix(hash, 16).ok()?,
        })
    }

    /// Returns the digest of both pieces together.
    pub(super) fn followed_by(self, next: Self) -> Self {
        let (mut power, mut base, mut exponent) = (1, Self::K, self.length);
        while exponent > 0 {
            if exponent & 1 == 1 {
                power = power * base % Self::PRIME;
            }
            base = base * base % Self::PRIME;
            exponent >>= 1;
        }
        Self {
            length: self.length + next.length,
            hash: (self.hash + power * next.hash) % Self::PRIME,
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:016x}", self.length, self.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes a digest as the fake driver does.
    fn digest(bytes: &[u8]) -> Digest {
        let (mut hash, mut power) = (0, 1);
        for byte in bytes {
            hash = (hash + (u128::from(*byte) + 1) * power) % Digest::PRIME;
            power = power * Digest::K % Digest::PRIME;
        }
        Digest {
            length: bytes.len() as u64,
            hash,
        }
    }

    #[test]
    fn pieces_equal_the_whole() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for cut in [0, 1, 500, 999, 1000] {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(digest(first).followed_by(digest(second)), digest(&bytes));
        }
        let told = digest(&bytes).to_string();
        assert_eq!(Digest::parse(&told), Some(digest(&bytes)));
    }

    #[test]
    fn a_rectangle_of_whole_rows_is_a_range() {
        let call = Call::parse(
            "f(buffer_origin=[0, 2, 0], region=[16, 3, 1], buffer_row_pitch=0, \
             buffer_slice_pitch=0) = CL_SUCCESS",
        );
        let region = Region::of(&call.unwrap(), "buffer");
        assert_eq!(region.plain(), Some((32, 48)));
    }
}
