//! Random changes to protobuf messages that keep most of their structure, without knowing the fields.
//!
//! A change descends into nested messages to a random depth and changes one field there. The enclosing
//! lengths are corrected, except for changes that make a length wrong on purpose.

use std::collections::HashSet;
use std::ops::Range;

use prost::bytes::Buf;
use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::bytes;

/// A depth beyond every decoder's limit.
const DEEP: usize = 200;
/// Approximate limit on the length of a changed message.
const LONG: usize = 32 << 10;
/// Maximum number of valid messages of one type.
const MOST_GROWN: usize = 400;

struct Field {
    number: u32,
    wire: WireType,
    whole: Range<usize>,
    contents: Range<usize>,
}

// Returns the fields; `None` if the bytes are no message.
fn fields(message: &[u8]) -> Option<Vec<Field>> {
    let mut rest = message;
    let mut found = Vec::new();
    while rest.has_remaining() {
        let start = message.len() - rest.len();
        let (number, wire) = decode_key(&mut rest).ok()?;
        let mut after = rest;
        if wire == WireType::LengthDelimited {
            decode_varint(&mut after).ok()?;
        }
        let contents = message.len() - after.len();
        skip_field(wire, number, &mut rest, DecodeContext::default()).ok()?;
        let end = message.len() - rest.len();
        found.push(Field {
            number,
            wire,
            whole: start..end,
            contents: contents..end,
        });
    }
    Some(found)
}

fn put_delimited(out: &mut Vec<u8>, number: u32, contents: &[u8]) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(contents.len() as u64, out);
    out.extend_from_slice(contents);
}

fn number(random: &mut StdRng) -> u32 {
    match random.random_range(0..20) {
        0 => random.random_range(1..1 << 29),
        1..=4 => random.random_range(1..64),
        _ => random.random_range(1..16),
    }
}

fn put_random(out: &mut Vec<u8>, random: &mut StdRng) {
    let number = number(random);
    match random.random_range(0..20) {
        0..8 => {
            encode_key(number, WireType::Varint, out);
            encode_varint(bytes::integer(random), out);
        }
        8 => {
            encode_key(number, WireType::SixtyFourBit, out);
            out.extend_from_slice(&bytes::integer(random).to_le_bytes());
        }
        9 => {
            encode_key(number, WireType::ThirtyTwoBit, out);
            out.extend_from_slice(&(bytes::integer(random) as u32).to_le_bytes());
        }
        10 => encode_key(number, WireType::StartGroup, out),
        11..16 => put_delimited(out, number, &[]),
        _ => {
            let length = random.random_range(1..24);
            let text = random.random_bool(0.5);
            let byte = |_| {
                if text {
                    random.random_range(b' '..b'~')
                } else {
                    random.random()
                }
            };
            let contents: Vec<u8> = (0..length).map(byte).collect();
            put_delimited(out, number, &contents);
        }
    }
}

/// Returns the message with one field changed.
pub(crate) fn changed(message: &[u8], random: &mut StdRng) -> Vec<u8> {
    let Some(fields) = fields(message) else {
        return bytes::changed(message, random);
    };
    let mut out = Vec::with_capacity(message.len() + 32);
    let Some(field) = fields.choose(random) else {
        put_random(&mut out, random);
        return out;
    };
    let (before, after) = (&message[..field.whole.start], &message[field.whole.end..]);
    let (whole, contents) = (
        &message[field.whole.clone()],
        &message[field.contents.clone()],
    );
    out.extend_from_slice(before);
    if field.wire == WireType::LengthDelimited && random.random_bool(0.6) {
        put_delimited(&mut out, field.number, &changed(contents, random));
    } else {
        put_changed(&mut out, field, whole, contents, random);
    }
    out.extend_from_slice(after);
    out
}

fn put_changed(
    out: &mut Vec<u8>,
    field: &Field,
    whole: &[u8],
    contents: &[u8],
    random: &mut StdRng,
) {
    match random.random_range(0..9) {
        0 => {}
        1 => out.extend_from_slice(&whole.repeat(2)),
        2 => {
            let times = random.random_range(1..=LONG / whole.len().max(1) + 1);
            out.extend_from_slice(&whole.repeat(times));
        }
        3 => {
            encode_key(number(random), field.wire, out);
            let value = whole.len() - contents.len();
            out.extend_from_slice(if value > 0 { contents } else { whole });
        }
        4 => {
            // A length without the bytes for it.
            encode_key(field.number, WireType::LengthDelimited, out);
            encode_varint(bytes::integer(random), out);
            out.extend_from_slice(contents);
        }
        5 => {
            let mut nested = contents.to_vec();
            for _ in 0..random.random_range(1..DEEP) {
                let mut around = Vec::with_capacity(nested.len() + 6);
                put_delimited(&mut around, field.number, &nested);
                nested = around;
            }
            out.extend_from_slice(&nested);
        }
        6 => {
            out.extend_from_slice(whole);
            put_random(out, random);
        }
        7 => match field.wire {
            WireType::Varint => {
                encode_key(field.number, WireType::Varint, out);
                encode_varint(bytes::integer(random), out);
            }
            _ => put_delimited(out, field.number, &bytes::changed(contents, random)),
        },
        _ => out.extend_from_slice(&bytes::changed(whole, random)),
    }
}

// Returns the message with a field added somewhere.
fn grown(message: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut out = message.to_vec();
    let fields = fields(message).unwrap_or_default();
    let nested: Vec<_> = fields
        .iter()
        .filter(|of| of.wire == WireType::LengthDelimited)
        .collect();
    match nested.choose(random) {
        Some(field) if random.random_bool(0.7) => {
            let inner = grown(&message[field.contents.clone()], random);
            out.truncate(field.whole.start);
            put_delimited(&mut out, field.number, &inner);
            out.extend_from_slice(&message[field.whole.end..]);
        }
        _ => put_random(&mut out, random),
    }
    out
}

// Records the paths of all fields.
fn shape(message: &[u8], path: u64, into: &mut Vec<u64>) {
    for field in fields(message).unwrap_or_default() {
        let here = (path ^ u64::from(field.number)).wrapping_mul(0x0100_0000_01b3);
        into.push(here);
        if field.wire == WireType::LengthDelimited {
            shape(&message[field.contents], here, into);
        }
    }
}

/// Finds valid messages of a type, using only its decoder, which returns the message encoded again. Random
/// fields are added and kept if they come out again. Each message has a field that no earlier one has.
pub(crate) fn valid(
    again: impl Fn(&[u8]) -> Option<Vec<u8>>,
    tries: usize,
    random: &mut StdRng,
) -> Vec<Vec<u8>> {
    let mut found = vec![Vec::new()];
    let mut seen = HashSet::new();
    for _ in 0..tries {
        let base = found.choose(random).map_or(&[][..], Vec::as_slice);
        let Some(message) = again(&grown(base, random)) else {
            continue;
        };
        let mut places = Vec::new();
        shape(&message, 0, &mut places);
        let before = seen.len();
        seen.extend(places);
        if seen.len() > before && found.len() < MOST_GROWN {
            found.push(message);
        }
    }
    found
}
