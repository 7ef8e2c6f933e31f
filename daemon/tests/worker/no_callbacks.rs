//! Tests a driver without callbacks: one thread polls for the ends of commands.

use crate::common::{Daemon, launch, memory};

const COMMANDS: usize = 200;

#[test]
fn commands_end_without_a_thread_each() {
    // Cargo puts the driver next to the test programs.
    let library = std::env::current_exe()
        .unwrap()
        .with_file_name("libfake_opencl.so");
    assert!(library.exists(), "{library:?}");
    let vendors = tempfile::tempdir().unwrap();
    std::fs::write(vendors.path().join("fake.icd"), library.to_str().unwrap()).unwrap();
    let daemon = Daemon::with(&[
        ("OCL_ICD_VENDORS", vendors.path().to_str().unwrap()),
        (
            "FAKE_OPENCL_CONFIG",
            "kernel.f.ns = 1000000\n[[call]]\nname = \"clSetEventCallback\"\nfail = -59",
        ),
    ]);
    let mut session = daemon.session();
    let context = session.context();
    let queues = [session.queue(context, 0), session.queue(context, 0)];
    let buffer = session.buffer(context, 4, b"good");
    let source = "kernel void f(global int *x) { }";
    let (program, answer) = session.build(context, source, "");
    assert_eq!(answer.status, 0);
    let kernel = session.kernel(program, "f");
    let threads = |worker: u32| {
        std::fs::read_dir(format!("/proc/{worker}/task"))
            .unwrap()
            .count()
    };
    let before = threads(session.worker());
    let events: Vec<u64> = (0..COMMANDS)
        .map(|i| {
            let operation = launch(kernel, vec![memory(buffer)], &[1], &[]);
            session.enqueue(queues[i % 2], &[], operation)
        })
        .collect();
    assert_eq!(&session.bytes(queues[0], buffer, 0, 4)[..], b"good");
    let after = threads(session.worker());
    assert!(after <= before + 16, "{before} threads became {after}");
    for event in events {
        assert_eq!(session.wait(event).status, 0);
    }
}
