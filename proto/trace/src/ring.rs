//! Encodes slices into a file of bounded size: pure, the caller writes.
//!
//! ```text
//! | statement | segment | segment | … |
//! ```
//! The file begins with a statement of what is missing. When the last segment is full, the oldest one is written
//! anew. A segment describes all tracks and names that it uses, so it depends on no other. A packet without
//! meaning fills the rest of a segment. New packets are written behind the header of that packet first, and then
//! over its header.
//!
//! Invariant: after each write, the file is a sequence of whole packets, unless it is empty. So it can be read
//! whenever the process is killed, as far as the system carries out single writes of a few bytes wholly.

mod packets;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use self::packets::Packets;
use crate::format::{
    CLEARED, DebugAnnotation, Kind, PACKET, PADDING, Packet, ProcessDescriptor, ThreadDescriptor,
    TrackDescriptor, TrackEvent,
};
use crate::record::Moment;
use crate::timeline::{Category, Slice, Track, TrackKind, Tracks};

/// The size of a trace file, at most.
pub const LIMIT: u64 = 64 << 20;

/// Size of the statement.
const STATEMENT: usize = 1024;
/// Size of a padding packet without its bytes: key and length of the packet, key and length of the field.
const PAD: usize = 1 + 5 + 3 + 5;
/// Maximum length of a name. Longer ones are cut.
const LONGEST_NAME: usize = 200;
/// Size that no encoded slice exceeds: names are cut, and arrows and inner slices limited.
const LARGEST: usize = 64 << 10;
/// Maximum number of slices inside of another.
const MOST_INNER: usize = 256;

/// The sizes of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The size of a segment, in bytes.
    pub segment: u64,
    /// The number of segments.
    pub segments: u64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        let segment = 1 << 20;
        Sizes {
            segment,
            segments: (LIMIT - STATEMENT as u64) / segment,
        }
    }
}

/// What the caller has to do with the file, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// Write these bytes at this place.
    Write {
        /// The place.
        at: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Set the file's length.
    Length(u64),
}

/// What is missing in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Slices that newer ones have replaced.
    pub slices: u64,
    /// Commands among those slices.
    pub commands: u64,
    /// Reports of the library for which there was no room in memory.
    pub reports: u64,
    /// Commands that were under way when reports were lost.
    pub lost_commands: u64,
    /// Commands that had not ended at the end.
    pub unended: u64,
    /// Whether the file could not be written any more.
    pub unwritable: bool,
    /// Whether the trace was not closed, because the process was killed, or still runs.
    pub is_open: bool,
}

/// A file of bounded size; see the module.
#[derive(Debug)]
pub struct Ring {
    sizes: Sizes,
    sequence: u32,
    // Number of the segment, counted from the first; their places repeat.
    segment: u64,
    // The place in the segment where `fresh` belongs.
    written: u64,
    // Encoded packets that are not written.
    fresh: Vec<u8>,
    packets: Packets,
    // Whether the segment describes a track, by the track's place.
    described: Vec<bool>,
    // Slices and commands in each segment.
    counts: Vec<[u64; 2]>,
    missing: Missing,
}

impl Ring {
    /// Makes the ring of a new file. `sequence` distinguishes processes in one file.
    #[must_use]
    pub fn new(sizes: Sizes, sequence: u32, steps: &mut Vec<FileChange>) -> Ring {
        // 0 stands for no sequence.
        let sequence = sequence.max(1);
        let mut ring = Ring {
            sizes,
            sequence,
            segment: 0,
            written: 0,
            fresh: Vec::new(),
            packets: Packets::new(sequence),
            described: Vec::new(),
            counts: vec![[0; 2]],
            missing: Missing {
                is_open: true,
                ..Missing::default()
            },
        };
        steps.push(FileChange::Write {
            at: 0,
            bytes: padding(STATEMENT),
        });
        ring.begin_segment(steps);
        ring
    }

    /// Returns what is missing so far. The caller adds what it knows, and calls [`Ring::state`].
    pub fn missing(&mut self) -> &mut Missing {
        &mut self.missing
    }

    /// Encodes a slice. Adds steps if a segment is full.
    pub fn add(&mut self, slice: &Slice, tracks: &Tracks, steps: &mut Vec<FileChange>) {
        let mut before = self.fresh.len();
        self.encode(slice, tracks);
        // Each segment has room for the header of the padding behind the last packet.
        let end = self.written as usize + self.fresh.len() + PAD;
        if end > self.sizes.segment as usize {
            self.fresh.truncate(before);
            self.commit(steps);
            self.segment += 1;
            self.begin_segment(steps);
            before = self.fresh.len();
            self.encode(slice, tracks);
        }
        let length = self.fresh.len() - before;
        debug_assert!(length <= LARGEST, "{length}");
        let place = self.place();
        self.counts[place][0] += 1;
        self.counts[place][1] += u64::from(slice.category == Category::Command);
    }

    /// Writes what was added.
    pub fn commit(&mut self, steps: &mut Vec<FileChange>) {
        if self.fresh.is_empty() {
            return;
        }
        let at = self.start() + self.written;
        let rest = self.sizes.segment - self.written;
        let mut bytes = std::mem::take(&mut self.fresh);
        self.written += bytes.len() as u64;
        let behind = self.sizes.segment - self.written;
        bytes.extend(padding_header(behind as usize));
        // The first write leaves the header there as it is, so that nothing has to be moved.
        let head = bytes[..PAD].to_vec();
        bytes[..PAD].copy_from_slice(&padding_header(rest as usize));
        steps.push(FileChange::Write { at, bytes });
        steps.push(FileChange::Write { at, bytes: head });
    }

    /// Writes the statement of what is missing. `at` is the present moment.
    pub fn state(&self, tracks: &Tracks, at: Moment, steps: &mut Vec<FileChange>) {
        let track = tracks.process() | STATEMENT_TRACK;
        let descriptor = TrackDescriptor {
            uuid: Some(track),
            name: Some("trace".to_owned()),
            parent_uuid: Some(tracks.process()),
            ..TrackDescriptor::default()
        };
        let mut bytes = Vec::new();
        if let Some(process) = tracks.get(tracks.process()) {
            put(
                &self.describing(described(tracks.process(), process)),
                &mut bytes,
            );
        }
        put(&self.describing(descriptor), &mut bytes);
        let event = TrackEvent {
            r#type: Some(Kind::Instant.into()),
            track_uuid: Some(track),
            categories: vec![Category::Trace.name().to_owned()],
            name: Some(self.missing.to_string()),
            debug_annotations: self.missing.values(),
            ..TrackEvent::default()
        };
        let packet = Packet {
            timestamp: Some(at),
            trusted_packet_sequence_id: Some(self.sequence),
            track_event: Some(event),
            ..Packet::default()
        };
        put(&packet, &mut bytes);
        let rest = STATEMENT - bytes.len();
        bytes.extend(padding(rest));
        steps.push(FileChange::Write { at: 0, bytes });
    }

    /// Ends the file: nothing may be added any more. A file that has not filled a segment yet becomes shorter.
    pub fn finish(&mut self, steps: &mut Vec<FileChange>) {
        self.commit(steps);
        if self.segment < self.sizes.segments {
            steps.push(FileChange::Length(self.start() + self.written));
        }
    }

    fn begin_segment(&mut self, steps: &mut Vec<FileChange>) {
        self.written = 0;
        self.packets.begin_segment();
        self.described.clear();
        let (start, size) = (self.start(), self.sizes.segment);
        // Before the rest of the segment is there, the file ends inside of this packet, which has no meaning.
        steps.push(FileChange::Write {
            at: start,
            bytes: padding_header(size as usize),
        });
        if self.segment < self.sizes.segments {
            steps.push(FileChange::Length(start + size));
        }
        let place = self.place();
        match self.counts.get_mut(place) {
            Some(counts) => {
                let [slices, commands] = std::mem::take(counts);
                self.missing.slices += slices;
                self.missing.commands += commands;
            }
            None => self.counts.push([0; 2]),
        }
        let begin = Packet {
            trusted_packet_sequence_id: Some(self.sequence),
            sequence_flags: Some(CLEARED),
            ..Packet::default()
        };
        put(&begin, &mut self.fresh);
    }

    // The index of the segment's place.
    fn place(&self) -> usize {
        (self.segment % self.sizes.segments) as usize
    }

    fn start(&self) -> u64 {
        STATEMENT as u64 + self.place() as u64 * self.sizes.segment
    }

    // ---- packets -----------------------------------------------------------------

    // All packets of a slice are in one segment, so that a begin has its end.
    fn encode(&mut self, slice: &Slice, tracks: &Tracks) {
        let mut above = Some(slice.track);
        while let Some(number) = above
            && let Some((place, track)) = tracks.placed(number)
            && self.describe(place)
        {
            let packet = self.describing(described(number, track));
            put(&packet, &mut self.fresh);
            above = track.parent;
        }
        let out = &mut self.fresh;
        self.packets.begin(slice, out);
        for inner in slice.inner.iter().take(MOST_INNER) {
            self.packets.begin(inner, out);
            self.packets.end(inner, out);
        }
        self.packets.end(slice, out);
    }

    // Whether the track at this place is not described yet in the segment. The caller describes it then.
    fn describe(&mut self, place: usize) -> bool {
        if place >= self.described.len() {
            self.described.resize(place + 1, false);
        }
        !std::mem::replace(&mut self.described[place], true)
    }

    fn describing(&self, track: TrackDescriptor) -> Packet {
        Packet {
            trusted_packet_sequence_id: Some(self.sequence),
            track_descriptor: Some(track),
            ..Packet::default()
        }
    }
}

/// Set in the number of the statement's track. A process has fewer tracks.
const STATEMENT_TRACK: u64 = 0x80_0000;

fn cut(text: &str) -> &str {
    let end = (0..=LONGEST_NAME)
        .rev()
        .find(|end| text.is_char_boundary(*end));
    match text.len() > LONGEST_NAME {
        true => &text[..end.unwrap_or(0)],
        false => text,
    }
}

fn described(number: u64, track: &Track) -> TrackDescriptor {
    let name = cut(&track.name).to_owned();
    let mut descriptor = TrackDescriptor {
        uuid: Some(number),
        parent_uuid: track.parent,
        ..TrackDescriptor::default()
    };
    match track.kind {
        TrackKind::Process { id } => {
            descriptor.process = Some(ProcessDescriptor {
                pid: Some(id as i32),
                process_name: Some(name),
            });
        }
        TrackKind::Thread { process, id } => {
            descriptor.thread = Some(ThreadDescriptor {
                pid: Some(process as i32),
                tid: Some(id.into()),
                thread_name: Some(name),
            });
        }
        TrackKind::Plain => descriptor.name = Some(name),
    }
    descriptor
}

fn put(packet: &Packet, out: &mut Vec<u8>) {
    encode_key(PACKET, WireType::LengthDelimited, out);
    encode_varint(packet.encoded_len() as u64, out);
    packet.encode_raw(out);
}

// A packet of this size without meaning.
fn padding(size: usize) -> Vec<u8> {
    let mut packet = padding_header(size);
    packet.resize(size, 0);
    packet
}

// The beginning of such a packet. Its lengths have five bytes each, whatever they are.
fn padding_header(size: usize) -> Vec<u8> {
    debug_assert!(size >= PAD, "{size}");
    let mut header = Vec::with_capacity(PAD);
    encode_key(PACKET, WireType::LengthDelimited, &mut header);
    header.extend(long_varint(size - 6));
    encode_key(PADDING, WireType::LengthDelimited, &mut header);
    header.extend(long_varint(size - PAD));
    debug_assert_eq!(header.len(), PAD);
    header
}

fn long_varint(value: usize) -> [u8; 5] {
    std::array::from_fn(|byte| {
        let more = if byte < 4 { 0x80 } else { 0 };
        (value >> (7 * byte)) as u8 & 0x7f | more
    })
}

impl Missing {
    fn values(&self) -> Vec<DebugAnnotation> {
        let numbers = [
            ("missing slices", self.slices),
            ("missing commands", self.commands + self.lost_commands),
            ("missing reports", self.reports),
        ];
        let values = numbers.map(|(name, number)| DebugAnnotation {
            name: Some(name.to_owned()),
            uint_value: Some(number),
            ..DebugAnnotation::default()
        });
        values.to_vec()
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Missing::default() {
            return f.write_str("The trace is complete");
        }
        let mut texts = Vec::new();
        if self.slices > 0 {
            texts.push(format!(
                "{} older slices, {} of them commands, are missing, because a trace has {} MiB at most",
                self.slices,
                self.commands,
                LIMIT >> 20
            ));
        }
        if self.reports > 0 {
            texts.push(format!(
                "{} calls and events and {} commands are missing, because they came faster than they were written",
                self.reports, self.lost_commands
            ));
        }
        if self.unended > 0 {
            texts.push(format!("{} commands had not ended", self.unended));
        }
        if self.unwritable {
            texts.push(
                "everything later is missing, because the file could not be written".to_owned(),
            );
        }
        if self.is_open {
            texts.push(
                "the trace was not closed: if the program was killed, its last 0.1 s are missing"
                    .to_owned(),
            );
        }
        f.write_str(&texts.join("; "))
    }
}

#[cfg(test)]
mod tests;
