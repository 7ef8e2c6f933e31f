//! Arithmetic of a ring's positions. Pure.
//!
//! Positions count bytes since the beginning and wrap with `u64`. The sender owns `head`, the receiver
//! `tail`. Each side reads the other's position from shared memory and checks it before use. Invariant: a
//! [`Span`] lies within the ring. If the other side follows the protocol, only one side accesses a span
//! at a time.
#![forbid(unsafe_code)]

/// Size of a ring: small enough to stay in a processor's own cache.
pub(crate) const CAPACITY: usize = 2 << 20;

/// Maximum number of bytes copied before the other side is told, so that it never waits long.
const LONGEST: usize = 64 << 10;

/// Minimum number of bytes that a sender copies at a time if it has more, so that the other side starts
/// early.
pub(crate) const SHORTEST: usize = 32 << 10;

/// A contiguous part of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

/// The other side's position is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other process wrote invalid positions {head} and {tail} into a shared ring")]
pub(crate) struct Impossible {
    head: u64,
    tail: u64,
}

/// The span where a sender may put bytes now, at most `most`. Empty when the ring is full.
pub(crate) fn room(head: u64, tail: u64, most: usize) -> Result<Span, Impossible> {
    let used = used(head, tail)?;
    Ok(span(head, CAPACITY - used, most))
}

/// The span where a receiver finds bytes now, at most `most`. Empty when the ring is empty.
pub(crate) fn content(head: u64, tail: u64, most: usize) -> Result<Span, Impossible> {
    let used = used(head, tail)?;
    Ok(span(tail, used, most))
}

/// Number of bytes that a sender copies in the step after one of `last` bytes. Steps grow, so that the
/// first bytes arrive early and the rest costs little.
pub(crate) fn next_step(last: usize) -> usize {
    (last * 2).clamp(SHORTEST, LONGEST)
}

fn used(head: u64, tail: u64) -> Result<usize, Impossible> {
    usize::try_from(head.wrapping_sub(tail))
        .ok()
        .filter(|used| *used <= CAPACITY)
        .ok_or(Impossible { head, tail })
}

fn span(position: u64, there: usize, most: usize) -> Span {
    // The capacity is a power of two, so the offset stays right when positions wrap.
    let offset = (position % CAPACITY as u64) as usize;
    let length = there.min(most).min(LONGEST).min(CAPACITY - offset);
    Span { offset, length }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const _: () = assert!(CAPACITY.is_power_of_two() && LONGEST <= CAPACITY);

    proptest! {
        // Each case moves megabytes, byte by byte.
        #![proptest_config(ProptestConfig::with_cases(8))]

        #[test]
        fn what_goes_in_comes_out_in_order(
            start: u64,
            // Most steps send, so that the ring becomes full.
            steps in proptest::collection::vec(
                (proptest::bool::weighted(0.8), 1usize..2 * LONGEST), 1..120,
            ),
        ) {
            let mut ring = vec![0u8; CAPACITY];
            let (mut head, mut tail) = (start, start);
            let mut inside = VecDeque::new();
            let mut next = 0u8;
            for (sends, most) in steps {
                if sends {
                    let span = room(head, tail, most).unwrap();
                    prop_assert!(span.offset + span.length <= CAPACITY);
                    prop_assert_eq!(span.length == 0, inside.len() == CAPACITY);
                    for byte in &mut ring[span.offset..span.offset + span.length] {
                        *byte = next;
                        inside.push_back(next);
                        next = next.wrapping_mul(5).wrapping_add(3);
                    }
                    head = head.wrapping_add(span.length as u64);
                } else {
                    let span = content(head, tail, most).unwrap();
                    prop_assert_eq!(span.length == 0, inside.is_empty());
                    for byte in &ring[span.offset..span.offset + span.length] {
                        prop_assert_eq!(Some(*byte), inside.pop_front());
                    }
                    tail = tail.wrapping_add(span.length as u64);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_the_other_side_writes_no_span_leaves_the_ring(own: u64, theirs: u64, most: usize) {
            for span in [room(own, theirs, most), content(theirs, own, most)].into_iter().flatten() {
                prop_assert!(span.offset + span.length <= CAPACITY && span.length <= most);
            }
        }
    }

    #[test]
    fn impossible_positions_are_refused() {
        assert!(room(5, 6, 1).is_err());
        assert!(content(CAPACITY as u64 + 1, 0, 1).is_err());
        assert_eq!(room(CAPACITY as u64, 0, 1).unwrap().length, 0);
        assert_eq!(content(7, 7, 1).unwrap().length, 0);
    }

    #[test]
    fn steps_grow_to_a_bound() {
        let steps: Vec<_> =
            std::iter::successors(Some(next_step(0)), |last| Some(next_step(*last)))
                .take(3)
                .collect();
        assert_eq!(steps, [32 << 10, 64 << 10, 64 << 10]);
    }
}
