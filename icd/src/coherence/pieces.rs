//! An interval map without gaps: every byte of a buffer has exactly one state.
//!
//! The crate `rangemap` replaces values, where a directory changes them in place, and supports gaps that
//! never exist here. Invariants: the pieces cover `0..size`. Neighbours that have been touched differ, so
//! a buffer that is treated as a whole is one piece.

use std::collections::BTreeMap;

use super::place::Span;

/// The interval map; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pieces<S> {
    // Keys are first bytes. A piece ends where the next one begins.
    starts: BTreeMap<u64, S>,
    size: u64,
}

impl<S: Clone + PartialEq> Pieces<S> {
    /// One piece of `size` bytes.
    pub(super) fn new(size: u64, state: S) -> Pieces<S> {
        Pieces {
            starts: BTreeMap::from([(0, state)]),
            size,
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// The pieces that touch `span`, clipped to it, in order.
    pub(super) fn within(&self, span: Span) -> impl Iterator<Item = (Span, &S)> {
        let end = span.end.min(self.size);
        let first = self.start_of(span.start);
        // An empty span past the end would invert the range, and `BTreeMap::range` panics on that.
        let mut rest = self.starts.range(first..end.max(first)).peekable();
        std::iter::from_fn(move || {
            let (&start, state) = rest.next()?;
            let next = rest.peek().map_or(end, |(next, _)| **next);
            Some((Span::new(start.max(span.start), next.min(end)), state))
        })
        .filter(|(piece, _)| !piece.is_empty())
    }

    /// Changes the state of every byte in `span`. `change` is called with each piece of it.
    pub(super) fn update(&mut self, span: Span, mut change: impl FnMut(Span, &mut S)) {
        let span = span.intersection(Span::new(0, self.size));
        if span.is_empty() {
            return;
        }
        self.split(span.start);
        self.split(span.end);
        let mut pieces = self.starts.range_mut(span.start..span.end).peekable();
        while let Some((&start, state)) = pieces.next() {
            let end = pieces.peek().map_or(span.end, |(next, _)| **next);
            change(Span::new(start, end), state);
        }
        self.merge(span);
    }

    fn start_of(&self, byte: u64) -> u64 {
        let found = self.starts.range(..=byte).next_back();
        found.map_or(0, |(start, _)| *start)
    }

    fn split(&mut self, at: u64) {
        if at == 0 || at >= self.size {
            return;
        }
        let Some((&start, state)) = self.starts.range(..=at).next_back() else {
            return;
        };
        if start != at {
            let state = state.clone();
            self.starts.insert(at, state);
        }
    }

    // Joins equal neighbours, from the piece before `span` to the one after it.
    fn merge(&mut self, span: Span) {
        if self.starts.len() == 1 {
            return;
        }
        let first = self.start_of(span.start.saturating_sub(1));
        let mut joined: Vec<u64> = Vec::new();
        let mut before: Option<&S> = None;
        for (&start, state) in self.starts.range(first..=span.end) {
            if before == Some(state) {
                joined.push(start);
            } else {
                before = Some(state);
            }
        }
        for start in joined {
            self.starts.remove(&start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_whole_update_is_one_piece() {
        let mut pieces = Pieces::new(10, 0);
        pieces.update(Span::new(2, 4), |_, s| *s = 1);
        assert_eq!(pieces.len(), 3);
        pieces.update(Span::new(0, 10), |_, s| *s = 2);
        assert_eq!(pieces.len(), 1);
    }

    proptest! {
        #[test]
        fn it_is_an_array_of_bytes(
            changes in prop::collection::vec((0u64..20, 0u64..24, 0u8..3), 0..20),
            asked in (0u64..22, 0u64..24),
        ) {
            let mut pieces = Pieces::new(20, 0u8);
            let mut bytes = [0u8; 20];
            for (start, end, value) in changes {
                pieces.update(Span::new(start, end), |_, s| *s = value);
                for byte in start..end.min(20) {
                    bytes[byte as usize] = value;
                }
            }
            let changed = bytes.windows(2).filter(|pair| pair[0] != pair[1]).count();
            prop_assert_eq!(pieces.len(), changed + 1);
            let mut at = asked.0;
            for (span, state) in pieces.within(Span::new(asked.0, asked.1)) {
                prop_assert_eq!(span.start, at);
                prop_assert!((span.start..span.end).all(|b| bytes[b as usize] == *state));
                at = span.end;
            }
            prop_assert!(at >= asked.1.min(20) || asked.0 >= asked.1);
        }
    }
}
