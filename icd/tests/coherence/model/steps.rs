//! The application's next call, and events in between: one number determines a step.

use causeway::coherence::*;
use causeway_proto::region::Region;

use super::bytes::{BUFFERS, Sets, each, of_region, of_run, touch};
use super::choices::Choices;
use super::machine::{Op, State};
use super::program::{Call, Mapped, Program, Queue, memory_id};

const NOTHING: Sets = [0; BUFFERS];

impl Program {
    /// Makes one step.
    pub(crate) fn act(&mut self, step: u64) {
        let choices = &mut Choices::new(step);
        match choices.below(20) {
            0..=5 => self.launch(choices),
            6..=8 => self.write(choices),
            9 => self.copy(choices),
            10 | 11 => self.read_some(choices),
            12 => self.read_rect(choices),
            13 => self.map(choices),
            14 if !self.mapped.is_empty() => {
                let at = choices.below(self.mapped.len());
                self.unmap(at, choices);
            }
            15 => self.migrate(choices),
            16 => self.disturb(choices),
            _ => {}
        }
        for _ in 0..choices.below(self.eagerness) {
            self.machine.step(choices);
        }
        for _ in 0..choices.below(self.eagerness).min(self.machine.news.len()) {
            let at = choices.below(self.machine.news.len());
            self.learn(at);
        }
        let buffer = choices.below(BUFFERS);
        self.compare(buffer, self.whole(buffer));
    }

    /// Ends the program: runs everything, and checks all bytes that are not lost.
    pub(crate) fn end(&mut self, choices: &mut Choices) {
        while !self.mapped.is_empty() {
            self.unmap(0, choices);
        }
        for buffer in 0..BUFFERS {
            let queue = self.queue(choices);
            self.read(queue, buffer, self.whole(buffer), choices);
        }
        self.machine.run_all(choices);
        self.learn_all();
        (0..BUFFERS).for_each(|buffer| self.compare(buffer, self.whole(buffer)));
        self.check_failures();
        self.check_footprint(choices);
    }

    fn check_failures(&self) {
        let faults = self.faults;
        let failed = |op: &Op| op.state == State::Failed;
        if !(faults.commands || faults.transfers || faults.losses) {
            assert!(
                !self.machine.ops.iter().any(failed),
                "something failed by itself"
            );
        }
        if !(faults.transfers || faults.losses || faults.strict) {
            let mut transfers = self.machine.ops.iter().filter(|op| op.is_transfer());
            assert!(
                !transfers.any(failed),
                "a command's failure reached a transfer"
            );
        }
    }

    // Checks that nothing that has ended is remembered.
    fn check_footprint(&mut self, choices: &mut Choices) {
        let queue = self.queue(choices);
        for buffer in 0..BUFFERS {
            let all = of_run(0, self.size(buffer));
            let region = Region::linear(0, self.size(buffer)).unwrap();
            let writes = in_buffer(buffer, all);
            let accesses = [Access::fill(memory_id(buffer), region)];
            self.call_there(queue, &accesses, NOTHING, writes, choices);
        }
        self.machine.run_all(choices);
        self.learn_all();
        self.coherence.prune(&|_| true);
        assert_eq!(self.coherence.footprint(), (BUFFERS, 0));
    }

    fn call_there(
        &mut self,
        queue: Queue,
        accesses: &[Access],
        reads: Sets,
        writes: Sets,
        choices: &mut Choices,
    ) {
        self.make_room(&reads, &writes, choices);
        let place = Place::Site(SiteIndex(queue.site as u16 - 1));
        let call = Call {
            queue,
            place,
            accesses,
            reads,
            writes,
        };
        self.call(&call, choices);
    }

    // Ends maps that forbid the access: a mapped region may not be written, and not be touched if it is mapped for
    // writing.
    fn make_room(&mut self, reads: &Sets, writes: &Sets, choices: &mut Choices) {
        let is_touched = |mapped: &Mapped| {
            let region = in_buffer(mapped.buffer, of_region(&mapped.region));
            touch(&region, writes) || (mapped.kind != MapKind::Read && touch(&region, reads))
        };
        while let Some(at) = self.mapped.iter().position(is_touched) {
            self.unmap(at, choices);
        }
    }

    fn span(&self, buffer: usize, choices: &mut Choices) -> Span {
        let size = self.size(buffer) as usize;
        if choices.one_in(3) {
            return Span::new(0, size as u64);
        }
        let start = choices.below(size);
        Span::new(start as u64, choices.between(start + 1, size) as u64)
    }

    fn linear(&self, buffer: usize, choices: &mut Choices) -> Region {
        let span = self.span(buffer, choices);
        Region::linear(span.start, span.length()).unwrap()
    }

    // A random region: a contiguous run, or rows that fit.
    fn region(&self, buffer: usize, choices: &mut Choices) -> Region {
        let size = self.size(buffer);
        if size < 8 || choices.one_in(2) {
            return self.linear(buffer, choices);
        }
        let pitch = choices.between(2, size as usize / 2) as u64;
        let length = choices.between(1, pitch as usize) as u64;
        let rows = choices.between(1, (size / pitch) as usize) as u64;
        let room = size - ((rows - 1) * pitch + length);
        let offset = choices.between(0, room as usize) as u64;
        Region::rect(offset, [length, rows, 1], pitch, pitch * rows).unwrap()
    }

    fn launch(&mut self, choices: &mut Choices) {
        let queue = self.queue(choices);
        let (mut reads, mut writes) = (NOTHING, NOTHING);
        let mut accesses = Vec::new();
        for _ in 0..choices.between(1, 3) {
            let buffer = choices.below(BUFFERS);
            let region = self.linear(buffer, choices);
            let kind = ArgumentKind {
                pointer_to_const: choices.one_in(3),
                ..ArgumentKind::default()
            };
            let access = Access::argument(memory_id(buffer), region, kind, true);
            // The kernel may read and write fewer bytes than it could.
            let all = of_region(&region);
            reads[buffer] |= all & some(choices);
            if access.mode == Mode::ReadWrite {
                writes[buffer] |= all & some(choices);
            }
            accesses.push(access);
        }
        self.call_there(queue, &accesses, reads, writes, choices);
    }

    fn write(&mut self, choices: &mut Choices) {
        let queue = self.queue(choices);
        let buffer = choices.below(BUFFERS);
        let region = self.region(buffer, choices);
        let writes = in_buffer(buffer, of_region(&region));
        let accesses = [Access::write(memory_id(buffer), region)];
        self.call_there(queue, &accesses, NOTHING, writes, choices);
    }

    fn copy(&mut self, choices: &mut Choices) {
        let queue = self.queue(choices);
        let source = self.region(0, choices);
        let destination = self.region(1, choices);
        let (reads, writes) = ([of_region(&source), 0], [0, of_region(&destination)]);
        let accesses = Access::copy((memory_id(0), source), (memory_id(1), destination));
        let own = SiteIndex(queue.site as u16 - 1);
        self.make_room(&reads, &writes, choices);
        let chosen = self.coherence.place_for_copy(&accesses, own);
        self.check_chosen(chosen, own, source, destination);
        let call = Call {
            queue,
            place: Place::Site(chosen),
            accesses: &accesses,
            reads,
            writes,
        };
        self.call(&call, choices);
    }

    fn check_chosen(&self, chosen: SiteIndex, own: SiteIndex, source: Region, destination: Region) {
        if !source.is_linear() || !destination.is_linear() {
            // The limits decide whether rows or extents count.
            return;
        }
        let needs = of_region(&source);
        let cost = |site: usize| self.oracle.missing(site, 0, needs).count_ones();
        let (chosen, own) = (usize::from(chosen.0) + 1, usize::from(own.0) + 1);
        assert!(!self.lost[chosen]);
        for site in (1..=self.sites).filter(|site| !self.lost[*site]) {
            assert!(cost(chosen) <= cost(site), "a better site for a copy");
        }
        assert!(
            chosen == own || cost(chosen) < cost(own),
            "no reason to leave"
        );
    }

    fn read_some(&mut self, choices: &mut Choices) {
        let queue = self.queue(choices);
        let buffer = choices.below(BUFFERS);
        let span = self.span(buffer, choices);
        self.make_room(
            &in_buffer(buffer, Program::span_set(span)),
            &NOTHING,
            choices,
        );
        self.read(queue, buffer, span, choices);
    }

    fn read_rect(&mut self, choices: &mut Choices) {
        let queue = self.queue(choices);
        let buffer = choices.below(BUFFERS);
        let region = self.region(buffer, choices);
        let accesses = [Access::read(memory_id(buffer), region)];
        let reads = in_buffer(buffer, of_region(&region));
        self.call_there(queue, &accesses, reads, NOTHING, choices);
    }

    fn migrate(&mut self, choices: &mut Choices) {
        let queue = self.queue(choices);
        let buffer = choices.below(BUFFERS);
        let region = self.linear(buffer, choices);
        let discards = choices.one_in(3);
        let set = in_buffer(buffer, of_region(&region));
        let (reads, writes) = if discards {
            (NOTHING, set)
        } else {
            (set, NOTHING)
        };
        let accesses = [Access::migrate(memory_id(buffer), region, discards)];
        if choices.one_in(3) {
            // To the host.
            self.make_room(&reads, &writes, choices);
            let call = Call {
                queue,
                place: Place::Client,
                accesses: &accesses,
                reads,
                writes,
            };
            self.call(&call, choices);
        } else {
            self.call_there(queue, &accesses, reads, writes, choices);
        }
    }

    fn map(&mut self, choices: &mut Choices) {
        let queue = self.queue(choices);
        let buffer = choices.below(BUFFERS);
        let region = self.region(buffer, choices);
        let set = in_buffer(buffer, of_region(&region));
        let (kind, reads, writes) = match choices.below(3) {
            0 => (MapKind::Read, set, NOTHING),
            1 => (MapKind::Write, set, set),
            _ => (MapKind::WriteInvalidate, NOTHING, set),
        };
        self.make_room(&reads, &writes, choices);
        let expected = self.expect(&reads);
        let call = Call {
            queue,
            place: Place::Client,
            accesses: &[Access::map(memory_id(buffer), region, kind)],
            reads,
            writes,
        };
        let op = self.call(&call, choices);
        self.mapped.extend(op.map(|op| Mapped {
            op,
            buffer,
            region,
            kind,
            expected,
        }));
    }

    fn unmap(&mut self, at: usize, choices: &mut Choices) {
        let mapped = self.mapped.swap_remove(at);
        if !self.wait(mapped.op, choices) {
            return;
        }
        self.machine.verify(mapped.op, 0, &mapped.expected);
        if mapped.kind == MapKind::Read {
            return;
        }
        let (buffer, set) = (mapped.buffer, of_region(&mapped.region));
        let queue = self.queue(choices);
        let accesses = [Access::unmap(memory_id(buffer), mapped.region)];
        let place = Place::Site(SiteIndex(queue.site as u16 - 1));
        let call = Call {
            queue,
            place,
            accesses: &accesses,
            reads: NOTHING,
            writes: in_buffer(buffer, set),
        };
        // An upload needs nothing, so it is never refused.
        let op = self.call(&call, choices).unwrap();
        // The bytes that the host wrote while they were mapped get the stamp of the unmap.
        for byte in each(set) {
            self.machine.memory[0][buffer][byte] = op as u32 + 1;
        }
    }

    fn disturb(&mut self, choices: &mut Choices) {
        match choices.below(3) {
            0 if self.faults.losses => {
                let live = (1..=self.sites).filter(|site| !self.lost[*site]).count();
                if live > 1 {
                    let site = self.live_site(choices);
                    self.lose(site, choices);
                }
            }
            1 => {
                let (one, other) = (self.live_site(choices), self.live_site(choices));
                let route = if choices.one_in(2) {
                    Route::Direct
                } else {
                    Route::ViaClient
                };
                if one != other {
                    self.set_route(one, other, route);
                }
            }
            _ => {
                // This is clFinish.
                self.machine.run_all(choices);
                self.learn_all();
            }
        }
    }
}

fn in_buffer(buffer: usize, set: u64) -> Sets {
    let mut sets = NOTHING;
    sets[buffer] = set;
    sets
}

// All bytes, none, or some.
fn some(choices: &mut Choices) -> u64 {
    match choices.below(4) {
        0 => u64::MAX,
        1 => 0,
        _ => choices.next(),
    }
}
