//! A simple directory: for each place, the set of bytes that are valid there.

use causeway::coherence::{Lost, Place, Plan, Route, Span, Transfer};

use super::bytes::{BUFFERS, Sets, of_region, of_run};
use super::machine::{PLACES, slot};
use super::program::{Program, buffer_of, memory_id};

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) valid: [Sets; PLACES],
    pub(crate) written: Sets,
}

impl Oracle {
    pub(crate) fn write(&mut self, place: usize, buffer: usize, set: u64) {
        for slot in 0..PLACES {
            self.valid[slot][buffer] &= !set;
        }
        self.valid[place][buffer] |= set;
        self.written[buffer] |= set;
    }

    pub(crate) fn share(&mut self, place: usize, buffer: usize, set: u64) {
        self.valid[place][buffer] |= set;
    }

    pub(crate) fn discard(&mut self, buffer: usize, set: u64) {
        self.write(0, buffer, set);
        self.valid[0][buffer] &= !set;
        self.written[buffer] &= !set;
    }

    pub(crate) fn anywhere(&self, buffer: usize) -> u64 {
        self.valid.iter().fold(0, |set, valid| set | valid[buffer])
    }

    /// The bytes that a command needs at a place and that are missing there.
    pub(crate) fn missing(&self, place: usize, buffer: usize, needs: u64) -> u64 {
        needs & self.written[buffer] & !self.valid[place][buffer]
    }
}

impl Program {
    /// Checks that a plan moves exactly the missing bytes, each once, from a place where it is valid.
    pub(crate) fn check_plan(&self, plan: &Plan, place: usize, needs: &Sets) {
        let mut moved = [0; BUFFERS];
        for transfer in plan.transfers() {
            let buffer = buffer_of(transfer.buffer);
            let set = of_region(&transfer.region);
            assert_eq!(slot(transfer.destination), place);
            assert!(!transfer.passes || place == 0, "only for a map");
            assert!(transfer.region.packed_length() <= self.limits.transfer);
            assert_eq!(moved[buffer] & set, 0, "a byte moves twice");
            moved[buffer] |= set;
            self.check_source(transfer, buffer, set);
            for wait in transfer
                .source_waits
                .iter()
                .chain(&transfer.destination_waits)
            {
                self.check_wait(wait.event.0);
            }
        }
        for wait in plan.waits() {
            self.check_wait(wait.event.0);
        }
        for buffer in 0..BUFFERS {
            let missing = self.oracle.missing(place, buffer, needs[buffer]);
            assert_eq!(
                moved[buffer], missing,
                "the moved bytes are not the missing ones"
            );
        }
    }

    fn check_source(&self, transfer: &Transfer, buffer: usize, set: u64) {
        let source = slot(transfer.source);
        assert_eq!(
            set & !self.oracle.valid[source][buffer],
            0,
            "a stale source"
        );
        let (Place::Site(_), Place::Client) = (transfer.destination, transfer.source) else {
            return;
        };
        for site in 1..PLACES {
            let direct = self.route(site, slot(transfer.destination)) == Route::Direct;
            let elsewhere = self.oracle.valid[site][buffer] & set;
            assert!(
                !direct || elsewhere == 0,
                "the client sends what a site has"
            );
        }
    }

    // Checks that a wait names an event that was sent before and may still be running.
    fn check_wait(&self, event: u64) {
        let op = &self.machine.ops[event as usize - 1];
        assert!(!op.known, "an edge from what is known to be over");
    }

    /// Checks that a range reported as lost is lost and needed.
    pub(crate) fn check_lost(&self, lost: Lost, needs: &Sets) {
        assert!(self.lost.contains(&true), "lost, but no site is");
        let buffer = buffer_of(lost.buffer);
        let set = of_run(lost.span.start, lost.span.end);
        assert_ne!(set, 0);
        assert_eq!(set & !needs[buffer], 0, "lost, but not needed");
        assert_eq!(
            set & !self.oracle.written[buffer],
            0,
            "lost, but never written"
        );
        assert_eq!(
            set & self.oracle.anywhere(buffer),
            0,
            "lost, but still valid somewhere"
        );
    }

    /// Checks that a planned command needs no lost byte.
    pub(crate) fn check_not_lost(&self, needs: &Sets) {
        for (buffer, needs) in needs.iter().enumerate() {
            let there = self.oracle.anywhere(buffer) | !self.oracle.written[buffer];
            assert_eq!(needs & !there, 0, "lost, but not reported");
        }
    }

    /// Compares the directory with the oracle for these bytes.
    pub(crate) fn compare(&self, buffer: usize, span: Span) {
        let all = of_run(span.start, span.end);
        for (place, found) in self.found(buffer, span).into_iter().enumerate() {
            let expected = self.oracle.valid[place][buffer] & all;
            assert_eq!(
                found, expected,
                "of {span:?} of buffer {buffer} at place {place}"
            );
        }
    }

    /// Adopts the directory's state after a failure: it knows what transfers had brought, and older copies. Later
    /// reads prove that it is right.
    pub(crate) fn agree(&mut self) {
        for buffer in 0..BUFFERS {
            let found = self.found(buffer, self.whole(buffer));
            for (place, found) in found.into_iter().enumerate() {
                self.oracle.valid[place][buffer] = found;
            }
        }
    }

    fn found(&self, buffer: usize, span: Span) -> [u64; PLACES] {
        let mut found = [0; PLACES];
        for (span, place) in self.coherence.valid_places(memory_id(buffer), span) {
            found[slot(place)] |= of_run(span.start, span.end);
        }
        found
    }

    pub(crate) fn span_set(span: Span) -> u64 {
        of_run(span.start, span.end)
    }
}
