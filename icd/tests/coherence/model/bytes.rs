//! Sets of bytes of a small buffer, with one bit for each byte.

use causeway_proto::region::Region;

pub(crate) const BUFFERS: usize = 2;

/// Bytes of each buffer.
pub(crate) type Sets = [u64; BUFFERS];

pub(crate) fn of_run(start: u64, end: u64) -> u64 {
    let below = |n: u64| if n >= 64 { u64::MAX } else { (1 << n) - 1 };
    below(end) & !below(start)
}

pub(crate) fn of_region(region: &Region) -> u64 {
    region
        .segments(0, u64::MAX)
        .fold(0, |set, s| set | of_run(s.offset, s.offset + s.length))
}

/// The bytes in a set, ascending.
pub(crate) fn each(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let byte = (set != 0).then_some(set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(byte)
    })
}

pub(crate) fn touch(one: &Sets, other: &Sets) -> bool {
    (0..BUFFERS).any(|b| one[b] & other[b] != 0)
}
