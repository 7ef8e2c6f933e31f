//! The numbers of commands, of which a client may send some twice when it comes back.
//!
//! Invariant: no command is applied twice.
#![forbid(unsafe_code)]

use causeway_proto::command::CommandBatch;

/// Removes the commands of a batch that were applied before, so that it begins with `next` if it contains it.
pub fn skip_applied(batch: &mut CommandBatch, next: u64) {
    let applied = next.saturating_sub(batch.first);
    let applied =
        usize::try_from(applied).map_or(batch.commands.len(), |of| of.min(batch.commands.len()));
    batch.commands.drain(..applied);
    batch.first += applied as u64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::command::Command;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn commands_are_skipped_up_to_the_next_one(first in 1..50u64, count in 0..50u64, next in 1..100u64) {
            let mut batch = CommandBatch {
                first,
                commands: (0..count).map(|_| Command::default()).collect(),
                ..CommandBatch::default()
            };
            skip_applied(&mut batch, next);
            let numbers = batch.first..batch.first + batch.commands.len() as u64;
            let left = (first..first + count).filter(|number| *number >= next);
            prop_assert!(numbers.eq(left) || batch.commands.is_empty());
        }
    }
}
