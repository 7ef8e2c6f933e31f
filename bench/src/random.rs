//! Random numbers for data and for schedules of failures.
//!
//! Pure and deterministic: a seed gives the same numbers everywhere. They are not for secrets. Invariant: two generators
//! with one seed give the same numbers.
#![forbid(unsafe_code)]

/// A small generator of random numbers (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number from 0 up to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The next time between two events of a Poisson process, which are `mean` apart on average; in the unit of `mean`.
    pub(crate) fn gap(&mut self, mean: f64) -> f64 {
        // `unit` is below 1, so the logarithm is finite.
        -mean * (1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_their_mean() {
        let mut random = Random::new(3);
        let count = 20_000;
        let gaps: Vec<f64> = (0..count).map(|_| random.gap(5.0)).collect();
        let mean = gaps.iter().sum::<f64>() / f64::from(count);
        assert!((mean - 5.0).abs() < 0.15, "{mean}");
        // The standard deviation of an exponential distribution equals its mean.
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / f64::from(count);
        assert!((variance.sqrt() - 5.0).abs() < 0.3, "{variance}");
        assert!(gaps.iter().all(|gap| *gap >= 0.0 && gap.is_finite()));
    }
}
