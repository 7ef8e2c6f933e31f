//! The bytes of transfers that are compressed.
//!
//! Half of each mebibyte is noise, which cannot be compressed. The other half is the Mandelbrot picture as the
//! experiment's kernel stores it, a `uint` for each pixel. Pure. Invariant: the bytes are the same every time.
#![forbid(unsafe_code)]

use crate::mandelbrot::picture::View;
use crate::random::Random;

/// Half a mebibyte of pixels.
const VIEW: View = View {
    width: 512,
    height: 256,
    iterations: 1000,
};

/// `size` bytes, which begin with noise.
pub(crate) fn half_a_picture(size: usize) -> Vec<u8> {
    let pixels = (0..VIEW.height).flat_map(|y| (0..VIEW.width).map(move |x| VIEW.steps(x, y)));
    let picture: Vec<u8> = pixels.flat_map(u32::to_le_bytes).collect();
    let mut random = Random::new(1);
    let mut bytes = Vec::with_capacity(size + 2 * picture.len());
    while bytes.len() < size {
        for _ in 0..picture.len() / size_of::<u64>() {
            bytes.extend_from_slice(&random.next().to_le_bytes());
        }
        bytes.extend_from_slice(&picture);
    }
    bytes.truncate(size);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_noise_and_half_is_not() {
        let bytes = half_a_picture(3 << 19);
        assert_eq!(bytes.len(), 3 << 19);
        let zeros = |from: usize| {
            bytes[from..from + (1 << 19)]
                .iter()
                .filter(|byte| **byte == 0)
        };
        assert!(zeros(0).count() < 4096, "a 256th of noise");
        assert!(
            zeros(1 << 19).count() > 1 << 18,
            "upper bytes of small numbers"
        );
        assert_ne!(bytes[..64], bytes[1 << 20..(1 << 20) + 64], "other noise");
    }
}
