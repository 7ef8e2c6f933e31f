//! Divides what a client has to learn into batches that a frame can carry.
//!
//! Pure. Invariant: the client handles the same things in the same order as in one batch: texts, notices, completions, states
//! of links, answers, and then what concerns the session.
#![forbid(unsafe_code)]

use causeway_proto::command::EventBatch;
use causeway_proto::limits::{INLINE_PAYLOAD, MAX_BATCH};
use prost::Message;

/// Maximum bytes of completions and answers in a batch, unless one answer is larger. An answer may have half of [`MAX_BATCH`].
const ENOUGH: usize = MAX_BATCH / 4;
/// Number of completions that never have more bytes than [`ENOUGH`].
const FEW: usize = ENOUGH / (2 * INLINE_PAYLOAD);

/// The batches into which one batch is divided.
pub(super) struct Pieces(Option<EventBatch>);

impl Pieces {
    pub(super) fn of(batch: EventBatch) -> Pieces {
        Pieces(Some(batch))
    }
}

impl Iterator for Pieces {
    type Item = EventBatch;

    fn next(&mut self) -> Option<EventBatch> {
        let rest = self.0.as_mut()?;
        if rest.completions.len() <= FEW && rest.answers.len() <= 1 {
            return self.0.take();
        }
        let mut bytes = 0;
        let completions = fitting(&rest.completions, &mut bytes);
        let answers = match completions == rest.completions.len() {
            true => fitting(&rest.answers, &mut bytes),
            false => 0,
        };
        if answers == rest.answers.len() && completions == rest.completions.len() {
            return self.0.take();
        }
        let mut piece = EventBatch {
            printed: std::mem::take(&mut rest.printed),
            notices: std::mem::take(&mut rest.notices),
            completions: rest.completions.drain(..completions).collect(),
            applied: rest.applied,
            ..EventBatch::default()
        };
        if rest.completions.is_empty() {
            piece.links = std::mem::take(&mut rest.links);
            piece.answers = rest.answers.drain(..answers).collect();
        }
        Some(piece)
    }
}

// Number of the first messages that fit: at least one if nothing has been taken.
fn fitting(messages: &[impl Message], bytes: &mut usize) -> usize {
    let fits = |message: &&_| {
        let length = Message::encoded_len(*message);
        let fits = *bytes == 0 || *bytes + length <= ENOUGH;
        *bytes += length;
        fits
    };
    messages.iter().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use causeway_proto::command::{Answer, Completion, Notice, answer};
    use proptest::prelude::*;

    fn completion(event: u64, length: usize) -> Completion {
        Completion {
            event,
            contents: Bytes::from(vec![1; length]),
            ..Completion::default()
        }
    }

    #[test]
    fn a_usual_batch_is_one_piece() {
        let batch = EventBatch {
            completions: (0..FEW as u64).map(|event| completion(event, 4)).collect(),
            ..EventBatch::default()
        };
        assert_eq!(Pieces::of(batch.clone()).collect::<Vec<_>>(), [batch]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn pieces_are_small_and_together_the_whole(
            lengths in proptest::collection::vec(0..INLINE_PAYLOAD, 0..3000),
            answers in proptest::collection::vec(0..MAX_BATCH / 2, 0..3),
        ) {
            let answers = answers.into_iter().zip(1..).map(|(length, request)| Answer {
                request,
                body: Some(answer::Body::Value(Bytes::from(vec![2; length]))),
                ..Answer::default()
            });
            let whole = EventBatch {
                completions: lengths.iter().zip(1..).map(|(length, event)| completion(event, *length)).collect(),
                answers: answers.collect(),
                notices: vec![Notice::default()],
                printed: vec![Bytes::from_static(b"hello")],
                applied: 7,
                close_reason: "the end".to_owned(),
                ..EventBatch::default()
            };
            let mut joined = EventBatch { applied: 7, ..EventBatch::default() };
            let pieces: Vec<_> = Pieces::of(whole.clone()).collect();
            for (at, piece) in pieces.iter().enumerate() {
                prop_assert!(piece.encoded_len() <= MAX_BATCH);
                prop_assert_eq!(piece.applied, 7);
                // Nothing that is handled before the completions comes behind any, and nothing behind them before one.
                prop_assert!(at == 0 || piece.printed.is_empty() && piece.notices.is_empty());
                prop_assert!(at + 1 == pieces.len() || piece.close_reason.is_empty());
                prop_assert!(joined.answers.is_empty() || piece.completions.is_empty());
                joined.printed.extend(piece.printed.clone());
                joined.notices.extend(piece.notices.clone());
                joined.completions.extend(piece.completions.clone());
                joined.answers.extend(piece.answers.clone());
                joined.close_reason.push_str(&piece.close_reason);
            }
            prop_assert_eq!(joined, whole);
        }
    }
}
