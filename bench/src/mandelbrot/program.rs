//! The Mandelbrot program: an ordinary OpenCL program for any number of devices.
//!
//! It has one context, one program and one buffer. Each device draws its rows into its part of the buffer. The program
//! knows nothing of nodes, and the experiment runs it as a process of its own. Invariant: it prints one line of JSON, in
//! which the phases follow each other without a gap.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::picture::{View, checksum};
use crate::dealing::share;
use crate::devices::{Argument, Devices, Kernel, Memory};
use crate::experiment::Phases;
use crate::opencl::ClError;

/// The kernel.
pub(crate) const SOURCE: &str = include_str!("../../programs/mandelbrot.cl");

/// The picture and its devices.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) view: View,
    /// Use this many of the platform's devices at most
    #[arg(long, default_value_t = usize::MAX)]
    pub(crate) devices: usize,
    /// Also write the picture, shrunk to a quarter, to this file
    #[arg(long)]
    pub(crate) picture: Option<PathBuf>,
    /// The picture is the fake driver's: each row holds its number
    #[arg(long)]
    pub(crate) fake: bool,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The devices' names, each once.
    pub(crate) names: Vec<String>,
    /// Number of devices that drew.
    pub(crate) devices: usize,
    /// The phases: until the first launch could be enqueued, until all were done, and until the picture was in the
    /// program's memory.
    #[serde(flatten)]
    pub(crate) phases: Phases,
    /// [`checksum`] of the picture.
    pub(crate) checksum: u64,
    /// The share of checked pixels that are right.
    pub(crate) right: f64,
}

/// Number of pixels that are compared with the host's.
const SAMPLES: usize = 2000;

/// Draws, and prints the [`Outcome`].
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let view = arguments.view;
    // Ones, so that the pages exist before the picture arrives. Every platform's program needs them, so they have a
    // time of their own.
    let filling = Instant::now();
    let mut picture = vec![1u32; view.bytes() / 4];
    let begin = Instant::now();
    let devices = Devices::open(arguments.devices)?;
    let parts = parts(&devices, view)?;
    let kernels = kernels(&devices, view, &parts)?;
    let count = devices.count();
    let ready = Instant::now();

    for (device, kernel) in kernels.iter().enumerate() {
        let rows = share(view.height as usize, count, device);
        if rows > 0 {
            devices.launch(device, *kernel, &[view.width as usize, rows], &[])?;
            devices.flush(device)?;
        }
    }
    devices.finish_all()?;
    let computed = Instant::now();

    devices.gather_lines(&parts, view.width as usize, &mut picture)?;
    let end = Instant::now();

    if let Some(path) = &arguments.picture {
        view.colour(&picture, 4).write(path)?;
    }
    let mut names = (0..count)
        .map(|device| devices.name(device))
        .collect::<Result<Vec<_>, _>>()?;
    names.dedup();
    let outcome = Outcome {
        names,
        devices: count,
        phases: Phases {
            initialisation: (ready - begin).as_secs_f64(),
            computation: (computed - ready).as_secs_f64(),
            transfer: (end - computed).as_secs_f64(),
            pages: (begin - filling).as_secs_f64(),
        },
        checksum: checksum(&picture),
        right: if arguments.fake {
            rows_in_place(&picture, view.width as usize)
        } else {
            view.right_pixels(&picture, SAMPLES) as f64 / SAMPLES as f64
        },
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

/// A kernel for each device, with its rows and its part of the buffer.
fn kernels(devices: &Devices, view: View, parts: &[Memory]) -> Result<Vec<Kernel>, ClError> {
    let program = devices.build(SOURCE, "")?;
    let kernel = |(device, part): (usize, &Memory)| {
        let arguments = [
            Argument::Memory(*part),
            Argument::Uint(view.width),
            Argument::Uint(device as u32),
            Argument::Uint(parts.len() as u32),
            Argument::Uint(view.iterations),
            Argument::Float(view.left()),
            Argument::Float(view.top()),
            Argument::Float(view.pixel()),
        ];
        devices.kernel(program, "mandelbrot", &arguments)
    };
    parts.iter().enumerate().map(kernel).collect()
}

/// One buffer, a part of it for each device's rows.
fn parts(devices: &Devices, view: View) -> Result<Vec<Memory>, ClError> {
    let alignment = devices.alignment()?;
    let count = devices.count();
    let bytes = |device| 4 * view.width as usize * share(view.height as usize, count, device);
    let places = (0..count).map(|device| bytes(device).next_multiple_of(alignment).max(alignment));
    let whole = devices.buffer(places.clone().sum())?;
    let mut origin = 0;
    let mut parts = Vec::with_capacity(count);
    for place in places {
        parts.push(devices.part(whole, origin, place)?);
        origin += place;
    }
    Ok(parts)
}

/// The share of pixels that hold their row's number.
fn rows_in_place(picture: &[u32], width: usize) -> f64 {
    let right = picture
        .iter()
        .enumerate()
        .filter(|(at, number)| at / width == **number as usize)
        .count();
    right as f64 / picture.len() as f64
}
