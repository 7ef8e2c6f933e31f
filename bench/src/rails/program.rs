//! The transfers: an ordinary OpenCL program that writes or reads one buffer, piece by piece.
//!
//! It prints `begin` and `end` around the transfers, and a line of JSON. Invariant: no time is reported of a transfer
//! whose bytes did not arrive.
#![forbid(unsafe_code)]

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::Direction;
use crate::devices::Devices;

type Error = Box<dyn std::error::Error>;

/// The transfers.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The direction that is measured
    #[arg(long)]
    direction: Direction,
    /// Bytes in all
    #[arg(long)]
    bytes: usize,
    /// Bytes of each blocking call
    #[arg(long)]
    piece: usize,
}

/// The result of a run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Seconds of all transfers together.
    pub(crate) seconds: f64,
}

/// Transfers, and prints the [`Outcome`].
pub(crate) fn run(arguments: &Arguments) -> Result<(), Error> {
    let (bytes, piece) = (arguments.bytes, arguments.piece);
    let devices = Devices::open(1)?;
    let whole = devices.buffer(bytes)?;
    let data: Vec<u8> = (0..bytes).map(|at| (at ^ (at >> 13)) as u8).collect();
    // The pages of the result exist before the time begins.
    let mut back = vec![1; bytes];
    let mut parts = Vec::new();
    for at in (0..bytes).step_by(piece) {
        let end = bytes.min(at + piece);
        parts.push((at..end, devices.part(whole, at, end - at)?));
    }
    let is_read = arguments.direction == Direction::Read;
    // The first transfer opens the connections. Reads need something to read.
    for (range, part) in &parts[..if is_read { parts.len() } else { 1 }] {
        devices.write(&[(0, *part, &data[range.clone()])])?;
    }
    println!("begin");
    let begin = Instant::now();
    for (range, part) in &parts {
        match arguments.direction {
            Direction::Write => devices.write(&[(0, *part, &data[range.clone()])])?,
            Direction::Read => devices.read(0, *part, &mut back[range.clone()], &[])?,
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("end");
    if arguments.direction == Direction::Write {
        devices.read(0, whole, &mut back, &[])?;
    }
    if back != data {
        return Err(format!("{bytes} bytes came back as others").into());
    }
    println!("{}", serde_json::to_string(&Outcome { seconds })?);
    Ok(())
}
