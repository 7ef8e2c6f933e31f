//! The transfers: an ordinary OpenCL program that writes, reads, and lets two devices take turns with
//! a buffer.
//!
//! Invariant: no time is reported of a transfer whose bytes did not arrive.
#![forbid(unsafe_code)]

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::devices::{Argument, Devices, Memory};

type Error = Box<dyn std::error::Error>;

/// Adds 1 to the first word, for which a device needs the buffer.
const SOURCE: &str = "kernel void touch(global uint *data) { data[0] += 1; }";

/// The transfers.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Bytes of each size, one after the other
    #[arg(long, value_delimiter = ',')]
    pub(crate) sizes: Vec<usize>,
    /// Between two devices, not from and to the program
    #[arg(long)]
    pub(crate) between: bool,
}

/// The kind of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Way {
    /// From the program to a device.
    Write,
    /// From a device to the program.
    Read,
    /// From device to device.
    Between,
}

/// The transfers of one size and kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// The kind.
    pub(crate) way: Way,
    /// Bytes of each transfer.
    pub(crate) bytes: usize,
    /// Seconds of each transfer.
    pub(crate) seconds: Vec<f64>,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The first device's name.
    pub(crate) name: String,
    /// All transfers.
    pub(crate) samples: Vec<Sample>,
    /// Bytes that had to move, warm-up and checks included.
    pub(crate) moved: u64,
}

/// Small sizes are repeated until this number of bytes has been moved, or eight times.
const REPEAT_UP_TO: usize = 32 << 20;

fn repetitions(bytes: usize) -> usize {
    (REPEAT_UP_TO / bytes.max(1)).clamp(1, 8)
}

/// Transfers, and prints the [`Outcome`].
pub(crate) fn run(arguments: &Arguments) -> Result<(), Error> {
    let devices = Devices::open(if arguments.between { 2 } else { 1 })?;
    let largest = arguments.sizes.iter().copied().max().unwrap_or(0);
    let whole = devices.buffer(largest)?;
    let mut program = Program {
        devices: &devices,
        data: (0..largest).map(|at| (at >> 3) as u8).collect(),
        moved: 0,
    };
    let mut samples = Vec::new();
    for bytes in &arguments.sizes {
        let part = devices.part(whole, 0, *bytes)?;
        if arguments.between {
            samples.push(program.take_turns(part, *bytes)?);
        } else {
            samples.extend(program.there_and_back(part, *bytes)?);
        }
    }
    let outcome = Outcome {
        name: devices.name(0)?,
        moved: program.moved,
        samples,
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

struct Program<'a> {
    devices: &'a Devices,
    data: Vec<u8>,
    moved: u64,
}

impl Program<'_> {
    /// Writes and reads, and compares the bytes.
    fn there_and_back(&mut self, part: Memory, bytes: usize) -> Result<[Sample; 2], Error> {
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        let mut back = vec![1; bytes];
        // The first pair warms connections and pages.
        for repetition in 0..=repetitions(bytes) {
            // The bytes differ from the previous ones.
            self.data[0] = repetition as u8;
            let begin = Instant::now();
            self.devices.write(&[(0, part, &self.data[..bytes])])?;
            let written = Instant::now();
            self.devices.read(0, part, &mut back, &[])?;
            let read = Instant::now();
            if back != self.data[..bytes] {
                return Err(format!("{bytes} bytes came back as others").into());
            }
            if repetition > 0 {
                writes.push((written - begin).as_secs_f64());
                reads.push((read - written).as_secs_f64());
            }
            self.moved += 2 * bytes as u64;
        }
        let sample = |way, seconds| Sample {
            way,
            bytes,
            seconds,
        };
        Ok([sample(Way::Write, writes), sample(Way::Read, reads)])
    }

    /// Two devices change the buffer in turn, so that all of it moves each time.
    fn take_turns(&mut self, part: Memory, bytes: usize) -> Result<Sample, Error> {
        if self.devices.count() < 2 {
            return Err("two devices are needed".into());
        }
        let program = self.devices.build(SOURCE, "")?;
        let kernel = self
            .devices
            .kernel(program, "touch", &[Argument::Memory(part)])?;
        self.data[..4].fill(0);
        self.devices.write(&[(0, part, &self.data[..bytes])])?;
        let mut seconds = Vec::new();
        // An even number of steps, and one pair before them to warm up.
        let steps = repetitions(bytes).next_multiple_of(2) + 2;
        for step in 0..steps {
            let begin = Instant::now();
            let done = self.devices.launch((step + 1) % 2, kernel, &[1], &[])?;
            self.devices.wait(&[done])?;
            if step >= 2 {
                seconds.push(begin.elapsed().as_secs_f64());
            }
            self.moved += bytes as u64;
        }
        let mut back = vec![1; bytes];
        self.devices.read(0, part, &mut back, &[])?;
        self.data[..4].copy_from_slice(&(steps as u32).to_ne_bytes());
        if back != self.data[..bytes] {
            return Err(format!("{steps} turns with {bytes} bytes went wrong").into());
        }
        Ok(Sample {
            way: Way::Between,
            bytes,
            seconds,
        })
    }
}
