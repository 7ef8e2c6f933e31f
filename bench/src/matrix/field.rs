//! Matrices over the field of 61 elements, and the check of a chain of products.
//!
//! Pure. Elements are whole numbers in `float`s, so that devices do the usual work and every result is exact. The check
//! is Freivalds': it multiplies by random vectors, which costs N² and not N³ operations. Invariant: a right product passes;
//! a wrong one passes with a probability of 61⁻⁸.
#![forbid(unsafe_code)]

use crate::random::Random;

/// The number of elements of the field.
const FIELD: u64 = 61;
/// Random vectors of a check.
const VECTORS: usize = 8;

/// A square matrix with random elements, row by row.
pub(super) fn random(size: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..size * size)
        .map(|_| (random.next() % FIELD) as f32)
        .collect()
}

/// Whether `result` is `first` multiplied by `factor`, `times` times.
pub(super) fn is_product(
    first: &[f32],
    factor: &[f32],
    times: u64,
    result: &[f32],
    size: usize,
) -> bool {
    let is_element = |value: &f32| value.fract() == 0.0 && (0.0..FIELD as f32).contains(value);
    if result.len() != size * size || !result.iter().all(is_element) {
        return false;
    }
    let mut random = Random::new(0x5eed);
    (0..VECTORS).all(|_| {
        let vector: Vec<u64> = (0..size).map(|_| random.next() % FIELD).collect();
        let mut product = vector.clone();
        for _ in 0..times {
            product = times_vector(factor, &product);
        }
        times_vector(first, &product) == times_vector(result, &vector)
    })
}

fn times_vector(matrix: &[f32], vector: &[u64]) -> Vec<u64> {
    let row = |row: &[f32]| {
        let products = row.iter().zip(vector).map(|(a, b)| *a as u64 * b);
        products.sum::<u64>() % FIELD
    };
    matrix.chunks_exact(vector.len()).map(row).collect()
}

/// A number that differs for different matrices, in all likelihood.
pub(super) fn checksum(matrix: &[f32]) -> u64 {
    let words = matrix.iter().map(|value| value.to_bits());
    words.fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| {
        (hash ^ u64::from(word)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn multiply(a: &[f32], b: &[f32], size: usize) -> Vec<f32> {
        let element = |at: usize| {
            let (row, column) = (at / size, at % size);
            let sum: u64 = (0..size)
                .map(|k| (a[row * size + k] * b[k * size + column]) as u64)
                .sum();
            (sum % FIELD) as f32
        };
        (0..size * size).map(element).collect()
    }

    #[test]
    fn a_right_chain_passes_and_a_wrong_one_does_not() {
        let size = 17;
        let (first, factor) = (random(size, 1), random(size, 2));
        let mut result = first.clone();
        for _ in 0..3 {
            result = multiply(&result, &factor, size);
        }
        assert!(is_product(&first, &factor, 3, &result, size));
        assert!(!is_product(&first, &factor, 2, &result, size));
        assert!(!is_product(&first, &factor, 3, &result[1..], size));
        for (at, value) in [(0, 1.0), (100, 0.5), (288, 61.0), (7, f32::NAN)] {
            let mut wrong = result.clone();
            wrong[at] = if value == 1.0 {
                (wrong[at] + 1.0) % 61.0
            } else {
                value
            };
            assert!(!is_product(&first, &factor, 3, &wrong, size), "{at}");
            assert_ne!(checksum(&wrong), checksum(&result));
        }
    }

    #[test]
    fn elements_are_of_the_field() {
        let matrix = random(40, 3);
        assert_eq!(matrix.len(), 1600);
        assert!(matrix.iter().all(|value| (0.0..61.0).contains(value)));
        assert_ne!(matrix, random(40, 4));
    }
}
