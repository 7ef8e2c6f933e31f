//! Reads a file that [`ring`](crate::ring) has written, or several behind each other.
//!
//! Packets of other kinds, and fields that are not written here, are skipped. Invariant: no bytes make this
//! panic; a file that ends inside of a packet is read up to there.

use std::collections::HashMap;

use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::format::{CLEARED, InternedData, Kind, Name, PACKET, Packet};
use crate::timeline::{Track, TrackKind};

/// A begin, an end or an instant, with its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The track.
    pub track: u64,
    /// The moment, in nanoseconds.
    pub at: u64,
    /// Begin, end or instant.
    pub kind: Kind,
    /// The name; empty for an end.
    pub name: String,
    /// The category; empty for an end.
    pub category: String,
    /// Further values, as text.
    pub values: Vec<(String, String)>,
    /// Arrows that begin here.
    pub arrows: Vec<u64>,
    /// Arrows that end here.
    pub arrow_ends: Vec<u64>,
}

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The tracks by their numbers.
    pub tracks: HashMap<u64, Track>,
    /// Everything else, in the order of the file.
    pub events: Vec<Event>,
}

/// A slice of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice<'a> {
    /// The begin.
    pub begin: &'a Event,
    /// The end, in nanoseconds; the begin's moment for an instant.
    pub end: u64,
    /// Number of slices around this one.
    pub depth: usize,
}

/// Returns the packets of a file that have a meaning, as they are encoded, with their keys.
pub fn raw_packets(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = file;
    std::iter::from_fn(move || {
        loop {
            let before = rest;
            let (_, packet) = next(&mut rest)?;
            // A padding packet has one field, whose number no other field here exceeds.
            let mut inside = packet;
            let (number, _) = decode_key(&mut inside).ok()?;
            if number < crate::format::PADDING {
                return Some(&before[..before.len() - rest.len()]);
            }
        }
    })
}

// Takes the next field of the file. `None` at its end, and if the rest is no whole field.
fn next<'a>(rest: &mut &'a [u8]) -> Option<(u32, &'a [u8])> {
    let mut from = *rest;
    let (number, wire_type) = decode_key(&mut from).ok()?;
    if wire_type != WireType::LengthDelimited {
        skip_field(wire_type, number, &mut from, DecodeContext::default()).ok()?;
        *rest = from;
        return Some((number, &[]));
    }
    let length = usize::try_from(decode_varint(&mut from).ok()?).ok()?;
    let (field, behind) = from.split_at_checked(length)?;
    *rest = behind;
    Some((number, field))
}

/// The interned names of a sequence.
#[derive(Debug, Default)]
struct Names {
    categories: HashMap<u64, String>,
    events: HashMap<u64, String>,
    values: HashMap<u64, String>,
}

impl Names {
    fn learn(&mut self, data: InternedData) {
        let add = |known: &mut HashMap<u64, String>, names: Vec<Name>| {
            let names = names.into_iter();
            known.extend(names.filter_map(|name| Some((name.iid?, name.name?))));
        };
        add(&mut self.categories, data.event_categories);
        add(&mut self.events, data.event_names);
        add(&mut self.values, data.debug_annotation_names);
    }
}

/// Reads a file.
#[must_use]
pub fn contents(file: &[u8]) -> Contents {
    let mut contents = Contents::default();
    let mut sequences: HashMap<u32, Names> = HashMap::new();
    let mut rest = file;
    while let Some((number, packet)) = next(&mut rest) {
        if number != PACKET {
            continue;
        }
        let Ok(packet) = Packet::decode(packet) else {
            continue;
        };
        let names = sequences
            .entry(packet.trusted_packet_sequence_id.unwrap_or(0))
            .or_default();
        if packet.sequence_flags.unwrap_or(0) & CLEARED != 0 {
            *names = Names::default();
        }
        if let Some(data) = packet.interned_data.clone() {
            names.learn(data);
        }
        if let Some((number, track)) = track_of(&packet) {
            contents.tracks.insert(number, track);
        }
        contents.events.extend(event_of(packet, names));
    }
    contents
}

fn track_of(packet: &Packet) -> Option<(u64, Track)> {
    let descriptor = packet.track_descriptor.as_ref()?;
    let (kind, name) = match (&descriptor.process, &descriptor.thread) {
        (Some(process), _) => {
            let id = process.pid.unwrap_or(0) as u32;
            (TrackKind::Process { id }, &process.process_name)
        }
        (None, Some(thread)) => {
            let process = thread.pid.unwrap_or(0) as u32;
            let id = thread.tid.unwrap_or(0) as u32;
            (TrackKind::Thread { process, id }, &thread.thread_name)
        }
        (None, None) => (TrackKind::Plain, &descriptor.name),
    };
    let track = Track {
        parent: descriptor.parent_uuid,
        name: name.clone().unwrap_or_default(),
        kind,
    };
    Some((descriptor.uuid?, track))
}

fn event_of(packet: Packet, names: &Names) -> Option<Event> {
    let event = packet.track_event?;
    let known = |names: &HashMap<u64, String>, iid: Option<u64>| {
        iid.and_then(|iid| names.get(&iid).cloned())
    };
    let values = event.debug_annotations.into_iter().map(|value| {
        let name = value.name.or(known(&names.values, value.name_iid));
        let number = value.uint_value.map(|number| number.to_string());
        let signed = value.int_value.map(|number| number.to_string());
        let text = number.or(signed).or(value.string_value);
        (name.unwrap_or_default(), text.unwrap_or_default())
    });
    let category = event.category_iids.first().copied();
    let category = known(&names.categories, category).or(event.categories.into_iter().next());
    Some(Event {
        track: event.track_uuid?,
        at: packet.timestamp?,
        kind: Kind::try_from(event.r#type?).ok()?,
        name: event
            .name
            .or(known(&names.events, event.name_iid))
            .unwrap_or_default(),
        category: category.unwrap_or_default(),
        values: values.collect(),
        arrows: event.flow_ids,
        arrow_ends: event.terminating_flow_ids,
    })
}

impl Contents {
    /// Returns the slices and instants, in the order of their ends in the file.
    #[must_use]
    pub fn slices(&self) -> Vec<Slice<'_>> {
        let mut open: HashMap<u64, Vec<&Event>> = HashMap::new();
        let mut slices = Vec::new();
        for event in &self.events {
            let open = open.entry(event.track).or_default();
            let (begin, end) = match event.kind {
                Kind::Begin => {
                    open.push(event);
                    continue;
                }
                Kind::End => match open.pop() {
                    Some(begin) => (begin, event.at),
                    None => continue,
                },
                Kind::Instant => (event, event.at),
                Kind::Unspecified => continue,
            };
            slices.push(Slice {
                begin,
                end,
                depth: open.len(),
            });
        }
        slices
    }
}

impl Event {
    /// Returns a further value.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        let mut values = self.values.iter();
        let found = values.find(|(of, _)| of == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns a further value that is a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.value(name)?.parse().ok()
    }
}
