use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;

fn process() -> Process {
    Process {
        id: 7,
        name: "program".to_owned(),
        salt: 0x1234_5678,
    }
}

fn enqueued(event: u64, place: TracePlace, waits: &[u64]) -> Record {
    Record::Enqueued(Enqueued {
        event,
        place,
        name: "kernel".into(),
        bytes: None,
        waits: waits.to_vec(),
        thread: Some(1),
    })
}

fn ended(event: u64, times: Option<[u64; 5]>) -> Record {
    Record::Ended(Ended {
        event,
        status: 0,
        at: 99,
        times,
    })
}

fn call(span: [u64; 2]) -> Record {
    Record::Call(Call {
        thread: 1,
        name: "clEnqueueNDRangeKernel",
        span,
        status: 0,
    })
}

fn drawn(records: impl IntoIterator<Item = Record>) -> (Timeline, Vec<Slice>) {
    let mut timeline = Timeline::new(process());
    let mut slices = Vec::new();
    for record in records {
        timeline.take(record, &mut slices);
    }
    (timeline, slices)
}

fn value(slice: &Slice, name: &str) -> Option<u64> {
    let found = slice.values.iter().find(|(of, _)| *of == name);
    match found?.1 {
        Value::Number(number) => Some(number),
        _ => None,
    }
}

prop_compose! {
    fn command()(queue in 0u64..3, queued in 0u64..500, parts in prop::array::uniform4(0u64..40), known in any::<bool>())
        -> (u64, Option<[u64; 5]>) {
        let mut times = [queued; 5];
        for (place, part) in parts.iter().enumerate() {
            times[place + 1] = times[place] + part;
        }
        (queue, known.then_some(times))
    }
}

proptest! {
    #[test]
    fn every_command_stands_once_with_its_times_and_no_slices_of_a_track_overlap(
        commands in prop::collection::vec(command(), 0..300), order in any::<u64>(),
    ) {
        let mut records: Vec<Record> = (0..3)
            .map(|queue| Record::Queue { queue, node: 0, device: "device".to_owned() })
            .collect();
        let all = commands.iter().zip(1..);
        records.extend(all.clone().map(|((queue, _), event)| enqueued(event, TracePlace::Queue(*queue), &[event - 1])));
        // Commands end in any order.
        let mut ends: Vec<_> = all.map(|((_, times), event)| ended(event, *times)).collect();
        let length = ends.len().max(1);
        ends.rotate_left(order as usize % length);
        if order % 2 == 0 {
            ends.reverse();
        }
        records.extend(ends);
        let (timeline, slices) = drawn(records);
        prop_assert_eq!(timeline.open_commands(), 0);

        let mut seen = BTreeMap::new();
        for slice in slices.iter().filter(|slice| slice.category == Category::Command) {
            let event = value(slice, "event").unwrap();
            prop_assert!(seen.insert(event, slice).is_none(), "{} is drawn twice", event);
        }
        prop_assert_eq!(seen.len(), commands.len());
        for (event, slice) in seen {
            let Some(times) = commands[event as usize - 1].1 else {
                prop_assert_eq!((slice.begin, slice.end), (99, None));
                continue;
            };
            let of = |name| value(slice, name).unwrap();
            let shown = [of("queued"), of("submitted"), slice.begin, slice.end.unwrap(), of("completed")];
            prop_assert_eq!(shown, times);
        }

        let mut tracks: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
        for slice in &slices {
            prop_assert!(timeline.tracks().get(slice.track).is_some());
            if let Some(end) = slice.end {
                tracks.entry(slice.track).or_default().push((slice.begin, end));
            }
            let ends = slice.inner.iter().map(|inner| (inner.begin, inner.end.unwrap()));
            let parts: Vec<_> = ends.collect();
            prop_assert!(parts.iter().all(|part| slice.begin <= part.0 && part.1 <= slice.end.unwrap()));
            prop_assert!(parts.windows(2).all(|two| two[0].1 <= two[1].0));
        }
        for mut track in tracks.into_values() {
            track.sort_unstable();
            prop_assert!(track.windows(2).all(|two| two[0].1 < two[1].0), "{track:?}");
        }
    }
}

#[test]
fn arrows_lead_from_the_call_to_the_command_and_along_the_wait_list() {
    let times = |start| Some([1, 2, start, start + 5, start + 5]);
    let (_, slices) = drawn([
        enqueued(1, TracePlace::Queue(1), &[]),
        call([1, 2]),
        enqueued(2, TracePlace::Queue(1), &[1]),
        call([3, 4]),
        ended(1, times(10)),
        // Its wait list names a command that has ended, so the command did not wait for that.
        enqueued(3, TracePlace::Queue(1), &[1]),
        ended(2, times(20)),
        ended(3, times(30)),
    ]);
    let of = |category| {
        slices
            .iter()
            .filter(move |slice| slice.category == category)
    };
    let calls: Vec<_> = of(Category::Call).collect();
    let commands: Vec<_> = of(Category::Command).collect();
    assert_eq!((calls.len(), commands.len()), (2, 3));
    let to_first = calls[0].arrows[0];
    assert_eq!(commands[0].arrow_ends, [to_first]);
    let behind_first = commands[0].arrows[0];
    assert_eq!(commands[0].arrows.len(), 1);
    assert_eq!(commands[1].arrow_ends, [calls[1].arrows[0], behind_first]);
    assert_eq!(commands[2].arrow_ends.len(), 1);
    assert_ne!(to_first, behind_first);
}

#[test]
fn waits_are_inside_of_their_call() {
    let wait = Record::Wait {
        thread: 1,
        span: [12, 18],
    };
    let (_, slices) = drawn([wait, call([10, 20])]);
    let inner = &slices[0].inner[0];
    assert_eq!((inner.begin, inner.end), (12, Some(18)));
    assert_eq!(inner.category, Category::Wait);
}

fn batch(first: u64, last: u64, begin: u64) -> Record {
    Record::Batch(Batch {
        node: 0,
        first,
        last,
        bytes: 100,
        span: [begin, begin + 1],
    })
}

fn applied(number: u64, at: u64) -> Record {
    Record::Applied {
        node: 0,
        number,
        at,
    }
}

#[test]
fn a_batch_lasts_until_it_is_applied() {
    let (_, slices) = drawn([
        batch(1, 3, 10),
        batch(4, 9, 20),
        applied(5, 30),
        applied(9, 40),
    ]);
    let spans: Vec<_> = slices.iter().map(|of| (of.begin, of.end)).collect();
    assert_eq!(spans, [(10, Some(30)), (20, Some(40))]);
    assert_eq!(value(&slices[1], "commands"), Some(6));
    assert_ne!(slices[0].track, slices[1].track);
}

#[test]
fn a_batch_that_is_reported_after_its_end_is_drawn() {
    let (_, slices) = drawn([
        batch(1, 3, 10),
        applied(9, 30),
        batch(4, 9, 20),
        // The next session counts anew.
        batch(1, 2, 50),
        applied(2, 60),
    ]);
    let spans: Vec<_> = slices.iter().map(|of| (of.begin, of.end)).collect();
    assert_eq!(spans, [(10, Some(30)), (20, Some(30)), (50, Some(60))]);
}

#[test]
fn a_batch_without_a_report_lasts_as_long_as_its_write() {
    let (mut timeline, mut slices) = drawn([batch(1, 3, 10), batch(4, 9, 20), applied(3, 30)]);
    timeline.finish(&mut slices);
    let spans: Vec<_> = slices.iter().map(|of| (of.begin, of.end)).collect();
    assert_eq!(spans, [(10, Some(30)), (20, Some(21))]);
    assert_eq!(value(&slices[1], "commands"), Some(6));
}

#[test]
fn the_chunks_of_a_transfer_are_one_slice() {
    let moved = |begin, bytes| {
        Record::Moved(Moved {
            node: 0,
            event: 1,
            is_out: true,
            bytes,
            span: [begin, begin + 5],
        })
    };
    let (_, slices) = drawn([
        enqueued(1, TracePlace::Queue(1), &[]),
        moved(10, 100),
        moved(20, 50),
        ended(1, None),
        // The command's end was faster than the report of the last chunk.
        moved(30, 7),
    ]);
    let transfers = slices.iter().filter(|of| of.category == Category::Transfer);
    let transfers: Vec<_> = transfers
        .map(|of| (of.begin, of.end, value(of, "bytes")))
        .collect();
    assert_eq!(
        transfers,
        [(10, Some(25), Some(150)), (30, Some(35), Some(7))]
    );
}

#[test]
fn after_a_loss_nothing_waits_for_an_end() {
    let (mut timeline, _) = drawn([enqueued(1, TracePlace::Queue(1), &[])]);
    assert_eq!(timeline.lose(), 1);
    let mut slices = Vec::new();
    timeline.take(ended(1, None), &mut slices);
    assert_eq!((slices.len(), timeline.open_commands()), (0, 0));
}
