//! Tests of the parts of a device's time that shares have.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

use causeway_proto::command::{Enqueue, command::Kind};
use causeway_proto::manager::Grant;

use crate::common::manager::{Manager, Node, grant};
use crate::common::{Daemon, Session, context_on, launch};

/// A device that runs one kernel after the other. Each process has its own.
const DEVICE: &str = "devices = 1\nkernel.work.ns = 3000000";
const KERNEL: Duration = Duration::from_millis(3);

/// A quarter of the time in percent, as far as a busy machine gives it. Without turns, it would be a half.
const QUARTER: RangeInclusive<usize> = 15..=35;

struct Timed {
    daemon: Daemon,
    node: Node,
    manager: Manager,
    _state: tempfile::TempDir,
}

fn timed(shares: &str) -> Timed {
    let manager = Manager::start();
    let state = tempfile::tempdir().unwrap();
    let daemon = daemon(&manager, state.path(), shares);
    let node = manager.welcomed(10);
    Timed {
        daemon,
        node,
        manager,
        _state: state,
    }
}

fn daemon(manager: &Manager, state: &Path, shares: &str) -> Daemon {
    let config = state.join("daemon.toml");
    let text = format!("[[shares]]\ndevice = \"0.0\"\ncount = 2\n{shares}\n");
    std::fs::write(&config, text).unwrap();
    let manager = manager.address.to_string();
    let arguments = ["--manager", &manager, "--config", config.to_str().unwrap()];
    let state = [("STATE_DIRECTORY", state.to_str().unwrap())];
    Daemon::fake_with(DEVICE, &arguments, &state)
}

impl Timed {
    fn lease(&self, share: u32) -> Grant {
        let lease = grant(1 + share as u8, 11 + u64::from(share), &[(0, 0, share, 0)]);
        self.node.grant(&lease);
        lease
    }

    fn program(&self, lease: &Grant) -> Program {
        let credential = self.manager.credential(&self.node, lease);
        Program::new(Session::try_open(&self.daemon, &credential).unwrap())
    }
}

struct Program {
    session: Session,
    queue: u64,
    kernel: u64,
}

impl Program {
    fn new(mut session: Session) -> Program {
        let context = context_on(&mut session, 0);
        let queue = session.queue(context, 0);
        let (program, answer) = session.build(context, "kernel void work() { }", "");
        assert_eq!(answer.status, 0, "{answer:?}");
        let kernel = session.kernel(program, "work");
        Program {
            session,
            queue,
            kernel,
        }
    }

    /// Launches many times, in one message.
    fn flood(&mut self, count: u32) -> Vec<u64> {
        let (queue, kernel) = (self.queue, self.kernel);
        let events: Vec<u64> = (0..count).map(|_| self.session.new_id()).collect();
        let one = |event: &u64| {
            Kind::Enqueue(Enqueue {
                event: *event,
                queue,
                wait: vec![],
                unobserved: false,
                operation: Some(launch(kernel, vec![], &[1], &[])),
            })
        };
        self.session.send(events.iter().map(one).collect());
        events
    }

    /// Waits for the ends, and returns when they came.
    fn ends(&mut self, events: &[u64]) -> Vec<Instant> {
        let end = |event: &u64| {
            assert_eq!(self.session.wait(*event).status, 0);
            Instant::now()
        };
        events.iter().map(end).collect()
    }
}

/// Has both leases launch all the time. Returns the part of the first lease, in percent.
fn part_of_the_first(timed: &Timed) -> usize {
    let leases = [0, 1].map(|share| timed.lease(share));
    let mut programs = leases.each_ref().map(|lease| timed.program(lease));
    for program in &mut programs {
        let first = program.flood(1);
        program.ends(&first);
    }
    let [of_first, of_second] = std::thread::scope(|scope| {
        let threads = programs.each_mut().map(|program| {
            scope.spawn(|| {
                let events = program.flood(500);
                program.ends(&events)
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    // Both are busy from the later beginning to the earlier end.
    let from = of_first[0].max(of_second[0]);
    let until = of_first[of_first.len() - 1].min(of_second[of_second.len() - 1]);
    let is_counted = |end: &&Instant| (from..=until).contains(*end);
    let count = |ends: &[Instant]| ends.iter().filter(is_counted).count();
    let (first, second) = (count(&of_first), count(&of_second));
    100 * first / (first + second)
}

#[test]
fn leases_that_compete_get_their_parts_with_a_worker_each() {
    let part = part_of_the_first(&timed("time = [25, 75]"));
    assert!(QUARTER.contains(&part), "{part} %");
}

#[test]
fn leases_that_compete_get_their_parts_in_one_host() {
    let part = part_of_the_first(&timed("time = [25, 75]\ntogether = \"all\""));
    assert!(QUARTER.contains(&part), "{part} %");
}

fn time_of(timed: &Timed, count: u32) -> Duration {
    let lease = timed.lease(0);
    let mut program = timed.program(&lease);
    let first = program.flood(1);
    program.ends(&first);
    let begun = Instant::now();
    let events = program.flood(count);
    program.ends(&events);
    begun.elapsed()
}

#[test]
fn a_lease_without_competition_gets_all_the_time() {
    let time = time_of(&timed("time = 10"), 200);
    // Held to its part, it would take ten times its kernels' time.
    assert!(time < 5 * 200 * KERNEL, "{time:?}");
}

#[test]
fn a_strict_lease_gets_no_more_than_its_part() {
    let time = time_of(&timed("time = 20\nstrict = true"), 100);
    // It begins with a part of a window, 20 ms of these 300.
    let least = 100 * KERNEL * 4;
    assert!(time > least, "{time:?}");
}
