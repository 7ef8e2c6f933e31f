//! Encodes the events of slices without building their messages, because most of a file consists of these.
//!
//! Not here: the places of the packets in the file. Invariant: the bytes are those that the messages of
//! [`format`](crate::format) give (a test compares them).

use std::borrow::Cow;

use prost::Message as _;
use prost::encoding::{WireType, encoded_len_varint};
use rustc_hash::FxHashMap;

use super::cut;
use crate::format::{InternedData, Kind, NEEDS_NAMES, Name, PACKET};
use crate::record::Moment;
use crate::timeline::{Category, Slice, Value};

/// Numbers of the fields of `TracePacket`.
mod packet {
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED: u32 = 12;
    pub(super) const FLAGS: u32 = 13;
}

/// Numbers of the fields of `TrackEvent`.
mod event {
    pub(super) const CATEGORY: u32 = 3;
    pub(super) const ANNOTATION: u32 = 4;
    pub(super) const TYPE: u32 = 9;
    pub(super) const NAME: u32 = 10;
    pub(super) const TRACK: u32 = 11;
    pub(super) const FLOW: u32 = 47;
    pub(super) const FLOW_END: u32 = 48;
}

/// Numbers of the fields of `DebugAnnotation`.
mod annotation {
    pub(super) const NAME: u32 = 1;
    pub(super) const UINT: u32 = 3;
    pub(super) const INT: u32 = 4;
    pub(super) const STRING: u32 = 6;
}

/// Maximum number of names that are found by their addresses.
const MOST_LASTING: usize = 16;

/// Encodes events of one sequence.
#[derive(Debug)]
pub(super) struct Packets {
    sequence: u32,
    names: Names,
    // The event that is being encoded.
    event: Vec<u8>,
}

/// The names that a segment has interned.
#[derive(Debug, Default)]
struct Names {
    // The number of each is its place, from 1.
    categories: Vec<Category>,
    values: Vec<&'static str>,
    events: FxHashMap<String, u64>,
    // The first names of events that last, which need no search.
    lasting: Vec<(&'static str, u64)>,
    fresh: Option<InternedData>,
}

impl Packets {
    pub(super) fn new(sequence: u32) -> Packets {
        Packets {
            sequence,
            names: Names::default(),
            event: Vec::new(),
        }
    }

    /// Forgets the names, because a segment begins.
    pub(super) fn begin_segment(&mut self) {
        self.names = Names::default();
    }

    /// Appends the begin of a slice, or the instant.
    pub(super) fn begin(&mut self, slice: &Slice, out: &mut Vec<u8>) {
        let kind = match slice.end {
            Some(_) => Kind::Begin,
            None => Kind::Instant,
        };
        let event = &mut self.event;
        event.clear();
        number(event::CATEGORY, self.names.category(slice.category), event);
        for (name, value) in &slice.values {
            annotate(self.names.value(name), value, event);
        }
        number(event::TYPE, kind as u64, event);
        number(event::NAME, self.names.event(slice), event);
        number(event::TRACK, slice.track, event);
        for (field, arrows) in [
            (event::FLOW, &slice.arrows),
            (event::FLOW_END, &slice.arrow_ends),
        ] {
            for arrow in arrows {
                key(field, WireType::SixtyFourBit, event);
                event.extend_from_slice(&arrow.to_le_bytes());
            }
        }
        let interned = self.names.fresh.take();
        self.packet(slice.begin, interned.as_ref(), Some(NEEDS_NAMES), out);
    }

    /// Appends the end of a slice; nothing for an instant.
    pub(super) fn end(&mut self, slice: &Slice, out: &mut Vec<u8>) {
        let Some(end) = slice.end else { return };
        self.event.clear();
        number(event::TYPE, Kind::End as u64, &mut self.event);
        number(event::TRACK, slice.track, &mut self.event);
        self.packet(end, None, None, out);
    }

    // Appends a packet with the event.
    fn packet(
        &self,
        at: Moment,
        interned: Option<&InternedData>,
        flags: Option<u32>,
        out: &mut Vec<u8>,
    ) {
        let numbers = [
            Some((packet::TIMESTAMP, at)),
            Some((packet::SEQUENCE, self.sequence.into())),
        ];
        let flags = flags.map(|flags| (packet::FLAGS, flags.into()));
        let lengths = (numbers.iter().chain([&flags]).flatten())
            .map(|(_, value)| 1 + encoded_len_varint(*value));
        let names = interned.map(|names| names.encoded_len());
        let parts = [Some(self.event.len()), names];
        let parts = parts.iter().flatten();
        let parts = parts.map(|length| 1 + encoded_len_varint(*length as u64) + length);
        let length = lengths.sum::<usize>() + parts.sum::<usize>();
        begin_part(PACKET, length, out);
        for (field, value) in numbers.into_iter().flatten() {
            number(field, value, out);
        }
        begin_part(packet::TRACK_EVENT, self.event.len(), out);
        out.extend_from_slice(&self.event);
        if let (Some(interned), Some(length)) = (interned, names) {
            begin_part(packet::INTERNED, length, out);
            interned.encode_raw(out);
        }
        if let Some((field, value)) = flags {
            number(field, value, out);
        }
    }
}

impl Names {
    fn category(&mut self, category: Category) -> u64 {
        let is_known = |of: &Category| *of == category;
        place(&mut self.categories, category, is_known).unwrap_or_else(|number| {
            let fresh = self.fresh.get_or_insert_default();
            fresh.event_categories.push(named(number, category.name()));
            number
        })
    }

    fn value(&mut self, name: &'static str) -> u64 {
        // By its address, for the names are few constants. One with two addresses is interned twice.
        let is_known = |of: &&'static str| std::ptr::eq(*of, name);
        place(&mut self.values, name, is_known).unwrap_or_else(|number| {
            let fresh = self.fresh.get_or_insert_default();
            fresh.debug_annotation_names.push(named(number, name));
            number
        })
    }

    fn event(&mut self, slice: &Slice) -> u64 {
        let Cow::Borrowed(lasting) = &slice.name else {
            return self.searched(&slice.name);
        };
        let mut known = self.lasting.iter();
        if let Some((_, number)) = known.find(|(of, _)| std::ptr::eq(*of, *lasting)) {
            return *number;
        }
        let number = self.searched(lasting);
        if self.lasting.len() < MOST_LASTING {
            self.lasting.push((lasting, number));
        }
        number
    }

    fn searched(&mut self, name: &str) -> u64 {
        let name = cut(name);
        if let Some(number) = self.events.get(name) {
            return *number;
        }
        let number = self.events.len() as u64 + 1;
        let fresh = self.fresh.get_or_insert_default();
        fresh.event_names.push(named(number, name));
        self.events.insert(name.to_owned(), number);
        number
    }
}

// The number of a name of which there are few. `Err` if the name is new.
fn place<T>(known: &mut Vec<T>, name: T, is_known: impl Fn(&T) -> bool) -> Result<u64, u64> {
    if let Some(place) = known.iter().position(is_known) {
        return Ok(place as u64 + 1);
    }
    known.push(name);
    Err(known.len() as u64)
}

fn named(number: u64, name: &str) -> Name {
    Name {
        iid: Some(number),
        name: Some(name.to_owned()),
    }
}

fn annotate(name: u64, value: &Value, out: &mut Vec<u8>) {
    let of_name = 1 + encoded_len_varint(name);
    let (field, plain) = match value {
        Value::Number(number) => (annotation::UINT, *number),
        // As protobuf encodes an `int64`.
        Value::Signed(number) => (annotation::INT, number.cast_unsigned()),
        Value::Text(text) => {
            let text = cut(text);
            let length = 1 + encoded_len_varint(text.len() as u64) + text.len();
            begin_part(event::ANNOTATION, of_name + length, out);
            number(annotation::NAME, name, out);
            begin_part(annotation::STRING, text.len(), out);
            return out.extend_from_slice(text.as_bytes());
        }
    };
    let length = of_name + 1 + encoded_len_varint(plain);
    begin_part(event::ANNOTATION, length, out);
    number(annotation::NAME, name, out);
    number(field, plain, out);
}

fn number(field: u32, value: u64, out: &mut Vec<u8>) {
    key(field, WireType::Varint, out);
    varint(value, out);
}

fn begin_part(field: u32, length: usize, out: &mut Vec<u8>) {
    key(field, WireType::LengthDelimited, out);
    varint(length as u64, out);
}

fn key(field: u32, wire_type: WireType, out: &mut Vec<u8>) {
    varint(u64::from(field << 3) | wire_type as u64, out);
}

// As `prost::encoding::encode_varint`, which asks for room for each byte.
fn varint(value: u64, out: &mut Vec<u8>) {
    if value < 0x80 {
        return out.push(value as u8);
    }
    let length = encoded_len_varint(value);
    let end = out.len() + length;
    // Copies of a fixed length need no call.
    if length <= 8 {
        let more = 0x8080_8080_8080_8080 >> (72 - 8 * length);
        out.extend_from_slice(&(groups(value) | more).to_le_bytes());
    } else {
        let more = 0x8080_8080_8080_8080;
        out.extend_from_slice(&(groups(value) | more).to_le_bytes());
        let rest = value >> 56;
        let more = if length == 10 { 0x80 } else { 0 };
        out.extend_from_slice(&[rest as u8 & 0x7f | more, (rest >> 7) as u8]);
    }
    out.truncate(end);
}

// Spreads the lowest 56 bits over 8 bytes of 7 bits.
fn groups(value: u64) -> u64 {
    let halves = value & 0x0fff_ffff | (value & 0x00ff_ffff_f000_0000) << 4;
    let quarters = halves & 0x0000_3fff_0000_3fff | (halves & 0x0fff_c000_0fff_c000) << 2;
    quarters & 0x007f_007f_007f_007f | (quarters & 0x3f80_3f80_3f80_3f80) << 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{DebugAnnotation, Packet, TrackEvent};
    use proptest::prelude::*;

    // The names of the values, of which a slice has the first ones.
    const NAMES: [&str; 4] = ["bytes", "status", "event", "device"];

    /// What the messages give for the begin of a slice, the first one of a segment.
    fn expected(slice: &Slice) -> Packet {
        let values = slice.values.iter().zip(1..).map(|((_, value), number)| {
            let mut annotation = DebugAnnotation {
                name_iid: Some(number),
                ..DebugAnnotation::default()
            };
            match value {
                Value::Number(number) => annotation.uint_value = Some(*number),
                Value::Signed(number) => annotation.int_value = Some(*number),
                Value::Text(text) => annotation.string_value = Some(cut(text).to_owned()),
            }
            annotation
        });
        let kind = slice.end.map_or(Kind::Instant, |_| Kind::Begin);
        let value_names = slice.values.iter().zip(1..);
        Packet {
            timestamp: Some(slice.begin),
            trusted_packet_sequence_id: Some(7),
            track_event: Some(TrackEvent {
                category_iids: vec![1],
                debug_annotations: values.collect(),
                r#type: Some(kind.into()),
                name_iid: Some(1),
                track_uuid: Some(slice.track),
                flow_ids: slice.arrows.clone(),
                terminating_flow_ids: slice.arrow_ends.clone(),
                ..TrackEvent::default()
            }),
            interned_data: Some(InternedData {
                event_categories: vec![named(1, slice.category.name())],
                event_names: vec![named(1, cut(&slice.name))],
                debug_annotation_names: value_names
                    .map(|((name, _), number)| named(number, name))
                    .collect(),
            }),
            sequence_flags: Some(NEEDS_NAMES),
            track_descriptor: None,
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<u64>().prop_map(Value::Number),
            any::<i64>().prop_map(Value::Signed),
            ".{0,300}".prop_map(|text| Value::Text(text.into())),
        ]
    }

    proptest! {
        #[test]
        fn numbers_are_encoded_as_by_the_library(value in any::<u64>(), bits in 0u32..64) {
            for value in [value >> bits, (1 << bits) - 1, 1 << bits, u64::MAX >> bits] {
                let (mut found, mut known) = (vec![7], vec![7]);
                varint(value, &mut found);
                prost::encoding::encode_varint(value, &mut known);
                prop_assert_eq!(found, known, "{}", value);
            }
        }

        #[test]
        fn the_bytes_are_those_of_the_messages(
            (track, begin, length) in (any::<u64>(), 0u64..1 << 62, prop::option::of(0u64..1 << 40)),
            name in ".{0,300}",
            values in prop::collection::vec(value(), 0..=NAMES.len()),
            arrows in prop::array::uniform2(prop::collection::vec(any::<u64>(), 0..4)),
        ) {
            let end = length.map(|length| begin + length);
            let mut slice = Slice::new(track, begin, end, name.into(), Category::Wire);
            slice.values = NAMES.into_iter().zip(values).collect();
            [slice.arrows, slice.arrow_ends] = arrows;
            let mut packets = Packets::new(7);
            let (mut known, mut found) = (expected(&slice), Vec::new());
            // The second time, the names are known.
            for _ in 0..2 {
                found.clear();
                packets.begin(&slice, &mut found);
                let mut whole = Vec::new();
                super::super::put(&known, &mut whole);
                prop_assert_eq!(&found, &whole);
                known.interned_data = None;
            }
            found.clear();
            packets.end(&slice, &mut found);
            let Some(end) = end else {
                prop_assert!(found.is_empty());
                return Ok(());
            };
            let event = TrackEvent {
                r#type: Some(Kind::End.into()),
                track_uuid: Some(track),
                ..TrackEvent::default()
            };
            let packet = Packet {
                timestamp: Some(end),
                trusted_packet_sequence_id: Some(7),
                track_event: Some(event),
                ..Packet::default()
            };
            let mut whole = Vec::new();
            super::super::put(&packet, &mut whole);
            prop_assert_eq!(found, whole);
        }
    }
}
