//! How a client violates the protocol. Each violation ends its session.
#![forbid(unsafe_code)]

use super::graph;

/// Number of objects beyond the limit that a client may name. The node does not make these;
/// they are kept as failed.
pub(super) const BROKEN: usize = 1 << 20;

/// The client violated the protocol; its session ends.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// A command's number is not its predecessor's plus one.
    #[error("the client sent command {got}, but command {expected} was expected")]
    Gap {
        /// The expected number.
        expected: u64,
        /// The received number.
        got: u64,
    },
    /// The client named an object or event that does not exist.
    #[error("the client named {0}, which does not exist")]
    Unknown(String),
    /// The id of a new object is in use.
    #[error("the client created {0}, which exists already")]
    Taken(String),
    /// The client made far more objects than a session may have.
    #[error(
        "the session has far more objects than the {BROKEN} beyond its limit that are kept as failed; \
         release them, or raise `[sessions] objects` on the node"
    )]
    TooMany,
    /// The node could not put the session together again. This is no fault of the client.
    #[error("{0}")]
    NotRestored(String),
    /// A message that no Causeway client sends.
    #[error("{0}")]
    Malformed(&'static str),
}

impl From<graph::GraphError> for Violation {
    fn from(unknown: graph::GraphError) -> Violation {
        match unknown {
            graph::GraphError::Event(id) => Violation::Unknown(format!("{id:?}")),
            graph::GraphError::Queue(id) => Violation::Unknown(format!("{id:?}")),
            graph::GraphError::Taken(id) => Violation::Taken(format!("{id:?}")),
        }
    }
}
