//! The picture itself: the places of its points, their cost, and their check.
//!
//! Pure. The host computes as the kernel does, operation by operation, in `float` and without fused multiply-add.
//! Invariant: [`View::steps`] of a point is the number that the kernel stores for it.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use crate::png::Picture;

/// The part of the plane that is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub(crate) struct View {
    /// Pixels a line
    #[arg(long, default_value_t = 4800)]
    pub(crate) width: u32,
    /// Lines
    #[arg(long, default_value_t = 3200)]
    pub(crate) height: u32,
    /// Steps after which a point counts as inside
    #[arg(long, default_value_t = 20_000)]
    pub(crate) iterations: u32,
}

impl View {
    /// Side of a pixel, so that the whole set is in the picture.
    pub(crate) fn pixel(&self) -> f32 {
        (3.2 / self.width as f32).max(2.4 / self.height as f32)
    }

    /// Real part of the first column.
    pub(crate) fn left(&self) -> f32 {
        -0.65 - 0.5 * self.pixel() * self.width as f32
    }

    /// Imaginary part of the first row. The real axis is between two rows.
    pub(crate) fn top(&self) -> f32 {
        0.5 * self.pixel() * (self.height as f32 - 1.0)
    }

    /// Bytes of the picture in the kernel's form, a `uint` for each pixel.
    pub(crate) fn bytes(&self) -> usize {
        4 * self.width as usize * self.height as usize
    }

    fn point(&self, x: u32, y: u32) -> (f32, f32) {
        (
            self.left() + self.pixel() * x as f32,
            self.top() - self.pixel() * y as f32,
        )
    }

    /// The number that the kernel stores for a pixel.
    pub(crate) fn steps(&self, x: u32, y: u32) -> u32 {
        let (re, im) = self.point(x, y);
        let (mut zr, mut zi, mut rr, mut ii) = (0.0f32, 0.0f32, 0.0f32, 0.0f32);
        let mut n = 0;
        // If a point repeats in every bit, the orbit is a cycle and never leaves.
        let (mut seen, mut look_again) = ((f32::NAN, f32::NAN), 1u32);
        while n < self.iterations && rr + ii <= 4.0 {
            zi = 2.0 * zr * zi + im;
            zr = rr - ii + re;
            rr = zr * zr;
            ii = zi * zi;
            n += 1;
            if (zr, zi) == seen {
                return self.iterations;
            }
            if n == look_again {
                seen = (zr, zi);
                look_again = look_again.saturating_mul(2);
            }
        }
        n
    }

    /// The cost of each row: the steps of all of its pixels, estimated from every `every`th.
    pub(crate) fn row_costs(&self, every: u32) -> Vec<u64> {
        (0..self.height)
            .map(|y| {
                (0..self.width)
                    .step_by(every.max(1) as usize)
                    .map(|x| u64::from(self.steps(x, y)) * u64::from(every))
                    .sum()
            })
            .collect()
    }

    /// Of `count` pixels spread over the picture, how many are what the host computes.
    pub(crate) fn right_pixels(&self, picture: &[u32], count: usize) -> usize {
        let total = picture.len() as u64;
        // A step of the golden section visits all regions of the picture.
        (0..count as u64)
            .filter(|index| {
                let at = (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16) % total.max(1);
                let (x, y) = (at as u32 % self.width, (at / u64::from(self.width)) as u32);
                picture[at as usize] == self.steps(x, y)
            })
            .count()
    }

    /// A visible picture of every `shrink`th pixel of every `shrink`th row.
    pub(crate) fn colour(&self, picture: &[u32], shrink: usize) -> Picture {
        let width = self.width as usize;
        let mut bytes = Vec::new();
        for row in picture.chunks_exact(width).step_by(shrink) {
            for steps in row.iter().step_by(shrink) {
                bytes.extend_from_slice(&shade(*steps, self.iterations));
            }
        }
        Picture {
            width: width.div_ceil(shrink),
            channels: 3,
            bytes,
        }
    }
}

fn shade(steps: u32, limit: u32) -> [u8; 3] {
    if steps >= limit {
        return [0; 3];
    }
    let phase = (1.0 + steps as f32).ln() * 1.6;
    [0.0, 0.6, 1.2].map(|shift| (127.5 - 127.5 * (phase + shift).cos()) as u8)
}

/// A picture's checksum: FNV-1a over words.
pub(crate) fn checksum(picture: &[u32]) -> u64 {
    picture
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| {
            (hash ^ u64::from(*word)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// Converts row costs to times of the fake driver's launches, with the sum `seconds`.
pub(crate) fn row_times(costs: &[u64], seconds: f64) -> Vec<u64> {
    let total = costs.iter().sum::<u64>().max(1) as f64;
    let time = |cost: &u64| (*cost as f64 / total * seconds * 1e9) as u64;
    costs.iter().map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: View = View {
        width: 48,
        height: 32,
        iterations: 500,
    };

    /// Counts steps without a search for cycles.
    fn plain_steps(view: &View, x: u32, y: u32) -> u32 {
        let (re, im) = view.point(x, y);
        let (mut zr, mut zi) = (0.0f32, 0.0f32);
        for n in 0..view.iterations {
            if zr * zr + zi * zi > 4.0 {
                return n;
            }
            (zr, zi) = (zr * zr - zi * zi + re, 2.0 * zr * zi + im);
        }
        view.iterations
    }

    #[test]
    fn looking_for_cycles_changes_nothing() {
        for y in 0..SMALL.height {
            for x in 0..SMALL.width {
                assert_eq!(SMALL.steps(x, y), plain_steps(&SMALL, x, y), "{x} {y}");
            }
        }
    }

    #[test]
    fn a_wrong_pixel_is_found() {
        let mut picture: Vec<u32> = (0..SMALL.height)
            .flat_map(|y| (0..SMALL.width).map(move |x| SMALL.steps(x, y)))
            .collect();
        assert_eq!(SMALL.right_pixels(&picture, 500), 500);
        let before = checksum(&picture);
        picture.iter_mut().for_each(|steps| *steps += 1);
        assert_eq!(SMALL.right_pixels(&picture, 500), 0);
        assert_ne!(checksum(&picture), before);
    }

    #[test]
    fn row_times_add_up() {
        let times = row_times(&[1, 2, 5], 8.0);
        assert_eq!(times, [1_000_000_000, 2_000_000_000, 5_000_000_000]);
    }
}
