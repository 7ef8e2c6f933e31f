//! Launches that compute a share of a picture's rows, where each row takes its own time.
//!
//! Row `k` of a launch is counted in the second dimension. Row `k` is row `first + k * stride` of the
//! picture, where `first` and `stride` are `uint` arguments of the kernel. A program can deal rows to
//! devices as it likes, and each launch takes as long as its own rows. In place of a picture, the first
//! buffer gets rows of `uint`. Each row is as long as the first dimension and filled with its own number.
//! A program that joins the shares can thus check that each row is in its place.
//!
//! Other modules decide when a launch runs. Invariant: no byte outside of the buffer is touched.

use serde::Deserialize;

use crate::kernel::{Value, Values};
use crate::memory::Memory;

/// The rows of a picture, and the arguments that tell a kernel which rows to compute.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rows {
    /// The time of each row. Rows past the end take no time.
    ns: Vec<u64>,
    /// The index of the argument with the first row's number.
    first: usize,
    /// The index of the argument with the distance between rows.
    stride: usize,
}

impl Rows {
    /// Returns the row numbers of a launch of `count` rows with these arguments.
    fn numbers(&self, values: &Values, count: usize) -> impl Iterator<Item = usize> {
        let first = uint(values, self.first);
        let stride = uint(values, self.stride);
        (0..count).map(move |row| first.saturating_add(row.saturating_mul(stride)))
    }

    /// Returns the time of a launch of `count` rows, in ns.
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
                // SAFETY: the element is within the buffer, which the launch holds. It may be unaligned.
                unsafe {
                    (target.address as *mut u32)
                        .wrapping_add(element)
                        .write_unaligned(number as u32);
                }
            }
        }
    }
}

/// Returns an argument of four bytes, or 0 for any other argument.
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
        // A row past the picture's end takes no time.
        assert_eq!(rows.time(&values(4, 1), 2), 10_000);
    }
}
