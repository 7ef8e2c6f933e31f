use std::collections::{BTreeMap, BTreeSet};

use causeway_proto::command::{
    BuildProgram, CompileProgram, CreateContext, CreateKernel, CreateProgram, CreateSubDevices,
    Header, LinkProgram,
};
use proptest::prelude::*;

use super::*;

const MEMORY: ObjectKind = ObjectKind::Memory;
const PROGRAM: ObjectKind = ObjectKind::Program;

fn buffer(buffer: u64) -> Kind {
    Kind::CreateBuffer(CreateBuffer {
        buffer,
        size: 8,
        contents: vec![1; 8].into(),
        ..CreateBuffer::default()
    })
}

fn program(program: u64) -> Kind {
    Kind::CreateProgram(CreateProgram {
        program,
        ..CreateProgram::default()
    })
}

fn build(program: u64, devices: &[u32]) -> Kind {
    Kind::BuildProgram(BuildProgram {
        program,
        devices: devices.to_vec(),
        ..BuildProgram::default()
    })
}

fn link(program: u64, inputs: Vec<u64>) -> Kind {
    Kind::LinkProgram(LinkProgram {
        program,
        inputs,
        ..LinkProgram::default()
    })
}

fn release(object: ObjectKind, id: u64) -> Kind {
    let object = object.into();
    Kind::Release(Release { object, id })
}

fn record(kinds: &[Kind], written: u64) -> Record {
    let mut record = Record::default();
    for (number, kind) in (1..).zip(kinds) {
        record.note(number, kind, written.min(number - 1));
    }
    record
}

#[test]
fn contents_are_left_out_and_what_is_released_is_forgotten() {
    let kinds = [
        buffer(1),
        buffer(2),
        release(MEMORY, 1),
        buffer(3),
        release(MEMORY, 2),
    ];
    let record = record(&kinds, 9);
    // The last release was not written when it was noted.
    assert_eq!(record.entries.len(), 2);
    let without = CreateBuffer {
        buffer: 3,
        size: 8,
        ..CreateBuffer::default()
    };
    assert_eq!(record.commands(5), [Kind::CreateBuffer(without)]);
}

#[test]
fn the_cut_decides_what_is_alive() {
    let kinds = [buffer(1), release(MEMORY, 1), buffer(2)];
    let record = record(&kinds, 1);
    let ids = |cut| record.commands(cut).len();
    assert_eq!([ids(0), ids(1), ids(2), ids(3)], [0, 1, 0, 1]);
}

#[test]
fn a_linked_program_needs_its_inputs_and_a_compilation_its_headers() {
    let compile = Kind::CompileProgram(CompileProgram {
        program: 2,
        headers: vec![Header {
            program: 1,
            ..Header::default()
        }],
        ..CompileProgram::default()
    });
    let kinds = [
        program(1),
        program(2),
        compile.clone(),
        link(3, vec![2]),
        release(PROGRAM, 1),
        release(PROGRAM, 2),
        buffer(9),
        release(MEMORY, 9),
    ];
    let mut record = record(&kinds, 9);
    let expected = [program(1), program(2), compile, link(3, vec![2])];
    let commands = record.commands(8);
    assert_eq!(commands[..4], expected);
    let released: BTreeSet<String> = commands[4..]
        .iter()
        .map(|kind| format!("{kind:?}"))
        .collect();
    let both = [release(PROGRAM, 1), release(PROGRAM, 2)];
    assert_eq!(
        released,
        both.iter().map(|kind| format!("{kind:?}")).collect()
    );
    record.note(9, &release(PROGRAM, 3), 8);
    record.note(10, &release(PROGRAM, 99), 9);
    assert!(record.entries.is_empty(), "{record:?}");
}

#[test]
fn a_build_replaces_another_one_once_it_is_written() {
    let mut record = record(&[program(1), build(1, &[0]), build(1, &[0, 1])], 1);
    assert_eq!(record.commands(2), [program(1), build(1, &[0])]);
    record.note(4, &build(1, &[1]), 3);
    assert_eq!(
        record.commands(4),
        [program(1), build(1, &[0, 1]), build(1, &[1])]
    );
}

#[test]
fn sub_devices_stay_until_all_are_released() {
    let create = Kind::CreateSubDevices(CreateSubDevices {
        platform: 1,
        first: 5,
        room: 2,
        ..CreateSubDevices::default()
    });
    let part = |device| {
        Kind::ReleaseSubDevice(ReleaseSubDevice {
            platform: 1,
            device,
        })
    };
    let count = CreateSubDevices::default();
    let kinds = [
        create.clone(),
        Kind::CreateSubDevices(count),
        part(6),
        part(4),
    ];
    let mut record = record(&kinds, 9);
    assert_eq!(record.commands(9), [create]);
    record.note(5, &part(5), 4);
    assert!(record.commands(5).is_empty());
}

#[test]
fn batches_hold_the_whole_record_and_the_last_one_says_so() {
    let large = |program| {
        Kind::CreateProgram(CreateProgram {
            program,
            from: Some(causeway_proto::command::create_program::From::Source(
                vec![b' '; BATCH_TARGET * 2 / 3].into(),
            )),
            ..CreateProgram::default()
        })
    };
    for kinds in [
        vec![],
        vec![buffer(1)],
        (1..=5).map(large).collect::<Vec<_>>(),
    ] {
        let mut got = Vec::new();
        let encoded = batches(&kinds);
        for (at, bytes) in encoded.iter().enumerate() {
            let batch = CommandBatch::decode(&bytes[PREFIX..]).unwrap();
            assert_eq!(batch.first, got.len() as u64 + 1);
            let is_last = at + 1 == encoded.len();
            assert_eq!(batch.recorded() == Recorded::Last, is_last);
            got.extend(
                batch
                    .commands
                    .into_iter()
                    .filter_map(|command| command.kind),
            );
        }
        assert_eq!(got, kinds);
    }
}

/// A random step: what to do, and with which of the objects that are alive.
type Step = (u8, prop::sample::Index, bool);

proptest! {
    // At each cut that can be, the record makes exactly what is alive there, once, after what it needs.
    #[test]
    fn the_record_of_a_stream_is_what_is_alive(steps in prop::collection::vec(any::<Step>(), 1..60)) {
        let mut stream: Vec<Kind> = vec![Kind::CreateContext(CreateContext { context: 1, ..CreateContext::default() })];
        let mut record = Record::default();
        let (mut written, mut next) = (0, 2);
        let mut alive: Vec<(ObjectKind, u64)> = Vec::new();
        record.note(1, &stream[0], 0);
        for (what, which, writes) in steps {
            let programs: Vec<u64> = alive.iter().filter(|(kind, _)| *kind == PROGRAM).map(|(_, id)| *id).collect();
            next += 1;
            let kind = match what % 6 {
                0 => { alive.push((MEMORY, next)); buffer(next) }
                1 => { alive.push((PROGRAM, next)); program(next) }
                2 if !programs.is_empty() => build(*which.get(&programs), &[0]),
                3 if !programs.is_empty() => {
                    alive.push((ObjectKind::Kernel, next));
                    let program = *which.get(&programs);
                    Kind::CreateKernel(CreateKernel { kernel: next, program, ..CreateKernel::default() })
                }
                4 if !programs.is_empty() => {
                    alive.push((PROGRAM, next));
                    link(next, vec![*which.get(&programs)])
                }
                // The stub of a kernel keeps its program.
                5 if !alive.is_empty() => {
                    let (kind, id) = alive[which.index(alive.len())];
                    let has_kernel = stream.iter().any(|of| matches!(of, Kind::CreateKernel(of)
                        if of.program == id && alive.contains(&(ObjectKind::Kernel, of.kernel))));
                    if kind == PROGRAM && has_kernel { continue }
                    alive.retain(|of| *of != (kind, id));
                    release(kind, id)
                }
                _ => continue,
            };
            let number = stream.len() as u64 + 1;
            record.note(number, &kind, written);
            stream.push(kind);
            if writes {
                written = number;
            }
            for cut in written..=number {
                check(&stream[..cut as usize], &record.commands(cut))?;
            }
        }
    }
}

// Applies both streams and compares what is alive.
fn check(stream: &[Kind], record: &[Kind]) -> Result<(), TestCaseError> {
    let (of_stream, of_record) = (apply(stream), apply(record));
    prop_assert!(of_record.is_ok(), "{:?} in {record:?}", of_record.err());
    prop_assert_eq!(of_stream.ok(), of_record.ok());
    let inputs = record
        .iter()
        .filter(|kind| !matches!(kind, Kind::Release(_) | Kind::BuildProgram(_)));
    let keys: Vec<Key> = inputs.filter_map(creation).map(|(key, _)| key).collect();
    let distinct: BTreeSet<String> = keys.iter().map(|key| format!("{key:?}")).collect();
    prop_assert_eq!(distinct.len(), keys.len());
    Ok(())
}

// What is alive, with whether it was built.
fn apply(stream: &[Kind]) -> Result<BTreeMap<(i32, u64), bool>, String> {
    let mut alive = BTreeMap::new();
    let program = |id: u64| (i32::from(PROGRAM), id);
    for kind in stream {
        let needed: Vec<u64> = match kind {
            Kind::CreateKernel(create) => vec![create.program],
            Kind::LinkProgram(link) => link.inputs.clone(),
            Kind::BuildProgram(build) => vec![build.program],
            _ => Vec::new(),
        };
        if let Some(missing) = needed.iter().find(|id| !alive.contains_key(&program(**id))) {
            return Err(format!("{missing} is missing"));
        }
        match kind {
            Kind::Release(release) => drop(alive.remove(&(release.object, release.id))),
            Kind::BuildProgram(build) => drop(alive.insert(program(build.program), true)),
            kind => match creation(kind) {
                Some((Key::Object(object, id), _)) => drop(alive.insert((object, id), false)),
                _ => return Err("an unexpected command".to_owned()),
            },
        }
    }
    Ok(alive)
}
