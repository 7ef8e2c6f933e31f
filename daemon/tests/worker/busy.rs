//! Tests of busy time: how long sessions and devices had commands under way, as `/metrics` shows it.

use std::time::Instant;

use causeway_proto::command::{Enqueue, command::Kind};

use crate::common::{Daemon, Session, eventually, launch};

const DEVICE: &str = "causeway_device_busy_seconds_total{device=\"0.0\"}";
/// A kernel of 300 ms, and one of 2 ms.
const KERNELS: &str =
    "devices = 2\nkernel.long = { ns = 300000000 }\nkernel.short = { ns = 2000000 }";
const LONG: f64 = 0.3;
/// What is counted of the long kernel at least. The count begins when the worker listens to the kernel's end, shortly
/// after the kernel has begun, or later on a busy machine.
const COUNTED: f64 = LONG / 2.0;

fn daemon(arguments: &[&str]) -> Daemon {
    let watched = ["--metrics", "127.0.0.1:0"];
    Daemon::fake_with(KERNELS, &[&watched[..], arguments].concat(), &[])
}

/// A session with a queue and both kernels.
struct Program {
    session: Session,
    queue: u64,
    long: u64,
    short: u64,
}

impl Program {
    fn open(daemon: &Daemon) -> Program {
        let mut session = daemon.session();
        let context = session.context();
        let queue = session.queue(context, 0);
        let source = "kernel void long() {} kernel void short() {}";
        let (program, _) = session.build(context, source, "");
        let (long, short) = (
            session.kernel(program, "long"),
            session.kernel(program, "short"),
        );
        session.ping();
        Program {
            session,
            queue,
            long,
            short,
        }
    }

    fn launch(&mut self, kernel: u64) -> u64 {
        self.session
            .enqueue(self.queue, &[], launch(kernel, vec![], &[1], &[]))
    }
}

/// The busy times of all open sessions, with their domains.
fn sessions(daemon: &Daemon) -> Vec<(String, f64)> {
    let metrics = daemon.metrics();
    let lines = metrics.lines();
    let lines = lines.filter(|line| line.starts_with("causeway_session_busy_seconds_total{"));
    lines
        .map(|line| {
            let (labels, value) = line.rsplit_once(' ').unwrap();
            assert!(labels.contains("device=\"0.0\""), "{line}");
            (labels.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn a_kernel_counts_while_it_runs_and_once() {
    let daemon = daemon(&[]);
    let begun = Instant::now();
    let mut program = Program::open(&daemon);
    assert!(daemon.seconds(DEVICE) < LONG);
    let kernel = program.launch(program.long);
    // A part of it, long before its end is noticed.
    eventually("busy time", || {
        let busy = daemon.seconds(DEVICE);
        (busy > 0.02).then_some(())
    });
    assert!(sessions(&daemon)[0].1 > 0.02);
    assert_eq!(program.session.wait(kernel).status, 0);
    let (device, of) = (daemon.seconds(DEVICE), sessions(&daemon));
    let passed = begun.elapsed().as_secs_f64();
    assert!(
        of.len() == 1 && of[0].0.contains("domain=\"none\""),
        "{of:?}"
    );
    for busy in [device, of[0].1] {
        assert!(busy >= COUNTED && busy <= passed, "{busy} of {passed}");
    }
    assert_eq!(daemon.count("causeway_domain_sessions{domain=\"none\"}"), 1);
    // Nothing is under way, so nothing is added.
    assert_eq!(sessions(&daemon), of);
    drop(program);
    eventually("the end", || {
        (daemon.count("causeway_sessions") == 0).then_some(())
    });
    assert!(sessions(&daemon).is_empty());
    let after = daemon.seconds(DEVICE);
    assert!(after >= device && after <= passed, "{after} of {passed}");
    let unused = "causeway_device_busy_seconds_total{device=\"0.1\"}";
    assert_eq!(daemon.seconds(unused), 0.0);
}

#[test]
fn unobserved_commands_count_until_the_last_has_ended() {
    let daemon = daemon(&[]);
    let begun = Instant::now();
    let mut program = Program::open(&daemon);
    let before = sessions(&daemon).first().map_or(0.0, |of| of.1);
    // More commands than one report covers. They run one after the other.
    let events: Vec<u64> = (0..150).map(|_| program.session.new_id()).collect();
    let launches = events.iter().map(|event| {
        Kind::Enqueue(Enqueue {
            event: *event,
            queue: program.queue,
            wait: vec![],
            unobserved: true,
            operation: Some(launch(program.short, vec![], &[1], &[])),
        })
    });
    let launches = launches.collect();
    program.session.send(launches);
    for event in &events {
        assert_eq!(program.session.wait(*event).status, 0);
    }
    let busy = sessions(&daemon)[0].1 - before;
    let passed = begun.elapsed().as_secs_f64();
    // The first group counts from when it is closed. The kernels of its commands may have begun before.
    const GROUP: u32 = 64;
    let least = f64::from(150 - GROUP) * 0.002 / 2.0;
    assert!(busy >= least && busy <= passed, "{busy} of {passed}");
}

#[test]
fn sessions_of_a_host_are_busy_at_the_same_time() {
    let daemon = daemon(&["--together", "user"]);
    let begun = Instant::now();
    let mut both = [Program::open(&daemon), Program::open(&daemon)];
    let kernels = both.each_mut().map(|program| program.launch(program.long));
    for (program, kernel) in both.iter_mut().zip(kernels) {
        assert_eq!(program.session.wait(kernel).status, 0);
    }
    let passed = begun.elapsed().as_secs_f64();
    let (device, of) = (daemon.seconds(DEVICE), sessions(&daemon));
    assert!(
        device >= COUNTED && device <= passed,
        "{device} of {passed}"
    );
    assert_eq!(of.len(), 2);
    for (labels, busy) in of {
        assert!(labels.contains("domain=\"user\""), "{labels}");
        assert!(busy >= COUNTED && busy <= passed, "{busy} of {passed}");
    }
    assert_eq!(daemon.count("causeway_domain_sessions{domain=\"user\"}"), 2);
    let metrics = daemon.metrics();
    let mut hosts = metrics.lines();
    let host = "causeway_host_sessions{domain=\"user\",worker=";
    let host = hosts.find(|line| line.starts_with(host));
    assert!(host.is_some_and(|line| line.ends_with("} 2")), "{metrics}");
}
