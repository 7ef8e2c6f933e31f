//! The client's handling of ended commands, and reads in pieces.

use causeway::coherence::*;
use causeway_proto::id::EventId;

use super::bytes::{BUFFERS, of_run};
use super::choices::Choices;
use super::machine::{Action, Op, State, slot};
use super::program::{Call, Program, Queue, event_of, memory_id, place_of, success};

impl Program {
    /// Reads pieces from wherever they are.
    pub(crate) fn read(&mut self, queue: Queue, buffer: usize, span: Span, choices: &mut Choices) {
        let mut reads = [0; BUFFERS];
        reads[buffer] = of_run(span.start, span.end);
        let own = SiteIndex(queue.site as u16 - 1);
        let call = Call {
            queue,
            place: Place::Site(own),
            accesses: &[],
            reads,
            writes: [0; BUFFERS],
        };
        let gather = self
            .coherence
            .gather(memory_id(buffer), span, own, &self.is_done());
        let gather = match gather {
            Ok(gather) => gather,
            Err(lost) => return self.check_lost(lost, &reads),
        };
        self.check_not_lost(&reads);
        let waits = self.waits_of(&call, choices);
        let start = self.mark(queue, waits);
        let mut at = span.start;
        // The end marker's index. The pieces name it, so that they are left alone once it has failed.
        let end = start + 1 + gather.pieces().len();
        let mut events = Vec::new();
        for piece in gather.pieces() {
            assert_eq!(piece.span.start, at);
            at = piece.span.end;
            let place = slot(piece.place);
            let set = of_run(piece.span.start, piece.span.end) & self.oracle.written[buffer];
            assert_eq!(set & !self.oracle.valid[place][buffer], 0, "a stale piece");
            let mut piece_reads = [0; BUFFERS];
            piece_reads[buffer] = set;
            let action = Action::Compute {
                place,
                reads: self.expect(&piece_reads),
                writes: [0; BUFFERS],
                of: Some(end),
            };
            let mut op = Op::new(action, place);
            op.waits = piece.waits.to_vec();
            op.waits.push(success(start));
            events.push(self.machine.add(op));
        }
        assert_eq!(at, span.end);
        let pieces = events.iter().map(|op| success(*op)).collect();
        assert_eq!(self.mark(queue, pieces), end);
        let events: Vec<EventId> = events.into_iter().map(event_of).collect();
        let mut coherence = std::mem::take(&mut self.coherence);
        coherence.commit_gather(&gather, &events, &self.is_done());
        self.coherence = coherence;
        self.remember(&call, end, end);
    }

    /// Tells the client of an ended command, in the order of ends at one place.
    pub(crate) fn learn(&mut self, at: usize) {
        let location = |op: usize| self.machine.ops[op].location;
        let place = location(self.machine.news[at]);
        let first = self
            .machine
            .news
            .iter()
            .position(|op| location(*op) == place);
        let index = self.machine.news.remove(first.unwrap_or(at));
        let op = &self.machine.ops[index];
        if op.state == State::Failed {
            let failure = if op.cancelled {
                Failure::Cancelled
            } else {
                Failure::Broken
            };
            let mut coherence = std::mem::take(&mut self.coherence);
            coherence.failed(event_of(index), failure, &self.is_done());
            self.coherence = coherence;
            self.agree();
        } else if op.is_transfer() || index.is_multiple_of(2) {
            self.coherence.succeeded(event_of(index));
        }
        self.machine.ops[index].known = true;
    }

    pub(crate) fn learn_all(&mut self) {
        while !self.machine.news.is_empty() {
            self.learn(0);
        }
    }

    /// Lets the host wait for a command. Returns true if the command succeeded.
    pub(crate) fn wait(&mut self, op: usize, choices: &mut Choices) -> bool {
        self.machine.run_until(op, choices);
        while let Some(at) = self.machine.news.iter().position(|news| *news == op) {
            self.learn(at);
        }
        self.machine.ops[op].state == State::Complete
    }

    pub(crate) fn lose(&mut self, site: usize, choices: &mut Choices) {
        self.lost[site] = true;
        self.machine.lose(site, choices);
        if let Place::Site(index) = place_of(site) {
            let mut coherence = std::mem::take(&mut self.coherence);
            coherence.site_lost(index, &self.is_done());
            self.coherence = coherence;
        }
        self.agree();
        if choices.one_in(2) {
            self.learn_all();
        }
    }
}
