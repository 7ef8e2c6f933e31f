//! Dealing things to devices in turn: lines of a picture, blocks of events.
//!
//! Invariant: every thing goes to exactly one device, and shares differ by one thing at most.
#![forbid(unsafe_code)]

use std::ops::Range;

/// The number of `count` lines that device `device` of `devices` gets, round-robin. Its line `k` is line
/// `device + k * devices`.
pub(crate) fn share(count: usize, devices: usize, device: usize) -> usize {
    count.saturating_sub(device).div_ceil(devices)
}

/// The consecutive part of `count` things that device `device` of `devices` gets, cut at multiples
/// of `block`.
pub(crate) fn slice(count: usize, block: usize, devices: usize, device: usize) -> Range<usize> {
    let blocks = count.div_ceil(block);
    let cut = |device: usize| (blocks * device / devices * block).min(count);
    cut(device)..cut(device + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_dealt_once() {
        for (count, devices) in [(3200, 16), (10, 3), (2, 4), (0, 2), (7, 7), (1, 1)] {
            let mut seen = vec![0; count];
            for device in 0..devices {
                for k in 0..share(count, devices, device) {
                    seen[device + k * devices] += 1;
                }
            }
            assert!(seen.iter().all(|times| *times == 1), "{count} to {devices}");
        }
    }

    #[test]
    fn slices_are_whole_blocks_and_cover_everything() {
        for (count, block, devices) in [(1000, 16, 3), (5, 16, 4), (64, 16, 4), (0, 16, 2)] {
            let slices: Vec<_> = (0..devices)
                .map(|device| slice(count, block, devices, device))
                .collect();
            assert_eq!(slices[0].start, 0);
            assert_eq!(slices[devices - 1].end, count);
            for pair in slices.windows(2) {
                assert_eq!(pair[0].end, pair[1].start);
                assert!(pair[1].start == count || pair[1].start.is_multiple_of(block));
            }
        }
    }
}
