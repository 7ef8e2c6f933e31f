//! The reconstruction: an ordinary OpenCL program for any number of devices.
//!
//! It has one context and one program. The image is one buffer that all devices read. Every device adds its events of a
//! subset to a correction image of its own. Then each device sums one slab of all corrections, and updates that slab of
//! the image. Only events order the queues, and the program waits once in each iteration. Invariant: a device reads
//! another's data only behind an event, and parts that are written at the same time do not overlap.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::Reconstruction;
use super::phantom::Scanner;
use super::{merit, siddon};
use crate::dealing::slice;
use crate::devices::{Argument, Devices, Event, Kernel, Memory, Program};
use crate::experiment::Phases;
use crate::opencl::ClError;

type Error = Box<dyn std::error::Error>;

/// The kernels.
const SOURCE: &str = include_str!("../../programs/osem.cl");

/// Number of directions of the half sphere for the sensitivity.
const DIRECTIONS: u32 = 1024;

/// Number of lines whose sums are compared with the host's.
const SAMPLES: usize = 512;

/// The reconstruction and its devices.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) reconstruction: Reconstruction,
    /// The file of events: eight floats each
    #[arg(long = "list")]
    pub(crate) list: PathBuf,
    /// Use this many of the platform's devices at most
    #[arg(long, default_value_t = usize::MAX)]
    pub(crate) devices: usize,
    /// Write the image of every iteration, one after the other, to this file
    #[arg(long)]
    pub(crate) images: PathBuf,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The devices' names, each once.
    pub(crate) names: Vec<String>,
    /// Number of devices that worked.
    pub(crate) devices: usize,
    /// The phases. The transfer is that of the events to the devices. Images come back within the iterations.
    #[serde(flatten)]
    pub(crate) phases: Phases,
    /// Seconds of each iteration.
    pub(crate) iterations: Vec<f64>,
    /// The largest difference of a line's sum to the host's, over the largest sum.
    pub(crate) sums: f64,
}

/// A device's events of a subset.
struct Share {
    correct: Kernel,
    events: Memory,
    /// Their places in the list.
    place: Range<usize>,
}

/// A device's part of the voxels.
struct Slab {
    prepare: Kernel,
    /// Adds of all others' corrections, then the update.
    combine: Vec<Kernel>,
    voxels: usize,
}

/// The buffers and kernels of a run.
struct Work<'a> {
    devices: &'a Devices,
    program: Program,
    scanner: Scanner,
    subsets: usize,
    image: Memory,
    sensitivity: Memory,
    /// By device.
    corrections: Vec<Memory>,
    list: Memory,
    /// For [`Work::compare_sums`].
    sums: Memory,
    /// By subset, then device; `None` without events.
    shares: Vec<Vec<Option<Share>>>,
    /// By device; `None` without voxels.
    slabs: Vec<Option<Slab>>,
}

/// Reconstructs, and prints the [`Outcome`].
pub(crate) fn run(arguments: &Arguments) -> Result<(), Error> {
    let what = arguments.reconstruction;
    let scanner = Scanner::new(what.size);
    // The time to read the list is not counted.
    let list = std::fs::read(&arguments.list)?;
    let begin = Instant::now();
    let devices = Devices::open(arguments.devices)?;
    let work = Work::new(&devices, scanner, what.subsets, list.len() / EVENT)?;
    let ready = Instant::now();
    work.upload(&list)?;
    let uploaded = Instant::now();
    let mut ends = vec![uploaded];
    let mut images = Vec::with_capacity(what.iterations);
    let mut image = vec![0; 4 * scanner.voxels()];
    let mut before = work.prepare()?;
    for _ in 0..what.iterations {
        before = work.iterate(before)?;
        devices.read(0, work.image, &mut image, &before)?;
        devices.wait(&before)?;
        before.clear();
        ends.push(Instant::now());
        images.extend_from_slice(&image);
    }
    let done = Instant::now();
    std::fs::write(&arguments.images, images)?;
    let mut names = (0..devices.count())
        .map(|device| devices.name(device))
        .collect::<Result<Vec<_>, _>>()?;
    names.dedup();
    let outcome = Outcome {
        names,
        devices: devices.count(),
        phases: Phases {
            initialisation: (ready - begin).as_secs_f64(),
            transfer: (uploaded - ready).as_secs_f64(),
            computation: (done - uploaded).as_secs_f64(),
            pages: 0.0,
        },
        iterations: ends
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).as_secs_f64())
            .collect(),
        sums: work.compare_sums(&list, &floats(&image))?,
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

/// Bytes of an event.
const EVENT: usize = 32;

/// Converts bytes to floats.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|word| f32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}

impl<'a> Work<'a> {
    fn new(
        devices: &'a Devices,
        scanner: Scanner,
        subsets: usize,
        events: usize,
    ) -> Result<Work<'a>, ClError> {
        let count = devices.count();
        let alignment = devices.alignment()?;
        // A whole number of blocks, so that every slab can be a part of a buffer.
        let block = (alignment / 4).max(1);
        let room = scanner.voxels().next_multiple_of(block);
        let buffer = || devices.buffer(4 * room);
        let list = devices.buffer(EVENT * events.max(1))?;
        let mut work = Work {
            devices,
            program: devices.build(SOURCE, "")?,
            scanner,
            subsets,
            image: buffer()?,
            sensitivity: buffer()?,
            corrections: (0..count).map(|_| buffer()).collect::<Result<_, _>>()?,
            list,
            sums: devices.buffer(4 * SAMPLES)?,
            shares: Vec::new(),
            slabs: Vec::new(),
        };
        for device in 0..count {
            let slab = slice(room, block, count, device);
            let slab = (!slab.is_empty()).then(|| work.slab(device, slab));
            work.slabs.push(slab.transpose()?);
        }
        let block = (alignment / EVENT).max(1);
        for subset in 0..subsets {
            let deal = |device: usize| {
                let place = slice(events, block, subsets * count, subset * count + device);
                (!place.is_empty()).then(|| work.share(device, place))
            };
            let shares = (0..count).map(|device| deal(device).transpose());
            let shares = shares.collect::<Result<_, _>>()?;
            work.shares.push(shares);
        }
        Ok(work)
    }

    /// The image's size, as the kernels take it.
    fn size(&self) -> [Argument; 3] {
        self.scanner.size.map(|side| Argument::Uint(side as u32))
    }

    fn kernel(&self, name: &str, arguments: &[&[Argument]]) -> Result<Kernel, ClError> {
        self.devices.kernel(self.program, name, &arguments.concat())
    }

    /// The commands of a device for its part of the voxels.
    fn slab(&self, device: usize, voxels: Range<usize>) -> Result<Slab, ClError> {
        let part = |whole| {
            let part = self.devices.part(whole, 4 * voxels.start, 4 * voxels.len());
            part.map(Argument::Memory)
        };
        let [image, sensitivity] = [part(self.image)?, part(self.sensitivity)?];
        let own = part(self.corrections[device])?;
        let mut combine = Vec::with_capacity(self.corrections.len());
        for (other, correction) in self.corrections.iter().enumerate() {
            if other != device {
                combine.push(self.kernel("add", &[&[own, part(*correction)?]])?);
            }
        }
        let subsets = Argument::Float(self.subsets as f32);
        combine.push(self.kernel("update", &[&[image, own, sensitivity, subsets]])?);
        let first = Argument::Uint(voxels.start as u32);
        let [radius, half] = [self.scanner.radius, self.scanner.half_length].map(Argument::Float);
        let prepare = self.kernel(
            "prepare",
            &[
                &[sensitivity, image, first],
                &self.size(),
                &[radius, half, Argument::Uint(DIRECTIONS)],
            ],
        )?;
        Ok(Slab {
            prepare,
            combine,
            voxels: voxels.len(),
        })
    }

    /// The commands of a device for some events.
    fn share(&self, device: usize, place: Range<usize>) -> Result<Share, ClError> {
        let (origin, size) = (EVENT * place.start, EVENT * place.len());
        let events = self.devices.part(self.list, origin, size)?;
        let count = Argument::Uint(place.len() as u32);
        let correct = self.kernel(
            "correct",
            &[
                &[
                    Argument::Memory(self.image),
                    Argument::Memory(events),
                    count,
                ],
                &self.size(),
                &[Argument::Memory(self.corrections[device])],
            ],
        )?;
        Ok(Share {
            correct,
            events,
            place,
        })
    }

    /// Sends each device its events.
    fn upload(&self, list: &[u8]) -> Result<(), ClError> {
        let mut pieces = Vec::new();
        for subset in &self.shares {
            for (device, share) in subset.iter().enumerate() {
                if let Some(Share { events, place, .. }) = share {
                    let bytes = EVENT * place.start..EVENT * place.end;
                    pieces.push((device, *events, &list[bytes]));
                }
            }
        }
        self.devices.write(&pieces)
    }

    /// Measures sensitivity and sets the image, each device its slab.
    fn prepare(&self) -> Result<Vec<Event>, ClError> {
        let mut events = Vec::new();
        for (device, slab) in self.slabs.iter().enumerate() {
            if let Some(slab) = slab {
                let launch = self
                    .devices
                    .launch(device, slab.prepare, &[slab.voxels], &[]);
                events.push(launch?);
                self.devices.flush(device)?;
            }
        }
        Ok(events)
    }

    /// Makes one pass over all subsets. `before` ends when the image may be read, and so do the returned events.
    fn iterate(&self, mut before: Vec<Event>) -> Result<Vec<Event>, ClError> {
        let size = 4 * self.scanner.voxels();
        for subset in &self.shares {
            let mut corrected = Vec::new();
            for (device, share) in subset.iter().enumerate() {
                let zeroed = self
                    .devices
                    .zero(device, self.corrections[device], size, &before)?;
                corrected.push(match share {
                    Some(share) => {
                        let events = share.place.len();
                        self.devices.launch(device, share.correct, &[events], &[])?
                    }
                    None => zeroed,
                });
                self.devices.flush(device)?;
            }
            before.clear();
            for (device, slab) in self.slabs.iter().enumerate() {
                let Some(slab) = slab else { continue };
                let mut last = None;
                for kernel in &slab.combine {
                    let waits: &[Event] = if last.is_none() { &corrected } else { &[] };
                    last = Some(
                        self.devices
                            .launch(device, *kernel, &[slab.voxels], waits)?,
                    );
                }
                before.extend(last);
                self.devices.flush(device)?;
            }
        }
        Ok(before)
    }

    /// The largest difference of the device's sums along some lines to the host's, over the largest.
    fn compare_sums(&self, list: &[u8], image: &[f32]) -> Result<f64, ClError> {
        let events = floats(&list[..list.len().min(EVENT * SAMPLES)]);
        let count = events.len() / 8;
        // Only a part, because the first device does not need the rest of the list.
        let first = self.devices.part(self.list, 0, EVENT * count)?;
        let [on_device, lines, result] = [self.image, first, self.sums].map(Argument::Memory);
        let kernel = self.kernel("sums", &[&[on_device, lines], &self.size(), &[result]])?;
        let done = self.devices.launch(0, kernel, &[count], &[])?;
        let mut bytes = vec![0; 4 * count];
        self.devices.read(0, self.sums, &mut bytes, &[done])?;
        let ours: Vec<f32> = events
            .chunks_exact(8)
            .map(|event| {
                let (from, to) = (
                    [event[0], event[1], event[2]],
                    [event[4], event[5], event[6]],
                );
                siddon::sum(self.scanner.size, image, from, to)
            })
            .collect();
        Ok(merit::difference(&floats(&bytes), &ours))
    }
}
