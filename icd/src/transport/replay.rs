//! The commands that a new worker executes again, and the command at which the worker before has died.
//!
//! Pure: no socket, no clock, no lock. Batches are decoded one after the other, so the decoded commands of one batch are in
//! memory at a time.
//!
//! Invariant: each command leaves once, in the order of the numbers.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use causeway_proto::command::{
    Command, CommandBatch, Enqueue, command::Kind, enqueue::Operation, query::Question,
};
use causeway_proto::frame::PREFIX;
use prost::{DecodeError, Message};
use rustc_hash::{FxHashMap, FxHashSet};

use super::given::{Given, Item};
use super::kept::Batch;

/// Bytes of commands that leave together.
const TOGETHER: usize = 64 << 10;
/// `CL_QUEUE_PROPERTIES`, and its bit for queues whose commands have no order.
const QUEUE_PROPERTIES: u64 = 0x1093;
const OUT_OF_ORDER: u64 = 1;

/// The commands that have not left yet.
#[derive(Debug, Default)]
pub struct Replay {
    batches: VecDeque<Batch>,
    // The rest of the oldest batch.
    commands: VecDeque<Command>,
    // Number of the first of them.
    next: u64,
}

impl Replay {
    /// The commands of these batches.
    #[must_use]
    pub fn new(batches: VecDeque<Batch>) -> Replay {
        Replay {
            batches,
            ..Replay::default()
        }
    }

    /// Whether all commands have left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.batches.is_empty()
    }

    /// Takes the next commands below the number `allowed`. Returns the number of the first one.
    ///
    /// # Errors
    /// The batch is damaged, which is a fault of this library.
    pub fn next(&mut self, allowed: u64) -> Result<Option<(u64, Vec<Command>)>, DecodeError> {
        if self.commands.is_empty()
            && let Some(batch) = self.batches.pop_front()
        {
            self.next = batch.first;
            self.commands = decode(&batch)?.into();
        }
        let first = self.next;
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while self.next < allowed
            && let Some(command) = self.commands.front()
        {
            bytes += command.encoded_len();
            if bytes > TOGETHER && !taken.is_empty() {
                break;
            }
            taken.extend(self.commands.pop_front());
            self.next += 1;
        }
        Ok((!taken.is_empty()).then_some((first, taken)))
    }

    /// Puts the commands of `before` in front, which have left for a worker that has died.
    pub fn put_before(&mut self, mut before: VecDeque<Batch>) {
        if !self.commands.is_empty() {
            let commands: Vec<Command> = std::mem::take(&mut self.commands).into();
            before.push_back(encode(self.next, commands));
        }
        before.append(&mut self.batches);
        self.batches = before;
    }
}

/// Encodes commands as a batch, the first of which has the number `first`.
#[must_use]
pub fn encode(first: u64, commands: Vec<Command>) -> Batch {
    let last = first + commands.len() as u64 - 1;
    let batch = CommandBatch {
        commands,
        ..CommandBatch::default()
    };
    let mut bytes = vec![0; PREFIX];
    // Encoding into a vector cannot fail.
    let _ = batch.encode(&mut bytes);
    Batch { first, last, bytes }
}

fn decode(batch: &Batch) -> Result<Vec<Command>, DecodeError> {
    CommandBatch::decode(&batch.bytes[PREFIX..]).map(|batch| batch.commands)
}

/// Describes the command with this event, if the batches have it.
pub fn describe<'a>(written: impl Iterator<Item = &'a Batch>, event: u64) -> Option<String> {
    let mut suspects = Suspects::default();
    let given = Given::default();
    for batch in written {
        for command in decode(batch).ok()? {
            match command.kind {
                Some(Kind::Enqueue(enqueue)) if enqueue.event == event => {
                    return Some(suspects.what(enqueue.operation.as_ref()));
                }
                Some(kind @ Kind::CreateKernel(_)) => suspects.look(kind, &given),
                _ => {}
            }
        }
    }
    None
}

/// The commands that a worker was executing when it died.
#[derive(Debug, Default)]
pub struct Suspects {
    queues: FxHashMap<u64, QueueState>,
    // User events that are not set.
    unset: FxHashSet<u64>,
    asked: Vec<Suspect>,
    kernels: FxHashMap<u64, String>,
    next: u64,
}

/// A command at which a worker may have died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Its number.
    pub number: u64,
    /// What it is, for people.
    pub what: String,
    /// Whether it builds a program, and executes nothing.
    pub is_build: bool,
}

#[derive(Debug, Default)]
struct QueueState {
    is_unordered: bool,
    // Commands that have not ended, as far as is known.
    pending: Vec<Pending>,
}

#[derive(Debug)]
struct Pending {
    number: u64,
    event: u64,
    wait: Vec<u64>,
    what: String,
}

impl Suspects {
    /// Looks at the commands that the worker got, of which it has reported the ends that `given` knows.
    ///
    /// # Errors
    /// As [`Replay::next`].
    pub fn of<'a>(
        written: impl Iterator<Item = &'a Batch>,
        given: &Given,
    ) -> Result<Suspects, DecodeError> {
        let mut suspects = Suspects::default();
        for batch in written {
            suspects.next = batch.first;
            for command in decode(batch)? {
                if let Some(kind) = command.kind {
                    suspects.look(kind, given);
                }
                suspects.next += 1;
            }
        }
        Ok(suspects)
    }

    fn look(&mut self, kind: Kind, given: &Given) {
        match kind {
            Kind::Enqueue(enqueue) => self.enqueue(enqueue, given),
            Kind::CreateQueue(create) => {
                let mut pairs = create.properties.chunks_exact(2);
                let is_unordered =
                    pairs.any(|pair| pair[0] == QUEUE_PROPERTIES && pair[1] & OUT_OF_ORDER != 0);
                self.queues.entry(create.queue).or_default().is_unordered = is_unordered;
            }
            Kind::CreateKernel(create) => drop(self.kernels.insert(create.kernel, create.name)),
            Kind::CreateUserEvent(create) => drop(self.unset.insert(create.event)),
            Kind::SetUserEventStatus(set) => drop(self.unset.remove(&set.event)),
            Kind::BuildProgram(build) => self.ask(build.request, "a build", given),
            Kind::CompileProgram(compile) => self.ask(compile.request, "a compilation", given),
            Kind::LinkProgram(link) => self.ask(link.request, "linking a program", given),
            Kind::Query(query) if matches!(query.question, Some(Question::ProgramBinaries(_))) => {
                self.ask(query.request, "the binaries of a program", given);
            }
            _ => {}
        }
    }

    fn enqueue(&mut self, enqueue: Enqueue, given: &Given) {
        let what = self.what(enqueue.operation.as_ref());
        let queue = self.queues.entry(enqueue.queue).or_default();
        if given.has_come(Item::End(enqueue.event)) {
            // In order, those before have ended, too. Not all of them are reported.
            if !queue.is_unordered {
                queue.pending.clear();
            }
            return;
        }
        queue.pending.push(Pending {
            number: self.next,
            event: enqueue.event,
            wait: enqueue.wait,
            what,
        });
    }

    fn what(&self, operation: Option<&Operation>) -> String {
        match operation {
            Some(Operation::NdRange(launch)) => match self.kernels.get(&launch.kernel) {
                Some(name) => format!("the kernel `{name}`"),
                None => "a kernel".to_owned(),
            },
            Some(Operation::WriteBuffer(write)) => format!("a write to buffer {}", write.buffer),
            Some(Operation::ReadBuffer(read)) => format!("a read of buffer {}", read.buffer),
            Some(Operation::CopyBuffer(copy)) => format!("a copy to buffer {}", copy.destination),
            _ => "a command".to_owned(),
        }
    }

    fn ask(&mut self, request: u64, what: &str, given: &Given) {
        if request != 0 && !given.has_come(Item::Answer(request)) {
            self.asked.push(Suspect {
                number: self.next,
                what: what.to_owned(),
                is_build: true,
            });
        }
    }

    /// Returns the commands that may have been executing.
    #[must_use]
    pub fn running(self) -> Vec<Suspect> {
        let mut unended = self.unset;
        let all = self.queues.values().flat_map(|of| &of.pending);
        unended.extend(all.map(|of| of.event));
        // In order, all but the first have not begun.
        let first = self.queues.into_values().flat_map(|of| {
            let most = if of.is_unordered { usize::MAX } else { 1 };
            of.pending.into_iter().take(most)
        });
        let running = first.filter(|of| of.wait.iter().all(|event| !unended.contains(event)));
        let running = running.map(|of| Suspect {
            number: of.number,
            what: of.what,
            is_build: false,
        });
        running.chain(self.asked).collect()
    }
}

#[cfg(test)]
mod tests;
