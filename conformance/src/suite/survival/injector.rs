//! Makes the faults of a schedule happen while a program runs, and undoes them.
//!
//! Invariant: when a program has ended, everything that a fault has stopped, held or closed goes on again.

use std::collections::BTreeMap;
use std::fs;
use std::iter::Peekable;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use causeway_cutter::{Cut, Forwarder, Hold, Purpose};
use rustix::process::{Pid, Signal, kill_process};

use super::schedule::{Fault, Kind, Schedule};
use crate::SetupError;
use crate::daemon::Daemon;
use crate::sides::Sides;

/// How long a program may take from its first session to its last one. Faults begin then: a session that is not open
/// yet cannot be resumed.
const OPENS_WITHIN: Duration = Duration::from_secs(2);

const LOOK: Duration = Duration::from_millis(10);

/// The faults of one case, of which each program's run takes some.
pub(super) struct Injector {
    faults: Peekable<std::iter::Take<Schedule>>,
    /// The time of the schedule that has passed.
    passed: Duration,
    /// Undone faults, by kind.
    pub(super) counts: BTreeMap<&'static str, u32>,
    /// The hosts file that the program sees, if it has its own.
    pub(super) hosts: Option<PathBuf>,
    /// The addresses of the node whose name the hosts file has.
    place: u8,
}

/// A fault that lasts.
struct Lasting {
    end: Instant,
    fault: Fault,
    node: usize,
    stopped: Option<Pid>,
}

/// What a run's faults act on.
struct World<'s> {
    sides: &'s Sides,
    forwarders: Vec<Arc<Forwarder>>,
    program: Pid,
    lasting: Vec<Lasting>,
    /// Whether a worker was killed. A command at which two die ends its session, so each run has one such fault.
    has_killed: bool,
    /// The same for daemons.
    has_killed_daemon: bool,
}

impl Injector {
    pub(super) fn new(schedule: Schedule, count: u32) -> Self {
        Self {
            faults: schedule.take(count as usize).peekable(),
            passed: Duration::ZERO,
            counts: BTreeMap::new(),
            hosts: None,
            place: 1,
        }
    }

    /// Whether all faults have happened.
    pub(super) fn is_done(&mut self) -> bool {
        self.faults.peek().is_none()
    }

    /// Number of faults so far.
    pub(super) fn count(&self) -> u32 {
        self.counts.values().sum()
    }

    /// Injects faults until `ended` is closed. `program` gives the process once it runs.
    pub(super) fn attend(&mut self, sides: &Sides, program: &Receiver<Pid>, ended: &Receiver<()>) {
        let before = sessions(sides);
        let Ok(program) = program.recv() else {
            return;
        };
        if !wait_for_sessions(sides, before, ended) {
            return;
        }
        let forwarders = sides.daemons().iter().filter_map(|of| of.forwarder());
        let mut world = World {
            sides,
            forwarders: forwarders.collect(),
            program,
            lasting: Vec::new(),
            has_killed: false,
            has_killed_daemon: false,
        };
        let begin = Instant::now();
        // A restart or a drain takes as long as the driver needs. The schedule stands meanwhile: faults that were due
        // would follow each other at once, and the program would never get on.
        let mut stood = Duration::ZERO;
        loop {
            world.undo(|lasting| lasting.end <= Instant::now());
            let passed = self.passed + begin.elapsed().saturating_sub(stood);
            if let Some(fault) = self.faults.next_if(|fault| fault.at <= passed) {
                let before = Instant::now();
                self.inject(&mut world, fault);
                stood += before.elapsed();
                continue;
            }
            if ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Disconnected) {
                break;
            }
        }
        world.undo(|_| true);
        self.passed += begin.elapsed().saturating_sub(stood);
    }

    fn inject(&mut self, world: &mut World<'_>, fault: Fault) {
        let mut kinds = super::schedule::KINDS.iter();
        let name = kinds.find(|row| row.0 == fault.kind).map(|row| row.1);
        *self.counts.entry(name.unwrap_or_default()).or_default() += 1;
        let node = (fault.choice % world.forwarders.len().max(1) as u64) as usize;
        let Some(forwarder) = world.forwarders.get(node).cloned() else {
            return;
        };
        let choice = fault.choice / 64;
        let how = if choice.is_multiple_of(3) {
            Cut::Close
        } else {
            Cut::Reset
        };
        let mut stopped = None;
        match fault.kind {
            Kind::ResetAll => drop(forwarder.cut_sessions(how)),
            Kind::ResetOne => drop(forwarder.cut_one(how, choice / 4)),
            Kind::LinkReset => drop(forwarder.cut_those(how, Purpose::Link)),
            Kind::Address => self.move_node(world, &forwarder),
            Kind::Tunnel => forwarder.close(),
            Kind::ClientStopped => stopped = Some(world.program),
            Kind::WorkerStopped => stopped = world.worker(node, choice),
            Kind::WorkerKilled => {
                let is_first = !std::mem::replace(&mut world.has_killed, true);
                if let Some(worker) = world.worker(node, choice).filter(|_| is_first) {
                    let _ = kill_process(worker, Signal::KILL);
                }
            }
            Kind::ManagerStopped => drop(world.sides.cluster().map(|of| of.stop(true))),
            Kind::DaemonKilled => {
                if !std::mem::replace(&mut world.has_killed_daemon, true) {
                    world.restart(node, Daemon::kill_and_restart);
                }
            }
            Kind::Restart => world.restart(node, Daemon::restart),
            Kind::Drain => world.drain(),
            Kind::Silence | Kind::OneWay | Kind::LinkSilence => {}
        }
        if let Some(stopped) = stopped {
            let _ = kill_process(stopped, Signal::STOP);
        }
        if !fault.lasts.is_zero() {
            let end = Instant::now() + fault.lasts;
            world.lasting.push(Lasting {
                end,
                fault,
                node,
                stopped,
            });
            world.hold();
        }
    }

    /// Moves the node to another address of loopback, and its name with it.
    fn move_node(&mut self, world: &World<'_>, forwarder: &Forwarder) {
        let Some(hosts) = &self.hosts else {
            return;
        };
        self.place = self.place % 200 + 1;
        let address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, self.place));
        forwarder.close();
        // The file is mounted, so it stays the same file.
        let _ = fs::write(hosts, super::hosts_file(address));
        forwarder.set_address(address);
        if !world.is_closed(0, None) {
            forwarder.open();
        }
    }

    /// The address of the node whose name the hosts file has.
    pub(super) fn address(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, self.place))
    }
}

impl World<'_> {
    fn worker(&self, node: usize, choice: u64) -> Option<Pid> {
        let daemon = self.sides.daemons().get(node)?.pid()?;
        let workers = super::workers_of(daemon);
        let chosen = workers.get((choice % workers.len().max(1) as u64) as usize)?;
        Some(chosen.pid())
    }

    /// Restarts a daemon. The faults that last end meanwhile as usual, because the daemon waits for clients that are away.
    fn restart(&mut self, node: usize, restart: fn(&Daemon) -> Result<(), SetupError>) {
        let Some(daemon) = self.sides.daemons().get(node) else {
            return;
        };
        thread::scope(|scope| {
            let restart = scope.spawn(|| restart(daemon));
            while !restart.is_finished() {
                self.undo(|lasting| lasting.end <= Instant::now());
                thread::sleep(LOOK);
            }
            if let Ok(Err(error)) = restart.join() {
                eprintln!("conformance: {error}");
            }
        });
    }

    /// Drains the node that has the program's lease, until nothing of it moves any more. The faults that last end
    /// meanwhile as usual, because a session moves only when its program answers.
    fn drain(&mut self) {
        let Some(cluster) = self.sides.cluster() else {
            return;
        };
        thread::scope(|scope| {
            let drain = scope.spawn(|| cluster.drain_leased());
            while !drain.is_finished() {
                self.undo(|lasting| lasting.end <= Instant::now());
                thread::sleep(LOOK);
            }
            if let Ok(Err(error)) = drain.join() {
                eprintln!("conformance: {error}");
            }
        });
    }

    fn is_closed(&self, node: usize, but: Option<&Lasting>) -> bool {
        self.lasting.iter().any(|of| {
            of.node == node
                && of.fault.kind == Kind::Tunnel
                && but.is_none_or(|but| !std::ptr::eq(of, but))
        })
    }

    fn undo(&mut self, is_over: impl Fn(&Lasting) -> bool) {
        let (over, left) = std::mem::take(&mut self.lasting)
            .into_iter()
            .partition(|lasting| is_over(lasting));
        self.lasting = left;
        let over: Vec<Lasting> = over;
        for lasting in &over {
            if let Some(stopped) = lasting.stopped {
                let _ = kill_process(stopped, Signal::CONT);
            }
            match lasting.fault.kind {
                Kind::Tunnel if !self.is_closed(lasting.node, None) => {
                    self.forwarders[lasting.node].open();
                }
                Kind::ManagerStopped => drop(self.sides.cluster().map(|of| of.stop(false))),
                _ => {}
            }
        }
        if !over.is_empty() {
            self.hold();
        }
    }

    /// Holds what the lasting faults hold.
    fn hold(&self) {
        for (node, forwarder) in self.forwarders.iter().enumerate() {
            let faults = self.lasting.iter().filter(|lasting| lasting.node == node);
            let (mut all, mut links) = (Hold::default(), Hold::default());
            for Lasting { fault, .. } in faults {
                let up = fault.choice / 64 % 2 == 0;
                match fault.kind {
                    Kind::Silence => all = Hold::ALL,
                    Kind::OneWay if up => all.up = true,
                    Kind::OneWay => all.down = true,
                    Kind::LinkSilence => {
                        links = Hold {
                            only_links: true,
                            ..Hold::ALL
                        }
                    }
                    _ => {}
                }
            }
            forwarder.hold(if all == Hold::default() { links } else { all });
        }
    }
}

/// Number of heartbeat connections of each node so far. A session opens its heartbeat connection after that of its
/// commands.
fn sessions(sides: &Sides) -> Vec<u64> {
    let forwarders = sides.daemons().iter().map(|of| of.forwarder());
    let count = |of: Arc<Forwarder>| of.counts().of(Purpose::Heartbeat);
    forwarders.map(|of| of.map_or(0, count)).collect()
}

/// Waits until the connections of the last run are over. Otherwise one of them may count as the next program's session,
/// and faults begin before that program has one.
pub(super) fn wait_until_quiet(sides: &Sides) {
    const OF_SESSIONS: [Purpose; 3] = [Purpose::Commands, Purpose::Heartbeat, Purpose::Lane];
    let is_busy = |of: Arc<Forwarder>| OF_SESSIONS.iter().any(|purpose| of.connected(*purpose) > 0);
    let end = Instant::now() + OPENS_WITHIN;
    while Instant::now() < end
        && sides
            .daemons()
            .iter()
            .filter_map(|of| of.forwarder())
            .any(is_busy)
    {
        thread::sleep(LOOK);
    }
}

/// Waits until the program has a session on each node, or for a while after its first one. False if it ends.
fn wait_for_sessions(sides: &Sides, before: Vec<u64>, ended: &mpsc::Receiver<()>) -> bool {
    let mut first = None;
    loop {
        let now = sessions(sides);
        let opened = now.iter().zip(&before).filter(|(now, before)| now > before);
        let opened = opened.count();
        if opened > 0 {
            let since: Instant = *first.get_or_insert_with(Instant::now);
            // Lanes follow.
            if opened >= sides.nodes || since.elapsed() > OPENS_WITHIN {
                return ended.recv_timeout(5 * LOOK) == Err(RecvTimeoutError::Timeout);
            }
        }
        if ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Disconnected) {
            return false;
        }
    }
}
