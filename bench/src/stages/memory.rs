//! A daemon and a program for each way of the bytes: what both use at the peak of a large transfer.
//!
//! The program counts itself; the worker is the daemon's child that grew most. What the worker uses for the
//! buffer itself is the buffer's size, as PoCL's devices are this machine's memory; an accelerator's buffer is
//! elsewhere, and nothing is taken off.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use super::side::{Node, Probed};
use super::{Error, Stage};
use crate::figures::Side;
use crate::options::Options;
use crate::process;
use crate::report::Line;
use crate::rows::{End, Task, Way, size_name};
use crate::setup::Build;

/// Bytes that the client and the worker used beyond the buffer.
#[derive(Clone, Copy)]
struct Peaks {
    size: u64,
    client: u64,
    worker: u64,
}

/// The stage.
pub(super) struct Memory {
    options: Options,
    /// One transfer tells of both ends.
    measured: HashMap<bool, Peaks>,
}

impl Memory {
    /// Nothing runs yet.
    pub(super) fn start(options: &Options) -> Result<Memory, Error> {
        Ok(Memory {
            options: options.clone(),
            measured: HashMap::new(),
        })
    }

    fn measure(&self, wanted: u64, way: Way) -> Result<Peaks, Error> {
        let vendors = self.options.native_vendors.clone();
        let node = Node::start(Build::find()?, vendors, &self.options.carrier)?;
        let mut probe = Probed::start(&mut node.causeway("probe", way)?)?;
        // The program's data, the device's buffer, and as much again for whatever goes wrong.
        let most = (process::available() / 3).min(probe.greeting.largest);
        let size = if wanted <= most {
            wanted
        } else {
            1 << most.max(1).ilog2()
        };
        let workers = process::children(node.daemon.id())?;
        let before: Vec<u64> = workers.iter().map(|id| process::start_peak(*id)).collect();
        let client = probe.ask(Task::Peak(size, End::Client), 0)?;
        let grown = workers.iter().zip(before);
        let grown = grown.map(|(id, before)| process::peak(*id).saturating_sub(before));
        let buffer = if probe.greeting.accelerator { 0 } else { size };
        Ok(Peaks {
            size,
            client: client.first().copied().unwrap_or(0),
            worker: grown.max().unwrap_or(0).saturating_sub(buffer),
        })
    }
}

impl Stage for Memory {
    fn round(&mut self, line: &mut Line) -> Result<(), Error> {
        let Task::Peak(wanted, end) = line.row.task else {
            return Err(Error::Call("only peaks are measured here".to_owned()));
        };
        let key = line.row.way == Way::Tcp;
        let peaks = match self.measured.get(&key) {
            Some(peaks) => *peaks,
            None => self.measure(wanted, line.row.way)?,
        };
        self.measured.insert(key, peaks);
        if peaks.size < wanted {
            line.note = Some(format!("{}: memory is short", size_name(peaks.size)));
        }
        let bytes = match end {
            End::Client => peaks.client,
            End::Worker => peaks.worker,
        };
        line.samples.push(Side::Causeway, vec![bytes as f64]);
        Ok(())
    }
}
