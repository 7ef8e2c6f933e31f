//! What the program has been given by the node: ends of commands, answers, printed text and notices. A worker that executes
//! the session's commands again gives all of it again.
//!
//! Pure: no socket, no clock, no lock. Two things follow from what was given:
//! - *Nothing is given twice.* What comes again is compared with what was given. If it differs, the program has seen what
//!   is not true any more, and the session is lost.
//! - *The program may have used it.* A command may depend on everything that was given before it was appended, through the
//!   program. So it is executed again only after all of that has come again.
//!
//! While a checkpoint comes to the client, what was given before its cut is kept apart ([`Given::mark`]), because it counts
//! again if the worker dies first.
//!
//! Invariant: each item is first once. [`Given::allowed`] never decreases during the life of a worker.
#![forbid(unsafe_code)]

use bytes::Bytes;
use causeway_proto::command::Notice;
use prost::Message as _;
use rustc_hash::{FxHashMap, FxHashSet};
use twox_hash::XxHash3_128;

/// Bytes of memory that an item takes here, about.
const ITEM: usize = 96;

/// Something that the node gives once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// The end of a command, by its event.
    End(u64),
    /// The answer to a request.
    Answer(u64),
}

/// What the caller must do with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// Give it to the program.
    First,
    /// Nothing: the program has it.
    Again,
    /// End the session: the program has something else.
    Different,
}

/// What was given; see the module.
#[derive(Debug, Default)]
pub struct Given {
    items: FxHashMap<Item, Known>,
    // Each item, behind the number of the first command that may depend on it. In the order of these numbers.
    order: Vec<(u64, Item)>,
    // The items before this place have come from the present worker, too.
    come: usize,
    // Number of workers before the present one.
    life: u32,
    // Printed bytes that were shown, and those that the present worker has printed.
    shown: u64,
    printed: u64,
    // Digests of the notices that were passed on.
    notices: FxHashSet<u128>,
    // What was given before the cut of a checkpoint that is not whole yet.
    before: Option<Box<Given>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    status: i32,
    digest: Option<u128>,
    // The last worker that has given it.
    life: u32,
}

impl Given {
    /// Handles an item. `status`: of a command. `digest`: of the bytes that a command has read. `next`: the number of the
    /// next command, which may depend on the item.
    pub fn handle(&mut self, item: Item, status: i32, digest: Option<u128>, next: u64) -> Gives {
        let life = self.life;
        let gives = match self.items.get_mut(&item) {
            None => {
                let known = Known {
                    status,
                    digest,
                    life,
                };
                self.items.insert(item, known);
                self.order.push((next, item));
                Gives::First
            }
            Some(known) if known.status != status || known.digest != digest => Gives::Different,
            Some(known) => {
                known.life = life;
                Gives::Again
            }
        };
        let has_come = |(_, item): &(u64, Item)| self.items[item].life == life;
        while self.order.get(self.come).is_some_and(has_come) {
            self.come += 1;
        }
        gives
    }

    /// Whether the present worker has given this item.
    #[must_use]
    pub fn has_come(&self, item: Item) -> bool {
        let known = self.items.get(&item);
        known.is_some_and(|known| known.life == self.life)
    }

    /// The status of an item that was given; `None` if it was not given since the last checkpoint.
    #[must_use]
    pub fn status(&self, item: Item) -> Option<i32> {
        self.items.get(&item).map(|known| known.status)
    }

    /// Commands below this number may be executed again now.
    ///
    /// No end comes only with a later command: the worker reports those of a batch's commands without events at the latest
    /// when the batch is over, and what is sent again is a batch.
    #[must_use]
    pub fn allowed(&self) -> u64 {
        self.order
            .get(self.come)
            .map_or(u64::MAX, |(next, _)| *next)
    }

    /// Returns the part of a printed text that was not shown.
    pub fn handle_text(&mut self, mut text: Bytes) -> Option<Bytes> {
        let begin = self.printed;
        self.printed += text.len() as u64;
        let old = self.shown.saturating_sub(begin).min(text.len() as u64);
        self.shown = self.shown.max(self.printed);
        // Not longer than the text.
        let new = text.split_off(old as usize);
        (!new.is_empty()).then_some(new)
    }

    /// Whether no notice with these contents was passed on.
    pub fn is_new_notice(&mut self, notice: &Notice) -> bool {
        let digest = XxHash3_128::oneshot(&notice.encode_to_vec());
        self.notices.insert(digest)
    }

    /// Handles that a checkpoint is copied, which is not whole yet: keeps apart what was given before it.
    /// [`Given::cut_at_mark`] or [`Given::forget_mark`] must follow.
    pub fn mark(&mut self) {
        self.forget_mark();
        let life = self.life;
        let before = std::mem::replace(
            self,
            Given {
                life,
                ..Given::default()
            },
        );
        self.before = Some(Box::new(before));
    }

    /// Handles that the marked checkpoint is whole: nothing before it comes again.
    pub fn cut_at_mark(&mut self) {
        self.before = None;
    }

    /// Handles that the marked checkpoint does not become whole. What was given before it counts again.
    pub fn forget_mark(&mut self) {
        let Some(before) = self.before.take() else {
            return;
        };
        let behind = std::mem::replace(self, *before);
        if self.come == self.order.len() {
            self.come += behind.come;
        }
        self.items.extend(behind.items);
        self.order.extend(behind.order);
        self.shown += behind.shown;
        self.printed += behind.printed;
        self.notices.extend(behind.notices);
    }

    /// Handles that another worker executes everything again.
    pub fn begin_again(&mut self) {
        self.forget_mark();
        self.life += 1;
        self.come = 0;
        self.printed = 0;
    }

    /// Handles a checkpoint: nothing before it comes again.
    pub fn cut(&mut self) {
        self.items.clear();
        self.order.clear();
        self.come = 0;
        (self.shown, self.printed) = (0, 0);
        self.notices.clear();
        self.before = None;
    }

    /// Number of bytes that this takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let before = self.before.as_ref().map_or(0, |before| before.bytes());
        before + self.order.len() * ITEM
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_comes_again_is_not_given_and_what_differs_is_told() {
        let mut given = Given::default();
        let end = Item::End(7);
        assert_eq!(given.handle(end, 0, Some(3), 5), Gives::First);
        given.begin_again();
        assert!(!given.has_come(end));
        assert_eq!(given.handle(end, 0, Some(3), 9), Gives::Again);
        assert!(given.has_come(end));
        given.begin_again();
        assert_eq!(given.handle(end, 0, Some(4), 9), Gives::Different);
        assert_eq!(given.handle(end, -5, Some(3), 9), Gives::Different);
        assert_eq!(given.handle(Item::Answer(7), 0, None, 9), Gives::First);
    }

    #[test]
    fn a_command_waits_for_what_was_given_before_it() {
        let mut given = Given::default();
        assert_eq!(given.allowed(), u64::MAX);
        for (event, next) in [(1, 3), (2, 3), (3, 8)] {
            given.handle(Item::End(event), 0, None, next);
            assert_eq!(given.allowed(), u64::MAX);
        }
        given.begin_again();
        assert_eq!(given.allowed(), 3);
        given.handle(Item::End(2), 0, None, 20);
        given.handle(Item::End(3), 0, None, 20);
        // New, and nothing depends on it before command 20.
        given.handle(Item::End(4), 0, None, 20);
        assert_eq!(given.allowed(), 3);
        given.handle(Item::End(1), 0, None, 20);
        assert_eq!(given.allowed(), u64::MAX);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Ends,
        Prints(usize),
        Marks,
        Cuts,
        Forgets,
        Dies,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Ends),
            2 => (1usize..5).prop_map(Step::Prints),
            1 => Just(Step::Marks),
            1 => Just(Step::Cuts),
            1 => Just(Step::Forgets),
            1 => Just(Step::Dies),
        ]
    }

    proptest! {
        // A mark that is forgotten changes nothing, and one that becomes a cut is like a cut at its place. After a death,
        // everything behind the last cut comes again, and nothing of it is given twice.
        #[test]
        fn a_mark_is_a_cut_or_nothing(steps in prop::collection::vec(step(), 0..60)) {
            let mut given = Given::default();
            // What was given behind the last cut, and where in it the mark is.
            let (mut ends, mut text): (Vec<u64>, usize) = (Vec::new(), 0);
            let (mut mark, mut next) = (None, 1);
            for step in steps {
                match step {
                    Step::Ends => {
                        let gives = given.handle(Item::End(next), 0, None, next + 1);
                        prop_assert_eq!(gives, Gives::First);
                        ends.push(next);
                        next += 1;
                    }
                    Step::Prints(length) => {
                        let shown = given.handle_text(Bytes::from(vec![7; length]));
                        prop_assert_eq!(shown.map_or(0, |of| of.len()), length);
                        text += length;
                    }
                    Step::Marks => {
                        given.mark();
                        mark = Some((ends.len(), text));
                    }
                    Step::Cuts => {
                        given.cut_at_mark();
                        if let Some((count, shown)) = mark.take() {
                            ends.drain(..count);
                            text -= shown;
                        }
                    }
                    Step::Forgets => {
                        given.forget_mark();
                        mark = None;
                    }
                    Step::Dies => {
                        given.begin_again();
                        mark = None;
                        let first = ends.first().map_or(u64::MAX, |end| end + 1);
                        prop_assert_eq!(given.allowed(), first);
                        for end in &ends {
                            prop_assert_eq!(given.handle(Item::End(*end), 0, None, next), Gives::Again);
                        }
                        prop_assert_eq!(given.handle_text(Bytes::from(vec![7; text])), None);
                        prop_assert_eq!(given.allowed(), u64::MAX);
                    }
                }
                prop_assert_eq!(given.bytes(), ends.len() * ITEM);
            }
        }

        // Workers print the same text in pieces of any size, and die anywhere: it is shown once.
        #[test]
        fn text_is_shown_once(lives in prop::collection::vec(prop::collection::vec(1usize..9, 0..9), 1..5)) {
            let text: Vec<u8> = (0..80).collect();
            let mut given = Given::default();
            let (mut shown, mut most) = (Vec::new(), 0);
            for pieces in lives {
                let mut at = 0;
                for piece in pieces {
                    let next = Bytes::copy_from_slice(&text[at..at + piece]);
                    at += piece;
                    shown.extend(given.handle_text(next).unwrap_or_default());
                }
                most = most.max(at);
                given.begin_again();
            }
            prop_assert_eq!(&shown[..], &text[..most]);
        }
    }
}
