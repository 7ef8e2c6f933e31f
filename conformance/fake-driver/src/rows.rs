//! Launches that do a share of a picture's rows, each of which takes its own time.
//!
//! Row `k` of a launch, counted in its second dimension, is row `first + k * stride` of the picture,
//! where `first` and `stride` are `uint` arguments of the kernel: so rows can be dealt to devices as a
//! program likes, and every launch takes as long as its own rows would. In place of a picture the
//! first buffer gets rows of `uint`, as long as the first dimension, filled with their numbers: who
//! puts the shares together can see that each row is where it belongs.
//!
//! Not here: when a launch runs. Invariant: no byte outside of the buffer is touched.

use serde::Deserialize;

use crate::kernel::{Value, Values};
use crate::memory::Memory;

/// The rows of a picture, and how a kernel is told which of them to do.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rows {
    /// How long each row takes; rows beyond take none.
    ns: Vec<u64>,
    /// Which argument is the first row's number.
    first: usize,
    /// Which argument is the distance of rows.
    stride: usize,
}

impl Rows {
    /// The numbers of `count` rows of a launch with these arguments.
    fn numbers(&self, values: &Values, count: usize) -> impl Iterator<Item = usize> {
        let first = uint(values, self.first);
        let stride = uint(values, self.stride);
        (0..count).map(move |row| first.saturating_add(row.saturating_mul(stride)))
    }

    /// How long a launch of `count` rows takes, ns.
    pub(crate) fn time(&self, values: &Values, count: usize) -> u64 {
        self.numbers(values, count)
            .map(|row| self.ns.get(row).copied().unwrap_or(0))
            .fold(0, u64::saturating_add)
    }

    /// Fills `count` rows of `width` elements with their numbers.
    pub(crate) fn draw(&self, target: &Memory, values: &Values, width: usize, count: usize) {
        let most = target.size / size_of::<u32>();
        for (row, number) in self.numbers(values, count).enumerate() {
            let first = row.saturating_mul(width).min(most);
            for element in first..first.saturating_add(width).min(most) {
                // SAFETY: within the buffer, which the launch holds; it may not be aligned.
                unsafe {
                    (target.address as *mut u32)
                        .wrapping_add(element)
                        .write_unaligned(number as u32);
                }
            }
        }
    }
}

/// An argument of four bytes; 0 for any other.
fn uint(values: &Values, index: usize) -> usize {
    match values.get(index) {
        Some(Some(Value::Bytes(bytes))) => {
            <[u8; 4]>::try_from(&bytes[..]).map_or(0, |bytes| u32::from_ne_bytes(bytes) as usize)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn values(first: u32, stride: u32) -> Values {
        let value = |number: u32| Some(Value::Bytes(number.to_ne_bytes().into()));
        Arc::new(vec![None, value(first), value(stride)])
    }

    #[test]
    fn a_share_takes_the_time_of_its_rows() {
        let rows = Rows {
            ns: vec![1, 10, 100, 1000, 10_000],
            first: 1,
            stride: 2,
        };
        assert_eq!(rows.time(&values(1, 2), 2), 1010);
        assert_eq!(rows.time(&values(0, 1), 5), 11_111);
        // A row beyond the picture takes no time.
        assert_eq!(rows.time(&values(4, 1), 2), 10_000);
    }
}
