//! The chain as a plain OpenCL program: one process with a context for each device, which multiply equal parts of the rows.
//!
//! It knows nothing of nodes that fail: with `[survival] reexecute`, the library executes what a lost node did again. Its
//! checkpoints are for its own death. Invariant: a product is complete before the next one begins.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::time::Instant;

use super::frame::read_floats;
use super::progress::Progress;
use super::state::ChainState;
use super::{field, worker};
use crate::devices::{Argument, Devices, Kernel, Memory};

type Error = Box<dyn std::error::Error>;

/// The chain, and where it is computed.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Rows and columns
    #[arg(long)]
    size: usize,
    /// Number of products
    #[arg(long)]
    multiplications: u64,
    /// The seed of the matrices
    #[arg(long)]
    seed: u64,
    /// Number of devices
    #[arg(long)]
    devices: usize,
    /// The file of the checkpoint and the result
    #[arg(long)]
    state: PathBuf,
    /// Time between checkpoints, s; `inf`: only the result is written
    #[arg(long)]
    interval: f64,
}

/// A device and its part of the rows.
struct Part {
    devices: Devices,
    kernel: Kernel,
    from: Memory,
    to: Memory,
    /// The first element and the one behind the last.
    elements: [usize; 2],
}

/// Computes the chain, from the checkpoint if there is one.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Error> {
    let size = arguments.size;
    let read = ChainState::read(&arguments.state, size)?;
    let mut state = read.unwrap_or_else(|| ChainState {
        round: 0,
        matrix: field::random(size, arguments.seed),
    });
    let parts = open(arguments)?;
    let begin = Instant::now();
    Progress::Ready { round: state.round }.print()?;
    let mut saved = Instant::now();
    while state.round < arguments.multiplications {
        let begin = Instant::now();
        multiply(&parts, size, &mut state.matrix)?;
        let seconds = begin.elapsed().as_secs_f64();
        Progress::Product { seconds }.print()?;
        state.round += 1;
        let is_last = state.round == arguments.multiplications;
        if !is_last && saved.elapsed().as_secs_f64() >= arguments.interval {
            state.save(&arguments.state, size)?;
            saved = Instant::now();
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    state.save(&arguments.state, size)?;
    Progress::Done { seconds }.print()?;
    Ok(())
}

fn open(arguments: &Arguments) -> Result<Vec<Part>, Error> {
    let (size, count) = (arguments.size, arguments.devices);
    let factor = worker::bytes(&field::random(size, arguments.seed + 1));
    let devices = Devices::open_each(count)?;
    if devices.len() < count {
        let found = devices.len();
        return Err(format!("{found} devices were found; {count} were expected").into());
    }
    let devices = devices.into_iter().enumerate();
    let open = |(place, devices): (usize, Devices)| {
        let elements = [place, place + 1].map(|place| size * place / count * size);
        let bytes = 4 * (elements[1] - elements[0]).max(1);
        let factor_there = devices.buffer(factor.len())?;
        devices.write(&[(0, factor_there, &factor)])?;
        let (from, to) = (devices.buffer(bytes)?, devices.buffer(bytes)?);
        let arguments = [
            Argument::Memory(from),
            Argument::Memory(factor_there),
            Argument::Memory(to),
            Argument::Uint(size as u32),
        ];
        let program = devices.build(worker::SOURCE, "")?;
        let kernel = devices.kernel(program, "multiply", &arguments)?;
        // Some drivers compile a kernel only when it is first launched.
        let warm = devices.launch(0, kernel, &[size, 1], &[])?;
        devices.wait(&[warm])?;
        Ok(Part {
            devices,
            kernel,
            from,
            to,
            elements,
        })
    };
    devices.map(open).collect()
}

/// Replaces a matrix by its product. All devices multiply at the same time.
fn multiply(parts: &[Part], size: usize, matrix: &mut [f32]) -> Result<(), Error> {
    let with_rows = || {
        parts
            .iter()
            .filter(|part| part.elements[0] < part.elements[1])
    };
    let mut events = Vec::new();
    for part in with_rows() {
        let [first, end] = part.elements;
        let rows = worker::bytes(&matrix[first..end]);
        part.devices.write(&[(0, part.from, &rows)])?;
        let global = [size, (end - first) / size];
        events.push(part.devices.launch(0, part.kernel, &global, &[])?);
        part.devices.flush(0)?;
    }
    for (part, event) in with_rows().zip(events) {
        let [first, end] = part.elements;
        let mut rows = vec![0; 4 * (end - first)];
        part.devices.read(0, part.to, &mut rows, &[event])?;
        part.devices.wait(&[event])?;
        matrix[first..end].copy_from_slice(&read_floats(&mut &rows[..], end - first)?);
    }
    Ok(())
}
