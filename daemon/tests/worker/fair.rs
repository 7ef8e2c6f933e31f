//! Tests of fairness: a flood of one session does not stand before a single launch of a neighbour in its host.

use std::time::{Duration, Instant};

use causeway_proto::command::{Enqueue, command::Kind};

use crate::common::{Daemon, Session, launch};

/// Time of the kernel of a flood.
const KERNEL: Duration = Duration::from_millis(2);
/// Launches that a flood has queued: two seconds.
const FLOOD: u64 = 1000;

/// Serves a device that runs commands one after the other, in the order of their enqueues.
fn daemon() -> Daemon {
    let settings = format!(
        "devices = 1\nkernel.flood.ns = {}\nkernel.short.ns = 10000\n",
        KERNEL.as_nanos()
    );
    Daemon::fake_with(&settings, &["--together", "user"], &[])
}

struct Program {
    session: Session,
    queue: u64,
    kernel: u64,
}

impl Program {
    fn new(daemon: &Daemon, kernel: &str) -> Program {
        let mut session = daemon.session();
        let context = session.context();
        let queue = session.queue(context, 0);
        let source = format!("kernel void {kernel}() {{ }}");
        let (program, answer) = session.build(context, &source, "");
        assert_eq!(answer.status, 0, "{answer:?}");
        let kernel = session.kernel(program, kernel);
        Program {
            session,
            queue,
            kernel,
        }
    }

    fn launch(&mut self) -> u64 {
        let launch = launch(self.kernel, vec![], &[1], &[]);
        self.session.enqueue(self.queue, &[], launch)
    }

    /// Sends many launches, observed or not. Returns the last one, which is observed.
    fn flood(&mut self, unobserved: bool) -> u64 {
        let (queue, kernel) = (self.queue, self.kernel);
        let mut one = |unobserved| {
            Kind::Enqueue(Enqueue {
                event: self.session.new_id(),
                queue,
                wait: vec![],
                unobserved,
                operation: Some(launch(kernel, vec![], &[1], &[])),
            })
        };
        let many = (1..FLOOD).map(|_| one(unobserved)).collect();
        self.session.send(many);
        self.launch()
    }

    /// Launches once and waits for the end.
    fn once(&mut self) {
        let event = self.launch();
        assert_eq!(self.session.wait(event).status, 0);
    }
}

fn a_single_launch_passes_a_flood(unobserved: bool) {
    let daemon = daemon();
    let mut single = Program::new(&daemon, "short");
    let mut flood = Program::new(&daemon, "flood");
    assert_eq!(single.session.worker(), flood.session.worker());
    single.once();
    flood.once();
    let begun = Instant::now();
    let last = flood.flood(unobserved);
    let (passed, ended) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            assert_eq!(flood.session.wait(last).status, 0);
            begun.elapsed()
        });
        for _ in 0..5 {
            single.once();
        }
        (begun.elapsed(), flood.join().unwrap())
    });
    assert!(ended >= KERNEL * FLOOD as u32, "the flood was a flood");
    // Without fairness, each single launch would end after the flood.
    assert!(passed < ended, "{passed:?}, {ended:?}");
}

#[test]
fn a_single_launch_passes_a_flood_of_observed_launches() {
    a_single_launch_passes_a_flood(false);
}

#[test]
fn a_single_launch_passes_a_flood_of_unobserved_launches() {
    a_single_launch_passes_a_flood(true);
}

#[test]
fn two_floods_get_equal_parts() {
    let daemon = daemon();
    let mut floods = [(); 2].map(|()| Program::new(&daemon, "flood"));
    for flood in &mut floods {
        flood.once();
    }
    let begun = Instant::now();
    let last = floods.each_mut().map(|flood| flood.flood(true));
    let ends: Vec<Duration> = floods
        .iter_mut()
        .zip(last)
        .map(|(flood, last)| {
            assert_eq!(flood.session.wait(last).status, 0);
            begun.elapsed()
        })
        .collect();
    let all = 2 * KERNEL * FLOOD as u32;
    // The first flood ends when most of the other's work is done, too.
    assert!(ends[0] > all * 8 / 10, "{ends:?} of {all:?}");
}

#[test]
fn a_session_that_is_held_back_leaves_at_once() {
    let daemon = Daemon::fake_with(
        "devices = 1\nkernel.flood.ns = 200000000\nkernel.short.ns = 10000\n",
        &["--together", "user", "--metrics", "127.0.0.1:0"],
        &[],
    );
    let mut single = Program::new(&daemon, "short");
    let mut flood = Program::new(&daemon, "flood");
    single.once();
    flood.flood(true);
    drop(flood);
    crate::common::eventually("the session that is held back ends", || {
        (daemon.count("causeway_sessions") == 1).then_some(())
    });
    single.once();
}
