//! The node's own OpenCL. The only module that knows cl3.

use causeway_proto::control::Platform;

/// What a probing worker found out.
#[derive(Debug, Default)]
pub struct Probed {
    /// In the order that names them on the wire.
    pub platforms: Vec<Platform>,
    /// What is wrong with the node's OpenCL, for people.
    pub problems: Vec<String>,
}

/// Asks every platform and device everything a client may be asked. Blocks, may crash with the driver:
/// called in a process of its own.
#[must_use]
pub fn probe() -> Probed {
    Probed {
        platforms: Vec::new(),
        problems: vec!["this build knows no OpenCL runtime".to_owned()],
    }
}
