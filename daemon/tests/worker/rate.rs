//! Measures commands per second through one session over the fake driver. Run it by name:
//!
//! `cargo build --release -p fake-driver && cargo test --release -p causewayd --test worker -- rate:: --ignored
//! --nocapture`

use std::path::PathBuf;
use std::time::Instant;

use causeway_proto::command::{command::Kind, *};

use crate::common::{Daemon, Session, launch, memory, plain};

const COUNT: u64 = 400_000;
const BATCH: u64 = 400;

/// Returns the user and system time of a process, in ticks of 10 ms.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn fake() -> (tempfile::TempDir, Daemon) {
    let mut library = PathBuf::from(env!("CARGO_BIN_EXE_causewayd"));
    library.set_file_name("libfake_opencl.so");
    assert!(library.exists(), "build the fake driver first: {library:?}");
    let vendors = tempfile::tempdir().unwrap();
    std::fs::write(vendors.path().join("fake.icd"), library.to_str().unwrap()).unwrap();
    let daemon = Daemon::with(&[
        ("OCL_ICD_VENDORS", vendors.path().to_str().unwrap()),
        ("FAKE_OPENCL_CONFIG", "instant = true"),
    ]);
    (vendors, daemon)
}

fn objects(session: &mut Session) -> (u64, u64, u64) {
    let context = session.context();
    let queue = session.queue(context, 0);
    let buffer = session.buffer(context, 64, &[]);
    let source = "kernel void f(global int *x, int a, int b) { }";
    let (program, answer) = session.build(context, source, "");
    assert_eq!(answer.status, 0);
    (queue, session.kernel(program, "f"), buffer)
}

#[test]
#[ignore = "a measurement"]
fn launches_a_second() {
    let (_vendors, daemon) = fake();
    let mut session = daemon.session();
    let (queue, kernel, buffer) = objects(&mut session);
    let worker = session.worker();
    // Everything is encoded before the clock starts, because this measures the worker, and not the client.
    let mut frames = Vec::new();
    let mut last = 0;
    for _ in 0..COUNT / BATCH {
        let mut commands = Vec::new();
        for i in 0..BATCH {
            let event = session.new_id();
            let args = vec![memory(buffer), plain(&(i as u32).to_ne_bytes())];
            commands.push(Kind::Enqueue(Enqueue {
                event,
                queue,
                wait: if i % 4 == 0 && last != 0 {
                    vec![last]
                } else {
                    vec![]
                },
                unobserved: false,
                operation: Some(launch(kernel, args, &[1024, 1, 1], &[64, 1, 1])),
            }));
            if last != 0 {
                commands.push(Kind::Release(Release {
                    object: ObjectKind::Event.into(),
                    id: last,
                }));
            }
            last = event;
        }
        frames.push(session.encode(commands));
    }
    let mut sender = session.sender();
    let before = ticks(worker);
    let start = Instant::now();
    let writing = std::thread::spawn(move || {
        use std::io::Write;
        for frame in frames {
            sender.write_all(&frame).unwrap();
        }
    });
    session.wait(last);
    let wall = start.elapsed().as_secs_f64();
    writing.join().unwrap();
    let cpu = (ticks(worker) - before) as f64 / 100.0;
    println!(
        "{:.0} launches/s ({} in {wall:.2} s), worker's CPU {:.2} µs a launch with its release, {} batches",
        COUNT as f64 / wall,
        COUNT,
        cpu * 1e6 / COUNT as f64,
        session.heard.batches
    );
}

#[test]
#[ignore = "a measurement"]
fn launch_and_finish() {
    const ROUNDS: usize = 20_000;
    let (_vendors, daemon) = fake();
    let mut session = daemon.session();
    let (queue, kernel, buffer) = objects(&mut session);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let args = vec![memory(buffer), plain(&[0; 4])];
        let start = Instant::now();
        let event = session.enqueue(queue, &[], launch(kernel, args, &[64], &[]));
        session.wait(event);
        times.push(start.elapsed().as_nanos() as f64 / 1e3);
    }
    times.sort_by(f64::total_cmp);
    println!(
        "launch and completion: p50 {:.1} µs, p99 {:.1} µs",
        times[ROUNDS / 2],
        times[ROUNDS * 99 / 100]
    );
}
