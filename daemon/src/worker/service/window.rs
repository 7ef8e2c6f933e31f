//! The event frames that the client has not acknowledged, for a session that outlives its connections.
//!
//! This module has no sockets and no locks. A frame has a prefix with its length, as on the wire. Frames have
//! consecutive numbers from 1. Invariants: every frame with a number above the last acknowledged one is kept until
//! its acknowledgement, unchanged. Frames that are read again have consecutive numbers.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use causeway_proto::frame::PREFIX;

/// Size of the buffers that hold short frames, in bytes. Their memory is used again.
const SEGMENT: usize = 64 << 10;
/// Number of empty buffers that are kept.
const SPARE: usize = 8;

/// The kept frames.
#[derive(Debug, Default)]
pub struct Window {
    segments: VecDeque<Segment>,
    spare: Vec<Vec<u8>>,
    bytes: usize,
    /// Number of the last frame.
    last: u64,
    /// Number of the last frame that the client has handled, as far as the client has said.
    handled: u64,
    /// The last acknowledgement. A resumption may say more before the acknowledgements do.
    acknowledged: u64,
}

/// Consecutive frames in one buffer.
#[derive(Debug)]
struct Segment {
    first: u64,
    last: u64,
    frames: Vec<u8>,
}

/// The client names a batch that it cannot have, or takes back an acknowledgement.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadNumber {
    /// A batch that was not sent.
    #[error("the client has event batch {got}, but {last} is the last one that was sent")]
    Unsent {
        /// The number that the client named.
        got: u64,
        /// The number of the last batch.
        last: u64,
    },
    /// A batch before the one that was acknowledged last.
    #[error("the client acknowledged event batch {got} after {before}")]
    Decreased {
        /// The number that the client named.
        got: u64,
        /// The number that the client had named before.
        before: u64,
    },
}

impl Window {
    /// A window behind this frame, which the client has handled.
    pub fn behind(number: u64) -> Window {
        Window {
            last: number,
            handled: number,
            ..Window::default()
        }
    }

    /// Whether the client has handled all frames.
    pub fn is_heard(&self) -> bool {
        self.handled == self.last
    }

    /// Keeps whole frames, which follow the last kept one.
    pub fn keep(&mut self, frames: &[u8]) {
        let count = Frames(frames).count() as u64;
        if count == 0 {
            return;
        }
        self.bytes += frames.len();
        let first = self.last + 1;
        self.last += count;
        if let Some(segment) = self.segments.back_mut()
            && segment.frames.len() + frames.len() <= segment.frames.capacity()
        {
            segment.frames.extend_from_slice(frames);
            segment.last = self.last;
            return;
        }
        let spare = self.spare.pop();
        let spare = spare.filter(|spare| frames.len() <= spare.capacity());
        let mut buffer = spare.unwrap_or_else(|| Vec::with_capacity(frames.len().max(SEGMENT)));
        buffer.extend_from_slice(frames);
        self.segments.push_back(Segment {
            first,
            last: self.last,
            frames: buffer,
        });
    }

    /// Returns the number of the last frame.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Returns the number of kept bytes. Frames that share a buffer are forgotten together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Handles the client's acknowledgement of all frames up to `number`.
    ///
    /// # Errors
    /// [`BadNumber`]; nothing is forgotten then.
    pub fn acknowledge(&mut self, number: u64) -> Result<(), BadNumber> {
        let before = self.acknowledged;
        if number < before {
            return Err(BadNumber::Decreased {
                got: number,
                before,
            });
        }
        self.resume(number)?;
        self.acknowledged = number;
        Ok(())
    }

    /// Handles that a client with a new connection has all frames up to `number`. Returns the number of the first
    /// frame that the connection gets. An acknowledgement may have overtaken the client's word, so a smaller number
    /// is no error.
    ///
    /// # Errors
    /// [`BadNumber`]; nothing is forgotten then.
    pub fn resume(&mut self, number: u64) -> Result<u64, BadNumber> {
        if number > self.last {
            return Err(BadNumber::Unsent {
                got: number,
                last: self.last,
            });
        }
        self.handled = self.handled.max(number);
        while let Some(segment) = self.segments.pop_front() {
            if segment.last > self.handled {
                self.segments.push_front(segment);
                break;
            }
            self.bytes -= segment.frames.len();
            self.recycle(segment.frames);
        }
        Ok(self.handled + 1)
    }

    /// Appends frames from `number` on that the client has not handled to `into`, with at most `most` bytes or one
    /// frame. Returns the number of the frame that follows them.
    #[must_use]
    pub fn copy(&self, number: u64, most: usize, into: &mut Vec<u8>) -> u64 {
        let (begin, mut next) = (into.len(), number.max(self.handled + 1));
        for segment in self.segments.iter().filter(|of| of.last >= number) {
            let earlier = next.saturating_sub(segment.first);
            for frame in
                Frames(&segment.frames).skip(usize::try_from(earlier).unwrap_or(usize::MAX))
            {
                let taken = into.len() - begin;
                if taken > 0 && taken + frame.len() > most {
                    return next;
                }
                into.extend_from_slice(frame);
                next += 1;
            }
        }
        next
    }

    fn recycle(&mut self, mut buffer: Vec<u8>) {
        // Buffers of long frames are given back to the system.
        if buffer.capacity() <= SEGMENT && self.spare.len() < SPARE {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

/// Splits a buffer into its frames. Ends before a frame that is not whole.
pub struct Frames<'a>(pub &'a [u8]);

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (prefix, _) = self.0.split_first_chunk::<PREFIX>()?;
        let length = PREFIX + u32::from_le_bytes(*prefix) as usize;
        let (frame, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(number: u64, length: usize) -> Vec<u8> {
        let mut body = number.to_le_bytes().to_vec();
        body.resize(8 + length, 7);
        [&(body.len() as u32).to_le_bytes()[..], &body].concat()
    }

    fn number(frame: &[u8]) -> u64 {
        u64::from_le_bytes(frame[PREFIX..PREFIX + 8].try_into().unwrap())
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Frames of this length are sent together.
        Send(Vec<usize>),
        /// The client handles a part of what it has not handled, and acknowledges it.
        Acknowledge(f64),
        /// The connection breaks. The client has handled a part of what it has not, and acknowledges another part
        /// of the rest each time that it gets frames again.
        Resume(f64, f64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let length = prop_oneof![8 => 0..200usize, 1 => 60_000..70_000usize];
        prop_oneof![
            4 => prop::collection::vec(length, 1..6).prop_map(Step::Send),
            2 => (0.0..1.0).prop_map(Step::Acknowledge),
            1 => (0.0..1.0, 0.0..=1.0).prop_map(|(of, late)| Step::Resume(of, late)),
        ]
    }

    proptest! {
        #[test]
        fn a_client_gets_every_frame_in_order_over_any_connections(
            steps in prop::collection::vec(step(), 1..60), most in 1..100_000usize,
        ) {
            let mut window = Window::default();
            let (mut sent, mut handled) = (0, 0);
            for step in steps {
                let reach = |handled: u64, part: f64| handled + ((sent - handled) as f64 * part) as u64;
                match step {
                    Step::Send(lengths) => {
                        let frames = lengths.iter().zip(sent + 1..).map(|(&length, n)| frame(n, length));
                        window.keep(&frames.collect::<Vec<_>>().concat());
                        sent += lengths.len() as u64;
                    }
                    Step::Acknowledge(of) => {
                        handled = reach(handled, of);
                        prop_assert_eq!(window.acknowledge(handled), Ok(()));
                    }
                    Step::Resume(of, late) => {
                        handled = reach(handled, of);
                        let mut next = window.resume(handled).unwrap();
                        prop_assert_eq!(next, handled + 1);
                        while next <= sent {
                            let mut frames = Vec::new();
                            let after = window.copy(next, most, &mut frames);
                            let numbers: Vec<_> = Frames(&frames).map(number).collect();
                            let first = next.max(handled + 1);
                            prop_assert_eq!(numbers, (first..after).collect::<Vec<_>>());
                            prop_assert!(after <= first + 1 || frames.len() <= most);
                            prop_assert!(after > next);
                            next = after;
                            // The client also has frames of the connection before, and says so late.
                            handled = reach(handled, late);
                            prop_assert_eq!(window.acknowledge(handled), Ok(()));
                        }
                    }
                }
                prop_assert_eq!(window.last(), sent);
                if handled == sent {
                    prop_assert_eq!(window.bytes(), 0);
                }
            }
        }

        #[test]
        fn numbers_that_cannot_be_are_refused(sent in 0..50u64, numbers in prop::collection::vec(0..60u64, 1..10)) {
            let mut window = Window::default();
            (1..=sent).for_each(|number| window.keep(&frame(number, 1)));
            let mut before = 0;
            for number in numbers {
                let is_right = number >= before && number <= sent;
                prop_assert_eq!(window.acknowledge(number).is_ok(), is_right);
                if is_right {
                    before = number;
                }
            }
            prop_assert!(window.resume(sent + 1).is_err());
            // The word of a client may be older than its acknowledgement.
            prop_assert_eq!(window.resume(0), Ok(before + 1));
        }
    }
}
