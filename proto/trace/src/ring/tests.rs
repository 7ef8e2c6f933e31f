use proptest::prelude::*;

use super::*;
use crate::read::{contents, raw_packets};
use crate::timeline::{Process, Timeline, Value};

const SMALL: Sizes = Sizes {
    segment: 2 * LARGEST as u64,
    segments: 3,
};

fn tracks() -> Timeline {
    Timeline::new(Process {
        id: 7,
        name: "program".repeat(100),
        salt: 5,
    })
}

/// A file to which steps are applied.
#[derive(Default)]
struct Disk(Vec<u8>);

impl Disk {
    fn apply(&mut self, step: &FileChange) {
        match step {
            FileChange::Length(length) => self.0.resize(*length as usize, 0),
            FileChange::Write { at, bytes } => {
                let end = *at as usize + bytes.len();
                if self.0.len() < end {
                    self.0.resize(end, 0);
                }
                self.0[*at as usize..end].copy_from_slice(bytes);
            }
        }
    }

    /// Checks that the file is a sequence of whole packets. Only the last one may be cut, if it has no meaning.
    fn check(&self) {
        let mut rest = &self.0[..];
        while !rest.is_empty() {
            assert_eq!(
                rest[0],
                0x0a,
                "a packet begins {} bytes before the end",
                rest.len()
            );
            let mut from = &rest[1..];
            let length = prost::encoding::decode_varint(&mut from).unwrap() as usize;
            if from.len() < length {
                let mut inside = from;
                let (number, _) = prost::encoding::decode_key(&mut inside).unwrap();
                assert_eq!(number, PADDING);
                return;
            }
            Packet::decode(&from[..length]).unwrap();
            rest = &from[length..];
        }
    }
}

fn slice(track: u64, begin: u64, name: usize, values: usize) -> Slice {
    let name = format!("{name}:{}", "long".repeat(name)).into();
    let mut slice = Slice::new(track, begin, Some(begin + 1), name, Category::Command);
    let text = || Value::Text("value".repeat(50).into());
    slice.values = (0..values).map(|_| ("name", text())).collect();
    slice
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn the_file_can_be_read_after_every_step_and_says_what_is_missing(
        slices in prop::collection::vec((0usize..80, 0usize..200), 0..60), every in 1usize..5,
    ) {
        let timeline = tracks();
        let (tracks, track) = (timeline.tracks(), timeline.tracks().process());
        let mut disk = Disk::default();
        let mut ring = {
            let mut steps = Vec::new();
            let ring = Ring::new(SMALL, 9, &mut steps);
            steps.iter().for_each(|step| { disk.apply(step); disk.check(); });
            ring
        };
        let most = STATEMENT as u64 + SMALL.segment * SMALL.segments;
        for (place, (name, values)) in slices.iter().enumerate() {
            let mut steps = Vec::new();
            ring.add(&slice(track, place as u64 * 10, *name, *values), tracks, &mut steps);
            if place % every == 0 {
                ring.commit(&mut steps);
            }
            steps.iter().for_each(|step| { disk.apply(step); disk.check(); });
            prop_assert!(disk.0.len() as u64 <= most);
        }
        let mut steps = Vec::new();
        ring.finish(&mut steps);
        ring.missing().is_open = false;
        let missing = *ring.missing();
        ring.state(tracks, 77, &mut steps);
        steps.iter().for_each(|step| { disk.apply(step); disk.check(); });

        let found = contents(&disk.0);
        let commands: Vec<_> = found.slices().into_iter().filter(|of| of.begin.category == "command").collect();
        prop_assert_eq!(commands.len() as u64 + missing.commands, slices.len() as u64);
        // The newest are there.
        let mut begins: Vec<_> = commands.iter().map(|of| of.begin.at).collect();
        begins.sort_unstable();
        let newest = (missing.commands..slices.len() as u64).map(|place| place * 10);
        prop_assert!(begins.into_iter().eq(newest));
        for of in &commands {
            prop_assert_eq!(of.end, of.begin.at + 1);
            let (name, values) = slices[of.begin.at as usize / 10];
            let expected = slice(track, 0, name, values);
            prop_assert_eq!(&of.begin.name, cut(&expected.name));
            prop_assert_eq!(of.begin.values.len(), values);
            prop_assert!(of.begin.values.iter().all(|(name, value)| name == "name" && value.starts_with("value")));
        }
        let statement = found.events.iter().find(|event| event.category == "trace").unwrap();
        prop_assert_eq!(&statement.name, &missing.to_string());
        prop_assert_eq!(statement.number("missing commands"), Some(missing.commands));

        // Without the padding, everything is still there.
        let packets: Vec<u8> = raw_packets(&disk.0).flatten().copied().collect();
        prop_assert_eq!(contents(&packets), found);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut file = vec![0x0a, bytes.len() as u8 & 0x7f];
        file.extend(&bytes);
        let _ = raw_packets(&file).count();
        let _ = contents(&file).slices();
        let _ = contents(&bytes).slices();
    }
}

#[test]
fn every_statement_has_room() {
    let timeline = tracks();
    let mut steps = Vec::new();
    let mut ring = Ring::new(Sizes::default(), 0, &mut steps);
    let most = u64::MAX / 4;
    *ring.missing() = Missing {
        slices: most,
        commands: most,
        reports: most,
        lost_commands: most,
        unended: most,
        unwritable: true,
        is_open: true,
    };
    steps.clear();
    ring.state(timeline.tracks(), u64::MAX, &mut steps);
    let [FileChange::Write { at: 0, bytes }] = &steps[..] else {
        panic!("{steps:?}");
    };
    assert_eq!(bytes.len(), STATEMENT);
    let found = contents(bytes);
    let statement = &found.events[0];
    assert!(
        statement
            .name
            .contains("because the file could not be written"),
        "{statement:?}"
    );
    assert_eq!(Missing::default().to_string(), "The trace is complete");
}

#[test]
fn a_file_is_no_larger_than_its_limit() {
    let Sizes { segment, segments } = Sizes::default();
    let size = STATEMENT as u64 + segment * segments;
    assert!((LIMIT - segment..=LIMIT).contains(&size));
    assert!(segment as usize >= 2 * LARGEST);
}

#[test]
fn a_short_trace_is_a_short_file() {
    let timeline = tracks();
    let (mut disk, mut steps) = (Disk::default(), Vec::new());
    let mut ring = Ring::new(Sizes::default(), 1, &mut steps);
    ring.add(
        &slice(timeline.tracks().process(), 1, 1, 1),
        timeline.tracks(),
        &mut steps,
    );
    ring.finish(&mut steps);
    steps.iter().for_each(|step| disk.apply(step));
    disk.check();
    assert!(disk.0.len() < 4096, "{}", disk.0.len());
    assert_eq!(contents(&disk.0).slices().len(), 1);
}
