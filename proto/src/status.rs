//! The only table that converts errors of the wire to OpenCL codes.

use std::net::SocketAddr;

/// An OpenCL status as the application sees it: 0 or a negative code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub i32);

impl Status {
    /// `CL_SUCCESS`.
    pub const SUCCESS: Status = Status(0);
    /// `CL_DEVICE_NOT_AVAILABLE`: the node or its worker is gone.
    pub const DEVICE_NOT_AVAILABLE: Status = Status(-2);
    /// `CL_MEM_OBJECT_ALLOCATION_FAILURE`.
    pub const MEM_ALLOCATION_FAILURE: Status = Status(-4);
    /// `CL_OUT_OF_RESOURCES`.
    pub const OUT_OF_RESOURCES: Status = Status(-5);
    /// `CL_OUT_OF_HOST_MEMORY`.
    pub const OUT_OF_HOST_MEMORY: Status = Status(-6);
    /// `CL_IMAGE_FORMAT_NOT_SUPPORTED`.
    pub const IMAGE_FORMAT_NOT_SUPPORTED: Status = Status(-10);
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST`: an event in the wait list has failed.
    pub const WAIT_LIST_FAILED: Status = Status(-14);
    /// `CL_DEVICE_PARTITION_FAILED`.
    pub const DEVICE_PARTITION_FAILED: Status = Status(-18);
    /// `CL_INVALID_VALUE`.
    pub const INVALID_VALUE: Status = Status(-30);
    /// `CL_INVALID_DEVICE`.
    pub const INVALID_DEVICE: Status = Status(-33);
    /// `CL_INVALID_IMAGE_SIZE`.
    pub const INVALID_IMAGE_SIZE: Status = Status(-40);
    /// `CL_INVALID_BUILD_OPTIONS`.
    pub const INVALID_BUILD_OPTIONS: Status = Status(-43);
    /// `CL_INVALID_PROGRAM`.
    pub const INVALID_PROGRAM: Status = Status(-44);
    /// `CL_INVALID_PROGRAM_EXECUTABLE`.
    pub const INVALID_PROGRAM_EXECUTABLE: Status = Status(-45);
    /// `CL_INVALID_KERNEL_NAME`.
    pub const INVALID_KERNEL_NAME: Status = Status(-46);
    /// `CL_INVALID_KERNEL_ARGS`.
    pub const INVALID_KERNEL_ARGS: Status = Status(-52);
    /// `CL_INVALID_OPERATION`.
    pub const INVALID_OPERATION: Status = Status(-59);
    /// `CL_INVALID_GLOBAL_WORK_SIZE`.
    pub const INVALID_GLOBAL_WORK_SIZE: Status = Status(-63);
    /// `CL_INVALID_IMAGE_DESCRIPTOR`.
    pub const INVALID_IMAGE_DESCRIPTOR: Status = Status(-65);

    /// Whether the status is an error.
    #[must_use]
    pub fn is_error(self) -> bool {
        self.0 < 0
    }

    /// The specification's name of an error code.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        let found = NAMES.iter().find(|(code, _)| *code == self.0);
        found.map(|(_, name)| *name)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "code {}, a driver's own", self.0),
        }
    }
}

/// The error codes of `CL/cl.h`.
const NAMES: [(i32, &str); 62] = [
    (-1, "CL_DEVICE_NOT_FOUND"),
    (-2, "CL_DEVICE_NOT_AVAILABLE"),
    (-3, "CL_COMPILER_NOT_AVAILABLE"),
    (-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"),
    (-5, "CL_OUT_OF_RESOURCES"),
    (-6, "CL_OUT_OF_HOST_MEMORY"),
    (-7, "CL_PROFILING_INFO_NOT_AVAILABLE"),
    (-8, "CL_MEM_COPY_OVERLAP"),
    (-9, "CL_IMAGE_FORMAT_MISMATCH"),
    (-10, "CL_IMAGE_FORMAT_NOT_SUPPORTED"),
    (-11, "CL_BUILD_PROGRAM_FAILURE"),
    (-12, "CL_MAP_FAILURE"),
    (-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET"),
    (-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"),
    (-15, "CL_COMPILE_PROGRAM_FAILURE"),
    (-16, "CL_LINKER_NOT_AVAILABLE"),
    (-17, "CL_LINK_PROGRAM_FAILURE"),
    (-18, "CL_DEVICE_PARTITION_FAILED"),
    (-19, "CL_KERNEL_ARG_INFO_NOT_AVAILABLE"),
    (-30, "CL_INVALID_VALUE"),
    (-31, "CL_INVALID_DEVICE_TYPE"),
    (-32, "CL_INVALID_PLATFORM"),
    (-33, "CL_INVALID_DEVICE"),
    (-34, "CL_INVALID_CONTEXT"),
    (-35, "CL_INVALID_QUEUE_PROPERTIES"),
    (-36, "CL_INVALID_COMMAND_QUEUE"),
    (-37, "CL_INVALID_HOST_PTR"),
    (-38, "CL_INVALID_MEM_OBJECT"),
    (-39, "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR"),
    (-40, "CL_INVALID_IMAGE_SIZE"),
    (-41, "CL_INVALID_SAMPLER"),
    (-42, "CL_INVALID_BINARY"),
    (-43, "CL_INVALID_BUILD_OPTIONS"),
    (-44, "CL_INVALID_PROGRAM"),
    (-45, "CL_INVALID_PROGRAM_EXECUTABLE"),
    (-46, "CL_INVALID_KERNEL_NAME"),
    (-47, "CL_INVALID_KERNEL_DEFINITION"),
    (-48, "CL_INVALID_KERNEL"),
    (-49, "CL_INVALID_ARG_INDEX"),
    (-50, "CL_INVALID_ARG_VALUE"),
    (-51, "CL_INVALID_ARG_SIZE"),
    (-52, "CL_INVALID_KERNEL_ARGS"),
    (-53, "CL_INVALID_WORK_DIMENSION"),
    (-54, "CL_INVALID_WORK_GROUP_SIZE"),
    (-55, "CL_INVALID_WORK_ITEM_SIZE"),
    (-56, "CL_INVALID_GLOBAL_OFFSET"),
    (-57, "CL_INVALID_EVENT_WAIT_LIST"),
    (-58, "CL_INVALID_EVENT"),
    (-59, "CL_INVALID_OPERATION"),
    (-60, "CL_INVALID_GL_OBJECT"),
    (-61, "CL_INVALID_BUFFER_SIZE"),
    (-62, "CL_INVALID_MIP_LEVEL"),
    (-63, "CL_INVALID_GLOBAL_WORK_SIZE"),
    (-64, "CL_INVALID_PROPERTY"),
    (-65, "CL_INVALID_IMAGE_DESCRIPTOR"),
    (-66, "CL_INVALID_COMPILER_OPTIONS"),
    (-67, "CL_INVALID_LINKER_OPTIONS"),
    (-68, "CL_INVALID_DEVICE_PARTITION_COUNT"),
    (-69, "CL_INVALID_PIPE_SIZE"),
    (-70, "CL_INVALID_DEVICE_QUEUE"),
    (-71, "CL_INVALID_SPEC_ID"),
    (-72, "CL_MAX_SIZE_RESTRICTION_EXCEEDED"),
];

/// The cause of a TLS error, as far as the causes have different cures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFault {
    /// Another CA than the configured one has signed the peer's certificate.
    OtherCa,
    /// The peer's certificate is for another name.
    OtherName,
    /// The peer's certificate has expired or is not valid yet.
    OtherTime,
    /// The peer reports that the certificate of this side has expired.
    OwnExpired,
    /// The peer requires a certificate, and this side has shown none.
    OwnMissing,
    /// The peer does not accept the certificate of this side, for example because another CA has signed it.
    OwnRefused,
    /// The peer does not use TLS.
    Missing,
    /// Any other cause.
    Other,
}

/// Errors between client and node, as the client reports them to the application.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The address did not answer.
    #[error("{address} cannot be reached: {reason}")]
    Unreachable {
        /// The address of the node.
        address: String,
        /// The system's reason.
        reason: String,
    },
    /// The client did not connect, because a certificate or token file of its configuration cannot be
    /// used.
    #[error("{reason}; {address} was not contacted")]
    Credentials {
        /// The address of the node.
        address: String,
        /// The file, and the problem with it.
        reason: String,
    },
    /// The peer answers, but with another protocol or version.
    #[error("{address} violated Causeway's protocol: {reason}")]
    Protocol {
        /// The address of the node.
        address: String,
        /// The violation.
        reason: String,
    },
    /// TLS with the peer has failed.
    #[error("no secure connection to {address}: {reason}")]
    Tls {
        /// The address of the node.
        address: String,
        /// The cause.
        fault: TlsFault,
        /// The cause, as a text.
        reason: String,
    },
    /// The peer closed the connection before it answered: it is overloaded, or shutting down.
    #[error(
        "{address} closed the connection before it answered: {reason}; {}",
        cause_of_close(address)
    )]
    Closed {
        /// The address of the node.
        address: String,
        /// The step at which the connection was closed.
        reason: String,
    },
    /// The node refused the request.
    #[error("{address} refused the request: {reason}")]
    Refused {
        /// The address of the node.
        address: String,
        /// The node's reason.
        reason: String,
    },
    /// The node refused the request, because the caller has no valid token or certificate.
    #[error("{address} refused the request: {reason}")]
    Unauthenticated {
        /// The address of the node.
        address: String,
        /// The node's reason.
        reason: String,
    },
    /// Device managers answer, but none of them leads. Another one may lead soon.
    #[error("no device manager at {address} leads: {reason}")]
    NotLeading {
        /// The addresses of the managers, separated by commas.
        address: String,
        /// The managers' reasons.
        reason: String,
    },
    /// The session was open and is lost.
    #[error("the session on {address} is lost: {reason}")]
    Lost {
        /// The address of the node.
        address: String,
        /// The reason of the loss.
        reason: String,
    },
    /// The session was open, and the node has ended it and given the reason.
    #[error("the session on {address} is lost: {reason}")]
    Ended {
        /// The address of the node.
        address: String,
        /// The node's reason.
        reason: String,
    },
    /// The session was open, and the program has disconnected the server.
    #[error("the session on {address} is lost: the program has disconnected the server")]
    Disconnected {
        /// The address of the node.
        address: String,
    },
    /// The process is a fork of the one that opened the session.
    #[error("a session does not survive fork()")]
    Forked,
    /// A command is larger than a batch may be.
    #[error("a command of {0} bytes exceeds the limit of a batch")]
    TooLarge(usize),
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Status {
        error.status()
    }
}

/// Why the peer at `address` may have closed a connection, and what helps.
fn cause_of_close(address: &str) -> &'static str {
    let is_loopback = match address.parse::<SocketAddr>() {
        Ok(address) => address.ip().is_loopback(),
        Err(_) => address.split(':').next() == Some("localhost"),
    };
    match is_loopback {
        // A tunnel accepts each connection, also if nothing listens at its far end.
        true => {
            "if this is the port of a tunnel, start causewayd at its far end; otherwise the peer is overloaded, or it is not \
             a Causeway server"
        }
        false => "the peer is overloaded, or it is not a Causeway server",
    }
}

impl WireError {
    /// The OpenCL code for the error.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            WireError::Unreachable { .. }
            | WireError::NotLeading { .. }
            | WireError::Credentials { .. }
            | WireError::Protocol { .. }
            | WireError::Tls { .. }
            | WireError::Closed { .. }
            | WireError::Lost { .. }
            | WireError::Ended { .. }
            | WireError::Disconnected { .. } => Status::DEVICE_NOT_AVAILABLE,
            WireError::Refused { .. } | WireError::Unauthenticated { .. } | WireError::Forked => {
                Status::OUT_OF_RESOURCES
            }
            WireError::TooLarge(_) => Status::OUT_OF_HOST_MEMORY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_a_tunnel_may_have_closed_is_explained_so() {
        let text = |address: &str| {
            let (address, reason) = (address.to_owned(), "reset".to_owned());
            WireError::Closed { address, reason }.to_string()
        };
        for tunnel in [
            "127.0.0.1:7420",
            "[::1]:7420",
            "localhost:7420",
            "localhost",
        ] {
            let begins = "closed the connection before it answered: reset; if this is the port of a tunnel, ";
            assert!(text(tunnel).contains(begins), "{tunnel}");
        }
        for node in ["10.0.0.1:7079", "gpu-box:7079", "localhosts:1"] {
            assert!(!text(node).contains("tunnel"), "{node}");
        }
    }

    #[test]
    fn a_code_is_shown_with_its_name() {
        assert_eq!(Status(-5).to_string(), "CL_OUT_OF_RESOURCES (-5)");
        assert_eq!(
            Status(-72).to_string(),
            "CL_MAX_SIZE_RESTRICTION_EXCEEDED (-72)"
        );
        assert_eq!(Status(-9999).to_string(), "code -9999, a driver's own");
    }
}
