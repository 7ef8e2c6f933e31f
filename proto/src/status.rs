//! The one table from anything that can go wrong on the wire to an OpenCL code.

/// An OpenCL status: 0 or a negative code, as the application sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub i32);

impl Status {
    /// `CL_SUCCESS`.
    pub const SUCCESS: Status = Status(0);
    /// `CL_DEVICE_NOT_AVAILABLE`: the node or its worker is gone.
    pub const DEVICE_NOT_AVAILABLE: Status = Status(-2);
    /// `CL_OUT_OF_RESOURCES`.
    pub const OUT_OF_RESOURCES: Status = Status(-5);
    /// `CL_OUT_OF_HOST_MEMORY`.
    pub const OUT_OF_HOST_MEMORY: Status = Status(-6);
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST`: something waited for has failed.
    pub const WAIT_LIST_FAILED: Status = Status(-14);
    /// `CL_INVALID_OPERATION`.
    pub const INVALID_OPERATION: Status = Status(-59);

    /// Whether it is a failure.
    #[must_use]
    pub fn is_error(self) -> bool {
        self.0 < 0
    }
}

/// What can go wrong between client and node, as the client tells the application.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Nobody answered at the address.
    #[error("{address} cannot be reached: {reason}")]
    Unreachable {
        /// Where.
        address: String,
        /// What the system said.
        reason: String,
    },
    /// It was not tried: a file of certificates or a token that the configuration names cannot be used.
    #[error("{reason}; {address} was not tried")]
    Credentials {
        /// Where it would have been.
        address: String,
        /// Which file, and why.
        reason: String,
    },
    /// The peer speaks, but not our protocol or version.
    #[error("{address} does not speak as a Causeway node should: {reason}")]
    Protocol {
        /// Where.
        address: String,
        /// What was wrong.
        reason: String,
    },
    /// The peer closed the connection before it answered: it has too much to do, or is just ending.
    #[error(
        "{address} closed the connection before it answered: {reason}; it is busy, or it is no Causeway node"
    )]
    Closed {
        /// Where.
        address: String,
        /// In which step.
        reason: String,
    },
    /// The node refused the session.
    #[error("{address} refused the session: {reason}")]
    Refused {
        /// Where.
        address: String,
        /// Why.
        reason: String,
    },
    /// The session existed and is gone.
    #[error("the session on {address} is lost: {reason}")]
    Lost {
        /// Where.
        address: String,
        /// Why.
        reason: String,
    },
    /// The process is a fork of the one that opened the session.
    #[error("a session does not survive fork()")]
    Forked,
    /// A command is larger than a batch may be.
    #[error("a command of {0} bytes is larger than the wire takes")]
    TooLarge(usize),
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Status {
        error.status()
    }
}

impl WireError {
    /// The OpenCL code.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            WireError::Unreachable { .. }
            | WireError::Credentials { .. }
            | WireError::Protocol { .. }
            | WireError::Closed { .. }
            | WireError::Lost { .. } => Status::DEVICE_NOT_AVAILABLE,
            WireError::Refused { .. } | WireError::Forked => Status::OUT_OF_RESOURCES,
            WireError::TooLarge(_) => Status::OUT_OF_HOST_MEMORY,
        }
    }
}
