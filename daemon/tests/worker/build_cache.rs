//! Tests of the build cache over the real protocol: hits, misses, and unusable entries.

use causeway_proto::command::{command::Kind, *};
use prost::bytes::Bytes;

use crate::common::cached::{
    ON, Place, SOURCE, binaries_taken, build, count, end, entries, entry_in, told, until,
};
use crate::common::{Daemon, launch, memory, plain};

#[test]
fn a_second_build_comes_from_the_cache_and_says_the_same() {
    let place = Place::new();
    let daemon = place.daemon(ON, &[]);
    let (first, cached) = build(&place, &daemon, SOURCE, "-DX=1");
    assert!(!cached);
    place.until_entries(1);
    let (second, cached) = build(&place, &daemon, SOURCE, "-DX=1");
    assert!(cached);
    assert_eq!(first, second);
    assert_eq!(first.kernels.len(), 2);
    // A restarted daemon still has the entry.
    drop(daemon);
    let (third, cached) = build(&place, &place.daemon(ON, &[]), SOURCE, "-DX=1");
    assert!(cached);
    assert_eq!(first, third);
}

#[test]
fn another_text_options_or_settings_are_another_build() {
    let place = Place::new();
    let daemon = place.daemon(ON, &[]);
    let others = [
        (SOURCE.to_owned(), "-DX=2"),
        (SOURCE.to_owned(), "-DX=1 "),
        (format!("{SOURCE} "), "-DX=1"),
    ];
    build(&place, &daemon, SOURCE, "-DX=1");
    place.until_entries(1);
    for (number, (text, options)) in others.iter().enumerate() {
        assert!(!build(&place, &daemon, text, options).1, "{options:?}");
        place.until_entries(2 + number);
    }
    drop(daemon);
    // Variables that change the drivers' compilation are a part of the key.
    let daemon = place.daemon(ON, &[("POCL_WORK_GROUP_METHOD", "loops")]);
    assert!(!build(&place, &daemon, SOURCE, "-DX=1").1);
}

#[test]
fn a_replaced_driver_gets_no_entry_of_the_one_before() {
    let place = Place::new();
    let daemon = place.daemon(ON, &[]);
    build(&place, &daemon, SOURCE, "");
    place.until_entries(1);
    // A driver with the same version text in a new file, as after a package update.
    let driver = place.path("libfake_opencl.so");
    let new = place.path("new.so");
    std::fs::copy(&driver, &new).unwrap();
    std::fs::rename(&new, &driver).unwrap();
    assert!(!build(&place, &daemon, SOURCE, "").1);
    place.until_entries(2);
    assert!(build(&place, &daemon, SOURCE, "").1);
}

#[test]
fn a_spoilt_entry_is_a_build() {
    let place = Place::new();
    let daemon = place.daemon(ON, &[]);
    let (first, _) = build(&place, &daemon, SOURCE, "");
    place.until_entries(1);
    let entry = &place.entries()[0];
    let whole = std::fs::read(entry).unwrap();
    let mut spoilt = whole.clone();
    *spoilt.last_mut().unwrap() ^= 1;
    for bytes in [&spoilt[..], &whole[..whole.len() / 2], b""] {
        std::fs::write(entry, bytes).unwrap();
        let (again, cached) = build(&place, &daemon, SOURCE, "");
        assert_eq!((again, cached), (first.clone(), false));
        place.until_mended(&whole);
    }
    assert!(build(&place, &daemon, SOURCE, "").1);
}

/// Tests a valid entry of this very build that the driver refuses.
#[test]
fn a_binary_that_the_driver_refuses_is_a_build() {
    let place = Place::new();
    let daemon = place.daemon(ON, &[]);
    let (first, _) = build(&place, &daemon, SOURCE, "");
    place.until_entries(1);
    let whole = std::fs::read(&place.entries()[0]).unwrap();
    place.alter_the_entry(|entry| entry.binary = b"another driver's".to_vec());
    let (again, tried) = build(&place, &daemon, SOURCE, "");
    assert!(tried);
    assert_eq!(again, first);
    place.until_mended(&whole);
}

#[test]
fn an_entry_with_other_kernels_is_a_build() {
    let place = Place::new();
    let daemon = place.daemon(ON, &[]);
    let (first, _) = build(&place, &daemon, SOURCE, "");
    place.until_entries(1);
    let whole = std::fs::read(&place.entries()[0]).unwrap();
    place.alter_the_entry(|entry| drop(entry.answer.kernels.pop()));
    assert_eq!(build(&place, &daemon, SOURCE, "").0, first);
    place.until_mended(&whole);
}

#[test]
fn what_is_switched_off_leaves_no_trace() {
    let place = Place::new();
    let daemon = place.daemon("0", &[]);
    for _ in 0..2 {
        assert!(!build(&place, &daemon, SOURCE, "").1);
    }
    assert!(!place.path("cache").exists());
}

#[test]
fn only_builds_that_repeat_and_succeed_are_kept() {
    let place = Place::new();
    let daemon = place.daemon(ON, &[]);
    for name in ["__DATE__", "__FILE__"] {
        let text = format!("constant char t[] = {name}; kernel void f() {{ }}");
        build(&place, &daemon, &text, "");
    }
    let mut session = daemon.session();
    let context = session.context();
    let (_, answer) = session.build(context, "#error no\n", "");
    assert!(answer.status < 0);
    end(session);
    // Every session has ended, so further entries would be here.
    build(&place, &daemon, SOURCE, "");
    place.until_entries(1);
    assert!(build(&place, &daemon, SOURCE, "").1);
}

#[test]
fn a_build_is_stored_once_while_the_session_runs() {
    let place = Place::new();
    let daemon = place.daemon(ON, &[]);
    let mut session = daemon.session();
    let context = session.context();
    for text in ["a", "b", "a", "b", "a", "b"] {
        let text = format!("{SOURCE}// {text}\n");
        told(session.build(context, &text, "").1);
    }
    place.until_entries(2);
    let log = place.path(&format!("log-{}", session.worker()));
    end(session);
    let log = std::fs::read_to_string(log).unwrap();
    assert_eq!(log.matches("clBuildProgram(").count(), 6);
    assert_eq!(binaries_taken(&log), 2);
}

/// Tests that the binaries of the last build do not become an entry of the first one.
#[test]
fn a_program_that_was_built_otherwise_leaves_one_entry() {
    let place = Place::new();
    let daemon = place.daemon(ON, &[]);
    let mut session = daemon.session();
    let context = session.context();
    let program = session.new_id();
    let requests = [session.new_id(), session.new_id()];
    let build_with = |request, options: &'static str| {
        Kind::BuildProgram(BuildProgram {
            request,
            program,
            options: options.into(),
            ..BuildProgram::default()
        })
    };
    // Sent at once, so that the session is not quiet in between.
    session.send(vec![
        Kind::CreateProgram(CreateProgram {
            program,
            context,
            from: Some(create_program::From::Source(Bytes::from_static(
                SOURCE.as_bytes(),
            ))),
            request: 0,
        }),
        build_with(requests[0], "-DX=1"),
        build_with(requests[1], "-DX=2"),
    ]);
    for request in requests {
        told(session.answer(request));
    }
    end(session);
    place.until_entries(1);
    assert!(build(&place, &daemon, SOURCE, "-DX=2").1);
    assert!(!build(&place, &daemon, SOURCE, "-DX=1").1);
}

#[test]
fn a_context_of_several_devices_leaves_an_entry_for_each() {
    let place = Place::new();
    let rules = "instant = true\n[[device]]\nname = \"A\"\n[[device]]\nname = \"B\"\n";
    let daemon = place.daemon(ON, &[("FAKE_OPENCL_CONFIG", rules)]);
    let build_on = |devices: &[u32]| {
        let mut session = daemon.session();
        let context = session.new_id();
        session.send(vec![Kind::CreateContext(CreateContext {
            context,
            platform: 0,
            devices: devices.to_vec(),
        })]);
        let answer = told(session.build(context, SOURCE, "").1);
        let calls = place.calls(&session);
        end(session);
        (answer, calls.contains("clCreateProgramWithBinary"))
    };
    let (both, cached) = build_on(&[0, 1]);
    assert!(!cached);
    place.until_entries(2);
    assert_eq!(build_on(&[0, 1]), (both.clone(), true));
    for device in [0, 1] {
        let (one, cached) = build_on(&[device]);
        assert!(cached);
        assert_eq!(one.devices, [both.devices[device as usize].clone()]);
        assert_eq!(one.kernels.len(), both.kernels.len());
        assert!(one.kernels.iter().all(|kernel| kernel.devices.len() == 1));
    }
}

#[test]
fn a_daemon_that_is_told_to_end_leaves_no_scratch_folder() {
    let place = Place::new();
    let (daemon, session) = place.daemon_that_stores();
    drop(session);
    assert!(daemon.terminate());
    assert_eq!(
        (count(place.path("cache")), count(place.path("tmp"))),
        (0, 0)
    );
}

/// Other sessions can have memory and queues while the driver makes the binaries.
#[test]
fn a_session_releases_its_objects_before_its_builds_are_stored() {
    let place = Place::new();
    let (_daemon, mut session) = place.daemon_that_stores();
    let context = session.context();
    session.queue(context, 0);
    session.buffer(context, 1 << 20, &[]);
    session.ping();
    let log = place.path(&format!("log-{}", session.worker()));
    drop(session);
    until("the release of memory and queue", || {
        let log = std::fs::read_to_string(&log).unwrap();
        ["clReleaseMemObject(", "clReleaseCommandQueue("]
            .iter()
            .all(|call| log.contains(call))
    });
}

#[test]
fn what_a_killed_daemon_left_goes_with_the_next_start() {
    let place = Place::new();
    let (daemon, _session) = place.daemon_that_stores();
    drop(daemon);
    let left = |place: &Place| {
        let mut folder = std::fs::read_dir(place.path("tmp")).unwrap();
        folder.next().unwrap().unwrap().path()
    };
    let before = left(&place);
    let temporary = place.path("tmp");
    let _daemon = place.daemon(ON, &[("TMPDIR", temporary.to_str().unwrap())]);
    assert_eq!(
        (count(place.path("cache")), count(&temporary)),
        (0, 1),
        "the folder of this one's processes"
    );
    assert_ne!(left(&place), before);
}

#[test]
fn the_least_recently_used_entry_goes_first() {
    let place = Place::new();
    let text = |n: u32| format!("{SOURCE}// {n}\n");
    // Two entries fit: each counts as one block of the disk.
    let daemon = place.daemon("10000", &[]);
    build(&place, &daemon, &text(0), "");
    place.until_entries(1);
    build(&place, &daemon, &text(1), "");
    place.until_entries(2);
    assert!(build(&place, &daemon, &text(0), "").1);
    build(&place, &daemon, &text(2), "");
    until("an entry", || build(&place, &daemon, &text(2), "").1);
    assert_eq!(place.entries().len(), 2);
    assert!(build(&place, &daemon, &text(0), "").1);
    assert!(!build(&place, &daemon, &text(1), "").1);
}

/// Tests that an unwritable folder costs the cache, and not the build.
#[test]
fn a_folder_that_is_gone_costs_the_cache_alone() {
    let place = Place::new();
    let daemon = place.daemon(ON, &[]);
    std::fs::remove_dir_all(place.path("cache")).unwrap();
    for _ in 0..2 {
        assert!(!build(&place, &daemon, SOURCE, "").1);
    }
}

/// Tests that the application can build the program again as it likes, whatever its last build came from.
#[test]
fn a_program_from_the_cache_can_be_built_otherwise() {
    let place = Place::new();
    let daemon = place.daemon(ON, &[]);
    build(&place, &daemon, SOURCE, "");
    place.until_entries(1);
    let mut session = daemon.session();
    let context = session.context();
    let (program, answer) = session.build(context, SOURCE, "");
    told(answer);
    assert!(place.calls(&session).contains("clCreateProgramWithBinary"));
    for options in ["-DX=3", ""] {
        let request = session.new_id();
        session.send(vec![Kind::BuildProgram(BuildProgram {
            request,
            program,
            options: options.into(),
            ..BuildProgram::default()
        })]);
        let answer = told(session.answer(request));
        assert_eq!(answer.kernels.len(), 2);
    }
    // As a header, the program is its text.
    let user = session.new_id();
    let request = session.new_id();
    session.send(vec![
        Kind::CreateProgram(CreateProgram {
            program: user,
            context,
            from: Some(create_program::From::Source(Bytes::from_static(
                b"#include \"it.h\"\n",
            ))),
            request: 0,
        }),
        Kind::CompileProgram(CompileProgram {
            request,
            program: user,
            headers: vec![Header {
                include_name: "it.h".into(),
                program,
                ..Header::default()
            }],
            ..CompileProgram::default()
        }),
    ]);
    told(session.answer(request));
}

/// Tests the real driver: cached builds run, print and warn.
#[test]
fn a_program_from_the_cache_does_what_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let scratch = folder.path().join("pocl");
    let daemon = Daemon::with(&[
        ("CAUSEWAYD_BUILD_CACHE_DIR", cache.to_str().unwrap()),
        ("CAUSEWAYD_BUILD_CACHE_SIZE", "100000000"),
        ("CAUSEWAYD_LOG", "debug"),
        ("POCL_CACHE_DIR", scratch.to_str().unwrap()),
    ]);
    let text = "#warning mind\n__attribute__((reqd_work_group_size(4, 1, 1)))\n\
        kernel void f(global int *x, int by) { x[get_global_id(0)] *= by; }";
    let mut answers = Vec::new();
    for _ in 0..2 {
        let mut session = daemon.session();
        let context = session.context();
        let queue = session.queue(context, 0);
        let (program, answer) = session.build(context, text, "-cl-mad-enable");
        answers.push(told(answer));
        let kernel = session.kernel(program, "f");
        let buffer = session.buffer(context, 16, &[1, 0, 0, 0].repeat(4));
        let args = vec![memory(buffer), plain(&7i32.to_le_bytes())];
        session.enqueue(queue, &[], launch(kernel, args, &[4], &[4]));
        let bytes = session.bytes(queue, buffer, 0, 16);
        assert_eq!(&bytes[..], [7, 0, 0, 0].repeat(4));
        // The driver needs time for the binary, so the session waits.
        until("an entry", || !entries(&cache).is_empty());
        end(session);
        // The driver's files are gone with the process that built. An entry that named them would be outdated.
        let (_, entry) = entry_in(&entries(&cache)[0]);
        for file in &entry.answer.loaded {
            assert!(std::path::Path::new(&file.path).exists(), "{}", file.path);
        }
    }
    for answer in &mut answers {
        // PoCL's compiler reads the text from a file with another name each time. Both logs name it.
        let log = &mut answer.devices[0].log;
        assert!(log.contains("mind"), "{log}");
        let temporary = format!("{}/tempfile_", scratch.display());
        while let Some(at) = log.find(&temporary) {
            let name = &log[at..];
            let length = name.find(".cl").expect("a source file");
            log.replace_range(at..at + length, "it");
        }
    }
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0].devices[0].log.contains(" it.cl:1:2: mind"));
}
