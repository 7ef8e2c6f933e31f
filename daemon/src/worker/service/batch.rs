//! Decodes command batches, with a limit that the decoder itself does not have.

use bytes::Buf;
use causeway_proto::command::{Command, CommandBatch};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};

/// Maximum number of commands in one batch. An empty command takes two bytes on the wire and some hundred
/// in memory. So a limit on a batch's bytes alone would let a client use a hundred times that memory.
const MAX_COMMANDS: usize = 1 << 18;
/// Field number of `CommandBatch.commands`.
const COMMANDS: u32 = 1;

/// Why bytes are not a batch that a Causeway client sends.
#[derive(Debug, thiserror::Error)]
pub enum BadBatch {
    /// The bytes are no protobuf message of this type.
    #[error("a batch of commands cannot be decoded: {0}")]
    Malformed(#[from] prost::DecodeError),
    /// The batch would take too much memory.
    #[error("a batch has more than {MAX_COMMANDS} commands")]
    TooMany,
}

/// Decodes a batch. Reuses the memory of `spare`, which is emptied, if it is large enough. Counts the
/// commands before it allocates memory for them.
///
/// # Errors
/// [`BadBatch`].
pub fn decode<B: Buf + Clone>(bytes: B, mut spare: Vec<Command>) -> Result<CommandBatch, BadBatch> {
    let mut rest = bytes.clone();
    let mut commands = 0;
    while rest.has_remaining() {
        let (field, wire) = decode_key(&mut rest)?;
        if field == COMMANDS && wire == WireType::LengthDelimited {
            commands += 1;
            if commands > MAX_COMMANDS {
                return Err(BadBatch::TooMany);
            }
        }
        skip_field(wire, field, &mut rest, DecodeContext::default())?;
    }
    // Room for all commands, so that the vector does not move them while it grows.
    spare.clear();
    spare.reserve_exact(commands);
    let mut batch = CommandBatch {
        commands: spare,
        ..CommandBatch::default()
    };
    batch.merge(bytes)?;
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::command::{CreateUserEvent, command::Kind};

    fn batch_of(commands: usize) -> Vec<Command> {
        let command = Command {
            kind: Some(Kind::CreateUserEvent(CreateUserEvent { event: 7 })),
        };
        vec![command; commands]
    }

    fn batch(commands: usize) -> Vec<u8> {
        CommandBatch {
            commands: batch_of(commands),
            first: 41,
            ..CommandBatch::default()
        }
        .encode_to_vec()
    }

    #[test]
    fn a_batch_comes_out_as_it_went_in() {
        let decoded = decode(&batch(3)[..], batch_of(7)).unwrap();
        assert_eq!((decoded.commands.len(), decoded.first), (3, 41));
        assert!(decode(&[][..], batch_of(7)).unwrap().commands.is_empty());
    }

    #[test]
    fn many_tiny_commands_are_refused_before_they_are_made() {
        let bytes = [0x0a, 0].repeat(MAX_COMMANDS + 1);
        assert!(matches!(
            decode(&bytes[..], Vec::new()),
            Err(BadBatch::TooMany)
        ));
        assert!(decode(&bytes[2..], Vec::new()).is_ok());
    }

    #[test]
    fn every_truncation_is_an_error_or_a_batch() {
        let bytes = batch(2);
        for end in 0..bytes.len() {
            let _ = decode(&bytes[..end], Vec::new());
        }
        assert!(decode(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f][..], Vec::new()).is_err());
    }
}
