//! A worker of the farm: an ordinary OpenCL program with one context of one device, which multiplies rows.
//!
//! It reads the factor and then work from its input, writes results to its output, and ends with its input. It knows
//! nothing of nodes or other workers. Invariant: a result is written only after the device has computed it.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use super::frame::{Frame, read_floats};
use crate::devices::{Argument, Devices};

/// The kernel.
pub(crate) const SOURCE: &str = include_str!("../../programs/matrix.cl");

/// The matrices.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Rows and columns
    #[arg(long)]
    size: usize,
    /// Rows of the largest piece of work
    #[arg(long)]
    grain: usize,
}

/// Works until the input ends.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let (size, most) = (arguments.size, arguments.grain * arguments.size);
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let factor = read_floats(&mut input, size * size)?;
    let devices = Devices::open(1)?;
    let program = devices.build(SOURCE, "")?;
    let b = devices.buffer(4 * size * size)?;
    let (a, c) = (devices.buffer(4 * most)?, devices.buffer(4 * most)?);
    devices.write(&[(0, b, &bytes(&factor))])?;
    let buffers = [
        Argument::Memory(a),
        Argument::Memory(b),
        Argument::Memory(c),
        Argument::Uint(size as u32),
    ];
    let kernel = devices.kernel(program, "multiply", &buffers)?;
    // Some drivers compile a kernel only when it is first launched.
    let warm = devices.launch(0, kernel, &[size, arguments.grain], &[])?;
    devices.wait(&[warm])?;
    Frame::ready().write(&mut output)?;
    while let Some(work) = Frame::read(&mut input, most)? {
        let mut rows = bytes(&work.rows);
        devices.write(&[(0, a, &rows)])?;
        let event = devices.launch(0, kernel, &[size, work.rows.len() / size], &[])?;
        devices.read(0, c, &mut rows, &[event])?;
        devices.wait(&[event])?;
        let result = Frame {
            name: work.name,
            rows: read_floats(&mut &rows[..], work.rows.len())?,
        };
        result.write(&mut output)?;
    }
    output.flush()?;
    Ok(())
}

pub(super) fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}
