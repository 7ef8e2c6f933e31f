//! A random application that keeps the rules of the specification: commands that touch the same bytes, one of them
//! writing, are ordered by in-order queues, wait lists or the host. Kernels may name more bytes than they touch. The
//! expected content of a byte is that of a flat memory after the commands in the order of their calls.

use causeway::coherence::*;
use causeway_proto::id::{EventId, MemoryId, QueueId};

use super::bytes::{BUFFERS, Sets, each, of_region, of_run, touch};
use super::choices::Choices;
use super::machine::{Action, Expected, Machine, Op, PLACES, slot};
use super::oracle::Oracle;

/// Faults that a program may contain.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) commands: bool,
    pub(crate) transfers: bool,
    pub(crate) losses: bool,
    /// See [`Machine::strict`].
    pub(crate) strict: bool,
}

/// A queue. Each site has two in-order queues and one out-of-order queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) site: usize,
    pub(crate) index: usize,
}

impl Queue {
    pub(crate) fn in_order(self) -> Option<QueueId> {
        (self.index < 2).then_some(QueueId((self.site * 3 + self.index) as u64))
    }
}

/// The application's knowledge of its commands.
struct Past {
    op: usize,
    /// The op that really runs.
    ran: usize,
    queue: Queue,
    reads: Sets,
    writes: Sets,
}

impl Past {
    fn conflicts(&self, call: &Call<'_>) -> bool {
        touch(&call.writes, &self.writes)
            || touch(&call.writes, &self.reads)
            || touch(&call.reads, &self.writes)
    }
}

/// A mapped region.
pub(crate) struct Mapped {
    pub(crate) op: usize,
    pub(crate) buffer: usize,
    pub(crate) region: causeway_proto::region::Region,
    pub(crate) kind: MapKind,
    pub(crate) expected: Vec<Expected>,
}

pub(crate) struct Program {
    pub(crate) coherence: Coherence,
    pub(crate) limits: Limits,
    pub(crate) machine: Machine,
    pub(crate) oracle: Oracle,
    pub(crate) faults: Faults,
    pub(crate) sites: usize,
    /// Number of steps that commands make between two calls.
    pub(crate) eagerness: usize,
    pub(crate) lost: [bool; PLACES],
    pub(crate) mapped: Vec<Mapped>,
    /// Stamps of the flat memory; 0 is undefined.
    pub(crate) flat: [[u32; 64]; BUFFERS],
    sizes: [u64; BUFFERS],
    relayed: [[bool; PLACES]; PLACES],
    past: Vec<Past>,
    last_of_queue: [[Option<usize>; 2]; PLACES],
}

/// A call of the application.
pub(crate) struct Call<'a> {
    pub(crate) queue: Queue,
    /// Where it runs.
    pub(crate) place: Place,
    pub(crate) accesses: &'a [Access],
    /// The bytes that the call really touches.
    pub(crate) reads: Sets,
    pub(crate) writes: Sets,
}

pub(crate) fn memory_id(buffer: usize) -> MemoryId {
    MemoryId(buffer as u64 + 1)
}

pub(crate) fn buffer_of(memory: MemoryId) -> usize {
    memory.0 as usize - 1
}

pub(crate) fn place_of(slot: usize) -> Place {
    match slot {
        0 => Place::Client,
        site => Place::Site(SiteIndex(site as u16 - 1)),
    }
}

pub(crate) fn event_of(op: usize) -> EventId {
    EventId(op as u64 + 1)
}

pub(crate) fn success(op: usize) -> Wait {
    Wait {
        event: event_of(op),
        needs: Needs::Success,
    }
}

impl Program {
    pub(crate) fn new(faults: Faults, choices: &mut Choices) -> Program {
        let limits = Limits {
            transfer: choices.between(1, 24) as u64,
            rows: choices.between(0, 6) as u64,
            pieces: choices.between(1, 30),
        };
        let most = choices.between(1, PLACES - 1);
        let mut program = Program {
            coherence: Coherence::with_limits(limits),
            limits,
            machine: Machine::new(faults.strict),
            oracle: Oracle::default(),
            faults,
            // Small numbers are more likely, because few sites conflict more often.
            sites: choices.between(1, most),
            eagerness: choices.between(1, 6),
            lost: [false; PLACES],
            mapped: Vec::new(),
            flat: [[0; 64]; BUFFERS],
            sizes: [0; BUFFERS],
            relayed: [[false; PLACES]; PLACES],
            past: Vec::new(),
            last_of_queue: [[None; 2]; PLACES],
        };
        // The stamps of the first contents are this op's.
        let first = program.machine.add(Op::new(Action::Marker, 0));
        program.machine.run_until(first, choices);
        program.learn_all();
        for buffer in 0..BUFFERS {
            program.add_buffer(buffer, choices);
        }
        program
    }

    fn add_buffer(&mut self, buffer: usize, choices: &mut Choices) {
        let size = choices.between(1, 48) as u64;
        self.sizes[buffer] = size;
        let contents = match choices.below(3) {
            0 => Contents::Undefined,
            1 => Contents::AtClient,
            _ => Contents::AtPlace(place_of(choices.between(1, self.sites))),
        };
        self.coherence.add_buffer(memory_id(buffer), size, contents);
        let place = match contents {
            Contents::Undefined => return,
            Contents::AtClient => 0,
            Contents::AtPlace(place) => slot(place),
        };
        self.oracle.write(place, buffer, of_run(0, size));
        self.flat[buffer] = [1; 64];
        self.machine.memory[place][buffer] = [1; 64];
    }

    pub(crate) fn size(&self, buffer: usize) -> u64 {
        self.sizes[buffer]
    }

    pub(crate) fn whole(&self, buffer: usize) -> Span {
        Span::new(0, self.sizes[buffer])
    }

    pub(crate) fn route(&self, from: usize, to: usize) -> Route {
        if self.relayed[from][to] {
            Route::ViaClient
        } else {
            Route::Direct
        }
    }

    pub(crate) fn set_route(&mut self, one: usize, other: usize, route: Route) {
        if let (Place::Site(a), Place::Site(b)) = (place_of(one), place_of(other)) {
            self.coherence.set_route(a, b, route);
            self.relayed[one][other] = route == Route::ViaClient;
            self.relayed[other][one] = route == Route::ViaClient;
        }
    }

    pub(crate) fn live_site(&self, choices: &mut Choices) -> usize {
        loop {
            let site = choices.between(1, self.sites);
            if !self.lost[site] {
                return site;
            }
        }
    }

    pub(crate) fn queue(&self, choices: &mut Choices) -> Queue {
        let site = self.live_site(choices);
        let index = choices.below(3);
        Queue { site, index }
    }

    pub(crate) fn is_done(&self) -> impl Fn(EventId) -> bool + use<'_> {
        |event| {
            let op = self.machine.ops.get(event.0 as usize - 1);
            op.is_none_or(|op| op.known)
        }
    }

    pub(crate) fn expect(&self, reads: &Sets) -> Vec<Expected> {
        let of_buffer = |buffer: usize| {
            each(reads[buffer]).map(move |byte| Expected {
                buffer,
                byte,
                stamp: self.flat[buffer][byte],
            })
        };
        (0..BUFFERS).flat_map(of_buffer).collect()
    }

    /// Makes a call that runs at one place, on a queue there or elsewhere. Returns the op of its event, or `None` if
    /// a byte that it reads is lost.
    pub(crate) fn call(&mut self, call: &Call<'_>, choices: &mut Choices) -> Option<usize> {
        self.outlive(call, choices);
        let waits = self.waits_of(call, choices);
        let own = slot(call.place) == call.queue.site;
        let after: Vec<EventId> = waits.iter().map(|wait| wait.event).collect();
        let command = Command {
            place: call.place,
            in_order: call.queue.in_order().filter(|_| own),
            after: if choices.one_in(2) { &after } else { &[] },
            accesses: call.accesses,
        };
        let plan = match self.coherence.plan(&command, &self.is_done()) {
            Ok(plan) => plan,
            Err(lost) => {
                self.check_lost(lost, &extents(call.accesses));
                return None;
            }
        };
        let needs = needed(&plan, call.accesses);
        self.check_not_lost(&needs);
        self.check_plan(&plan, slot(call.place), &needs);
        let transfers = self.send_transfers(&plan, choices);
        let action = self.action_of(call);
        let mut runs = Op::new(action, slot(call.place));
        runs.faulty = self.faults.commands && choices.one_in(12);
        runs.waits.extend_from_slice(plan.waits());
        runs.waits.extend(transfers.iter().map(|t| Wait {
            event: t.received,
            needs: Needs::Success,
        }));
        let (ran, event) = if own {
            runs.waits.extend(waits);
            let event = self.enqueue(call.queue, runs);
            (event, event)
        } else {
            // Between markers on the named queue.
            let start = self.mark(call.queue, waits);
            runs.waits.push(success(start));
            let ran = self.machine.add(runs);
            let end = self.mark(call.queue, vec![success(ran)]);
            self.machine.ops[ran].shown_as = Some(end);
            (ran, end)
        };
        self.commit(&plan, &transfers, ran);
        self.account(&plan, call, ran);
        self.remember(call, ran, event);
        Some(event)
    }

    fn action_of(&self, call: &Call<'_>) -> Action {
        let place = slot(call.place);
        if let [access] = call.accesses
            && access.mode == Mode::Upload
        {
            return Action::Upload {
                place,
                buffer: buffer_of(access.buffer),
                set: of_region(&access.region),
            };
        }
        Action::Compute {
            place,
            reads: self.expect(&call.reads),
            // A map changes nothing itself.
            writes: if place == 0 {
                [0; BUFFERS]
            } else {
                call.writes
            },
            of: None,
        }
    }

    fn send_transfers(&mut self, plan: &Plan, choices: &mut Choices) -> Vec<TransferEvents> {
        let transfers = plan.transfers().iter();
        transfers.map(|t| self.send_transfer(t, choices)).collect()
    }

    fn send_transfer(&mut self, transfer: &Transfer, choices: &mut Choices) -> TransferEvents {
        let (from, to) = (slot(transfer.source), slot(transfer.destination));
        let (buffer, set) = (buffer_of(transfer.buffer), of_region(&transfer.region));
        let faulty = self.faults.transfers && choices.one_in(12);
        let source_waits = transfer.source_waits.iter().copied();
        let destination_waits = transfer.destination_waits.iter().copied();
        if from == 0 || to == 0 {
            let action = Action::Move {
                from,
                to,
                buffer,
                set,
            };
            let mut both = Op::new(action, from.max(to));
            both.waits = source_waits.chain(destination_waits).collect();
            both.faulty = faulty;
            let op = self.machine.add(both);
            return TransferEvents::one(event_of(op));
        }
        let place = from;
        let mut send = Op::new(Action::Send { place, buffer, set }, from);
        send.waits = source_waits.collect();
        send.faulty = faulty && choices.one_in(2);
        let sent = self.machine.add(send);
        let place = to;
        let mut receive = Op::new(Action::Receive { place, buffer, set }, to);
        receive.waits = destination_waits.chain([success(sent)]).collect();
        receive.faulty = faulty;
        let received = self.machine.add(receive);
        TransferEvents {
            sent: event_of(sent),
            received: event_of(received),
        }
    }

    fn commit(&mut self, plan: &Plan, transfers: &[TransferEvents], ran: usize) {
        let mut coherence = std::mem::take(&mut self.coherence);
        coherence.commit(plan, transfers, event_of(ran), &self.is_done());
        self.coherence = coherence;
        for transfer in plan.transfers() {
            let buffer = buffer_of(transfer.buffer);
            let set = of_region(&transfer.region);
            if !transfer.passes {
                self.oracle.share(slot(transfer.destination), buffer, set);
            }
        }
    }

    // Records the expected state of the directory and the flat memory.
    fn account(&mut self, plan: &Plan, call: &Call<'_>, ran: usize) {
        let place = slot(call.place);
        for (memory, span, mode) in plan.touches() {
            let (buffer, set) = (buffer_of(memory), of_run(span.start, span.end));
            match mode {
                Mode::Read | Mode::MapWrite | Mode::MapInvalidate => {}
                Mode::Write | Mode::ReadWrite | Mode::UploadRows => {
                    self.oracle.write(place, buffer, set);
                }
                Mode::Upload => {
                    self.oracle.write(place, buffer, set);
                    self.oracle.share(0, buffer, set);
                }
                Mode::Discard => self.oracle.discard(buffer, set),
            }
            let discards = mode == Mode::Discard;
            if place != 0 || discards {
                let stamp = if discards { 0 } else { ran as u32 + 1 };
                let written = each(call.writes[buffer] & set);
                written.for_each(|byte| self.flat[buffer][byte] = stamp);
            }
        }
    }

    // A command whose queue was lost may still run elsewhere after its event has failed. The driver must keep the
    // application from getting ahead of it.
    fn outlive(&mut self, call: &Call<'_>, choices: &mut Choices) {
        for at in 0..self.past.len() {
            let past = &self.past[at];
            if self.machine.ops[past.op].known && past.conflicts(call) {
                self.machine.run_until(past.ran, choices);
            }
        }
    }

    /// The ops that the application must order a call after, and some more.
    pub(crate) fn waits_of(&self, call: &Call<'_>, choices: &mut Choices) -> Vec<Wait> {
        let mut waits = Vec::new();
        for past in &self.past {
            // The host, or the queue, orders the call after this op.
            if self.machine.ops[past.op].known {
                continue;
            }
            let conflict = past.conflicts(call);
            let ordered = past.queue == call.queue && call.queue.in_order().is_some();
            if (conflict && !ordered) || choices.one_in(12) {
                waits.push(success(past.op));
            }
        }
        waits
    }

    pub(crate) fn mark(&mut self, queue: Queue, waits: Vec<Wait>) -> usize {
        let mut marker = Op::new(Action::Marker, queue.site);
        marker.waits = waits;
        self.enqueue(queue, marker)
    }

    fn enqueue(&mut self, queue: Queue, mut op: Op) -> usize {
        if queue.in_order().is_none() {
            return self.machine.add(op);
        }
        let last = self.last_of_queue[queue.site][queue.index];
        op.follows = last;
        let index = self.machine.add(op);
        self.last_of_queue[queue.site][queue.index] = Some(index);
        index
    }

    pub(crate) fn remember(&mut self, call: &Call<'_>, ran: usize, op: usize) {
        let (queue, reads, writes) = (call.queue, call.reads, call.writes);
        self.past.push(Past {
            op,
            ran,
            queue,
            reads,
            writes,
        });
    }
}

// The bytes that a command needs in the planner's view. They must agree with the requested ones.
fn needed(plan: &Plan, accesses: &[Access]) -> Sets {
    let (mut touched, mut needed) = ([0; BUFFERS], [0; BUFFERS]);
    for (memory, span, mode) in plan.touches() {
        let (buffer, set) = (buffer_of(memory), of_run(span.start, span.end));
        assert_eq!(touched[buffer] & set, 0, "a byte is touched twice");
        touched[buffer] |= set;
        if mode.needs_bytes() {
            needed[buffer] |= set;
        }
        if mode == Mode::Write || mode == Mode::Upload {
            let of_access = |access: &&Access| buffer_of(access.buffer) == buffer;
            let regions = accesses.iter().filter(of_access);
            let asked = regions.fold(0, |all, access| all | of_region(&access.region));
            assert_eq!(set & !asked, 0, "a byte is replaced that was not named");
        }
    }
    let extents = extents(accesses);
    for access in accesses {
        let buffer = buffer_of(access.buffer);
        assert_eq!(
            of_region(&access.region) & !touched[buffer],
            0,
            "not touched"
        );
        assert_eq!(touched[buffer] & !extents[buffer], 0, "touched outside");
    }
    needed
}

fn extents(accesses: &[Access]) -> Sets {
    let mut extents = [0; BUFFERS];
    for access in accesses {
        let span = Span::enclosing(&access.region);
        extents[buffer_of(access.buffer)] |= of_run(span.start, span.end);
    }
    extents
}
