//! Where rows are measured: a stage starts the processes that a row needs, and measures a round at a time.
//!
//! - [`loopback`]: a daemon on loopback, over the node's driver or the fake one.
//! - [`growth`]: a daemon or two, and a program for each size of a row.
//! - [`fresh`]: a process for each sample.
//! - [`memory`]: a daemon and a program for each way of the bytes.
//! - [`links`]: hosts with links between them.
//! - [`experiments`]: experiments that have commands of their own.
//! - [`programs`]: a program's first work, with and without contexts that are there before.
//! - [`cost`]: daemons with and without TLS, a device manager, the sandbox.
//! - [`resume`]: a daemon behind a forwarder that breaks connections.
//!
//! Invariant: within a round the sides of a row are measured in turn, never at the same time.
#![forbid(unsafe_code)]

mod cost;
mod experiments;
mod fresh;
mod growth;
mod links;
mod loopback;
mod memory;
mod programs;
mod resume;
mod side;

use crate::options::Options;
use crate::report::{Line, Trouble};
use crate::rows::RowPlace;

/// Why a row cannot be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// This machine or device cannot do it.
    #[error("{0}")]
    Unavailable(String),
    /// A process cannot be started, or does not answer.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A process's answer cannot be parsed.
    #[error(transparent)]
    Form(#[from] serde_json::Error),
    /// The emulated network failed.
    #[error(transparent)]
    Network(#[from] causeway_network::Error),
    /// A call failed.
    #[error("{0}")]
    Call(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        match error {
            Error::Unavailable(why) => Trouble::Skipped(why),
            Error::Network(error) if error.is_unavailable() => Trouble::Skipped(error.to_string()),
            other => Trouble::Failed(other.to_string()),
        }
    }
}

/// The devices that a stage measures.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cast {
    /// The native device's name, and whether it is anything else than a CPU.
    pub(crate) device: Option<(String, bool)>,
    /// The peer's device's name.
    pub(crate) peer: Option<String>,
}

/// A place where rows are measured.
pub(crate) trait Stage {
    /// Measures a round of a row, all sides in turn.
    fn round(&mut self, line: &mut Line) -> Result<(), Error>;

    /// The devices that are measured here.
    fn cast(&self) -> Cast {
        Cast::default()
    }
}

/// Starts the processes of a place.
pub(crate) fn open(place: RowPlace, options: &Options) -> Result<Box<dyn Stage>, Error> {
    Ok(match place {
        RowPlace::Loopback => Box::new(loopback::Loopback::start(options, false)?),
        RowPlace::Fake => Box::new(loopback::Loopback::start(options, true)?),
        RowPlace::Growth => Box::new(growth::Growth::start()?),
        RowPlace::Fresh => Box::new(fresh::Fresh::start(options)?),
        RowPlace::Programs => Box::new(programs::Programs::start(options)),
        RowPlace::Memory => Box::new(memory::Memory::start(options)?),
        RowPlace::Links => Box::new(links::Links::start(options)?),
        RowPlace::Experiments => Box::new(experiments::Experiments::start(options)?),
        RowPlace::Cost => Box::new(cost::Cost::start(options)?),
        RowPlace::Resume => Box::new(resume::Resume::start(options)?),
    })
}
