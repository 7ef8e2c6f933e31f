//! A simple model of nodes and client: memories, and commands that run in any order that their waits allow. A byte of
//! memory contains the stamp of the command that wrote it.

use causeway::coherence::{Needs, Place, Wait};

use super::bytes::{Sets, each};
use super::choices::Choices;

/// Places: the client, then sites.
pub(crate) const PLACES: usize = 7;

/// The content of a byte after a failed command or a broken transfer.
const GARBAGE: u32 = u32::MAX;

pub(crate) fn slot(place: Place) -> usize {
    match place {
        Place::Client => 0,
        Place::Site(site) => usize::from(site.0) + 1,
    }
}

/// A byte that must contain a stamp.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) buffer: usize,
    pub(crate) byte: usize,
    pub(crate) stamp: u32,
}

#[derive(Debug)]
pub(crate) enum Action {
    /// Does nothing.
    Marker,
    /// Checks the bytes that it reads, then writes its stamp. For a reader, `of` is the read whose piece it is.
    Compute {
        place: usize,
        reads: Vec<Expected>,
        writes: Sets,
        of: Option<usize>,
    },
    /// Unmap: moves the bytes that the host wrote under this command's stamp to the place.
    Upload {
        place: usize,
        buffer: usize,
        set: u64,
    },
    /// Takes bytes for the next command.
    Send {
        place: usize,
        buffer: usize,
        set: u64,
    },
    /// Stores the bytes that the previous command took.
    Receive {
        place: usize,
        buffer: usize,
        set: u64,
    },
    /// Takes and stores bytes at once: from or to the client.
    Move {
        from: usize,
        to: usize,
        buffer: usize,
        set: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Complete,
    Failed,
}

#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) action: Action,
    /// The op fails when this site is lost.
    pub(crate) location: usize,
    pub(crate) waits: Vec<Wait>,
    /// The previous op of its in-order queue.
    pub(crate) follows: Option<usize>,
    pub(crate) state: State,
    /// Whether the client knows that the op has ended.
    pub(crate) known: bool,
    /// Whether the op failed before it began.
    pub(crate) cancelled: bool,
    /// Whether the op fails when it runs.
    pub(crate) faulty: bool,
    /// The op whose end the application sees as the end of this one.
    pub(crate) shown_as: Option<usize>,
    // The bytes that a `Send` took.
    packet: Vec<u32>,
}

impl Op {
    pub(crate) fn new(action: Action, location: usize) -> Op {
        Op {
            action,
            location,
            waits: Vec::new(),
            follows: None,
            state: State::Pending,
            known: false,
            cancelled: false,
            faulty: false,
            shown_as: None,
            packet: Vec::new(),
        }
    }

    pub(crate) fn is_transfer(&self) -> bool {
        use Action::{Move, Receive, Send};
        matches!(self.action, Send { .. } | Receive { .. } | Move { .. })
    }
}

pub(crate) struct Machine {
    pub(crate) ops: Vec<Op>,
    pending: Vec<usize>,
    pub(crate) memory: Box<[[[u32; 64]; 2]; PLACES]>,
    /// Whether every wait requires success, as in a worker that knows no other kind of wait.
    pub(crate) strict: bool,
    /// Ops that have ended, unknown to the client, in the order of their ends.
    pub(crate) news: Vec<usize>,
}

/// Whether an op may go on.
enum Check {
    Run,
    Cancel,
    After(usize),
}

impl Machine {
    pub(crate) fn new(strict: bool) -> Machine {
        Machine {
            ops: Vec::new(),
            pending: Vec::new(),
            memory: Box::new([[[0; 64]; 2]; PLACES]),
            strict,
            news: Vec::new(),
        }
    }

    /// Whether a stamp's command has failed, or never existed.
    pub(crate) fn is_undefined(&self, stamp: u32) -> bool {
        let failed = |op: usize| self.ops[op].state == State::Failed;
        let Some(op) = (stamp as usize).checked_sub(1) else {
            return true;
        };
        failed(op) || self.ops[op].shown_as.is_some_and(failed)
    }

    pub(crate) fn add(&mut self, op: Op) -> usize {
        let index = self.ops.len();
        for wait in &op.waits {
            assert!(wait.event.0 <= index as u64, "an edge from a later command");
        }
        self.ops.push(op);
        self.pending.push(index);
        index
    }

    /// Runs an op that may run. Returns false when none is left.
    pub(crate) fn step(&mut self, choices: &mut Choices) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let at = choices.below(self.pending.len());
        self.advance(self.pending[at]);
        true
    }

    pub(crate) fn run_until(&mut self, op: usize, choices: &mut Choices) {
        while self.ops[op].state == State::Pending {
            if choices.one_in(2) {
                self.advance(op);
            } else {
                self.step(choices);
            }
        }
    }

    pub(crate) fn run_all(&mut self, choices: &mut Choices) {
        while self.step(choices) {}
    }

    // Runs the op, or an op that it waits for. The search ends, because every edge goes to an earlier op.
    fn advance(&mut self, mut op: usize) {
        loop {
            match self.check(op) {
                Check::After(earlier) => {
                    assert!(earlier < op, "an edge from a later command");
                    op = earlier;
                }
                Check::Cancel => {
                    self.ops[op].cancelled = true;
                    return self.end(op, State::Failed);
                }
                Check::Run => {
                    let state = self.execute(op);
                    return self.end(op, state);
                }
            }
        }
    }

    fn end(&mut self, op: usize, state: State) {
        self.ops[op].state = state;
        self.pending.retain(|pending| *pending != op);
        self.news.push(op);
    }

    fn check(&self, index: usize) -> Check {
        let op = &self.ops[index];
        let mut blocked = None;
        for wait in &op.waits {
            let earlier = wait.event.0 as usize - 1;
            if self.strict || wait.needs == Needs::Success {
                match self.ops[earlier].state {
                    State::Failed => return Check::Cancel,
                    State::Pending => blocked = Some(earlier),
                    State::Complete => {}
                }
            } else {
                blocked = blocked.or(self.unsettled(earlier));
            }
        }
        let blocked = blocked.or_else(|| self.before_in_queue(op.follows));
        blocked.map_or(Check::Run, Check::After)
    }

    // Returns the op that must end before `index` counts as over for a wait that needs only the end.
    fn unsettled(&self, index: usize) -> Option<usize> {
        let op = &self.ops[index];
        match op.state {
            State::Pending => Some(index),
            State::Complete => None,
            State::Failed => {
                let mut waits = op.waits.iter();
                waits
                    .find_map(|wait| self.unsettled(wait.event.0 as usize - 1))
                    .or_else(|| self.before_in_queue(op.follows))
            }
        }
    }

    // A command that failed early still stands between its predecessor and its successor.
    fn before_in_queue(&self, before: Option<usize>) -> Option<usize> {
        let op = &self.ops[before?];
        match op.state {
            State::Pending => before,
            State::Complete => None,
            State::Failed => self.before_in_queue(op.follows),
        }
    }

    fn execute(&mut self, index: usize) -> State {
        let faulty = self.ops[index].faulty;
        let stamp = if faulty { GARBAGE } else { index as u32 + 1 };
        match &self.ops[index].action {
            Action::Marker => {}
            Action::Compute {
                place,
                reads,
                writes,
                of,
            } => {
                let whole = of.map_or(State::Pending, |read| self.ops[read].state);
                if whole != State::Failed {
                    self.verify(index, *place, reads);
                }
                let (place, writes) = (*place, *writes);
                for (buffer, set) in writes.into_iter().enumerate() {
                    each(set).for_each(|byte| self.memory[place][buffer][byte] = stamp);
                }
            }
            &Action::Upload { place, buffer, set } => {
                let own = index as u32 + 1;
                for byte in each(set) {
                    assert_eq!(
                        self.memory[0][buffer][byte], own,
                        "op {index}: not the host's"
                    );
                    self.memory[place][buffer][byte] = stamp;
                }
            }
            &Action::Send { place, buffer, set } => {
                let packet = each(set).map(|byte| self.memory[place][buffer][byte]);
                self.ops[index].packet = packet.collect();
            }
            &Action::Receive { place, buffer, set } => {
                let packet = std::mem::take(&mut self.ops[index - 1].packet);
                self.put(place, buffer, set, &packet, faulty);
            }
            &Action::Move {
                from,
                to,
                buffer,
                set,
            } => {
                let packet: Vec<u32> = each(set)
                    .map(|byte| self.memory[from][buffer][byte])
                    .collect();
                self.put(to, buffer, set, &packet, faulty);
            }
        }
        if faulty {
            State::Failed
        } else {
            State::Complete
        }
    }

    // A broken transfer leaves garbage on a site. It leaves a part of the real bytes at the client, because the
    // application may look at them through an older map of unchanged bytes.
    fn put(&mut self, place: usize, buffer: usize, set: u64, packet: &[u32], faulty: bool) {
        for (byte, value) in each(set).zip(packet) {
            let cell = &mut self.memory[place][buffer][byte];
            match (faulty, place) {
                (false, _) => *cell = *value,
                (true, 0) if byte % 2 == 0 => *cell = *value,
                (true, 0) => {}
                (true, _) => *cell = GARBAGE,
            }
        }
    }

    pub(crate) fn verify(&self, reader: usize, place: usize, reads: &[Expected]) {
        for expected in reads {
            let Expected {
                buffer,
                byte,
                stamp,
            } = *expected;
            let found = self.memory[place][buffer][byte];
            assert!(
                found == stamp || self.is_undefined(stamp),
                "op {reader} at place {place}: byte {byte} of buffer {buffer} is {found}, not {stamp}"
            );
        }
    }

    /// Ends a site: each of its ops fails, unless the client knows that it has ended.
    pub(crate) fn lose(&mut self, site: usize, choices: &mut Choices) {
        for index in 0..self.ops.len() {
            let op = &mut self.ops[index];
            if op.location == site && !op.known {
                let was = std::mem::replace(&mut op.state, State::Failed);
                if was == State::Pending {
                    self.pending.retain(|pending| *pending != index);
                    self.news.push(index);
                }
            } else if let Action::Receive { .. } = op.action
                && op.state == State::Pending
                && self.ops[index - 1].location == site
            {
                // Bytes in flight may still arrive.
                self.ops[index].faulty |= choices.one_in(2);
            }
        }
    }
}
