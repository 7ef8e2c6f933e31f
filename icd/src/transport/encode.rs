//! The trait of commands that can be put into the outgoing buffer.

use causeway_proto::command::{Command, command::Kind};
use prost::Message;

/// A command as protobuf: the body of one `Command` message, without tag and length.
///
/// Implemented for the generated types. Hot paths may implement it on borrowed data to save the
/// allocations of a generated message.
pub trait EncodeCommand {
    /// The exact number of bytes that [`EncodeCommand::encode`] appends.
    fn encoded_len(&self) -> usize;
    /// Appends the encoded command.
    fn encode(&self, out: &mut Vec<u8>);
    /// The command, if it may belong into the session's record. An enqueue never does.
    fn for_record(&self) -> Option<&Kind> {
        None
    }
}

impl EncodeCommand for Kind {
    fn encoded_len(&self) -> usize {
        Kind::encoded_len(self)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        Kind::encode(self, out);
    }

    fn for_record(&self) -> Option<&Kind> {
        Some(self)
    }
}

impl EncodeCommand for Command {
    fn encoded_len(&self) -> usize {
        Message::encoded_len(self)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        Message::encode_raw(self, out);
    }

    fn for_record(&self) -> Option<&Kind> {
        self.kind.as_ref()
    }
}
