//! Random changes to bytes without a known structure, and to text.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// Approximate limit on the length of changed text.
const LONG: usize = 8 << 10;

/// Returns a random number, preferably near a power of two.
pub(crate) fn integer(random: &mut StdRng) -> u64 {
    let edge = 1u64.checked_shl(random.random_range(0..65)).unwrap_or(0);
    match random.random_range(0..6) {
        0 => edge,
        1 => edge.wrapping_sub(1),
        2 => edge.wrapping_add(1),
        3 => edge.wrapping_neg(),
        4 => random.random_range(0..16),
        _ => random.random(),
    }
}

/// Returns random bytes without any structure.
pub(crate) fn raw(random: &mut StdRng) -> Vec<u8> {
    let length = match random.random_range(0..10) {
        0 => random.random_range(0..2048),
        _ => random.random_range(0..64),
    };
    (0..length).map(|_| random.random()).collect()
}

/// Returns the bytes with one random change.
pub(crate) fn changed(bytes: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let at = random.random_range(0..=out.len());
    let end = random.random_range(at..=out.len());
    match random.random_range(0..8) {
        0 => out.truncate(at),
        1 => drop(out.drain(at..end)),
        2 => out.insert(at, random.random()),
        3 => drop(out.splice(at..at, integer(random).to_le_bytes())),
        4 => {
            let again = out[at..end].to_vec();
            out.splice(at..at, again);
        }
        5 => {
            let number = integer(random).to_le_bytes();
            let width = (*[1, 2, 4, 8].choose(random).unwrap_or(&1)).min(out.len() - at);
            out[at..at + width].copy_from_slice(&number[..width]);
        }
        6 if at < out.len() => out[at] ^= 1 << random.random_range(0..8),
        _ if at < out.len() => out[at] = random.random(),
        _ => {}
    }
    out
}

/// Returns the text with one random change, often by one of `words`.
pub(crate) fn reworded(text: &[u8], words: &[String], random: &mut StdRng) -> Vec<u8> {
    let mut out = text.to_vec();
    let at = random.random_range(0..=out.len());
    let end = (at + random.random_range(0..24)).min(out.len());
    let word = words.choose(random).map_or(&[][..], |word| word.as_bytes());
    match random.random_range(0..10) {
        0..=3 => drop(out.splice(at..at, word.iter().copied())),
        4 | 5 => drop(out.splice(at..end, word.iter().copied())),
        6 => {
            let times = random.random_range(1..=LONG / word.len().max(1) + 1);
            out.splice(at..at, word.repeat(times));
        }
        7 => {
            let number = integer(random).to_string();
            out.splice(at..end, number.into_bytes());
        }
        8 => {
            let letter = *[
                '\0',
                '\u{e9}',
                '\u{2028}',
                '\u{feff}',
                '\u{1f600}',
                '\r',
                '\t',
            ]
            .choose(random)
            .unwrap_or(&'\n');
            out.splice(at..at, letter.to_string().into_bytes());
        }
        _ => out = changed(text, random),
    }
    out
}
