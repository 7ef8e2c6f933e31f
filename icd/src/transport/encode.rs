//! What can be put into the outgoing buffer: a command that knows its encoded length.

use causeway_proto::command::{Command, command::Kind};
use prost::Message;

/// A command as protobuf: the body of one `Command` message, without tag and length.
///
/// Implemented for the generated types; the hot paths may implement it on borrowed data to save the
/// allocations of a generated message.
pub trait EncodeCommand {
    /// Exactly the bytes that [`EncodeCommand::encode`] appends.
    fn encoded_len(&self) -> usize;
    /// Appends the bytes.
    fn encode(&self, out: &mut Vec<u8>);
}

impl EncodeCommand for Kind {
    fn encoded_len(&self) -> usize {
        Kind::encoded_len(self)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        Kind::encode(self, out);
    }
}

impl EncodeCommand for Command {
    fn encoded_len(&self) -> usize {
        Message::encoded_len(self)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        Message::encode_raw(self, out);
    }
}
