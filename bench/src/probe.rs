//! The measuring side: one process per platform, a round at a time.
//!
//! The stage writes one JSON [`Request`] per line. The answer is one JSON [`Answer`] per line. Invariant: the same
//! code measures every platform.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::content::half_a_picture;
use crate::devices::{self, Argument, Devices, Kernel, Memory};
use crate::opencl::ClError;
use crate::process::{self, Footprint};
use crate::rows::{Direction, Pace, Task};
use crate::socket::{Call, Order};

/// A request of the stage.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The measurement.
    pub(crate) task: Task,
    /// Makes sources unique in measurements of builds.
    pub(crate) nonce: u64,
}

/// The answer of the probe.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Nanoseconds of each repetition; for transfers, of the whole transfer. Some tasks return other values.
    pub(crate) values: Vec<u64>,
    /// The error, if there is one.
    pub(crate) error: Option<String>,
    /// Whether the error means that the device cannot do what the row measures.
    pub(crate) is_unavailable: bool,
}

/// The first line of a probe.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// The device's name.
    pub(crate) device: String,
    /// Whether the device is anything else than a CPU.
    pub(crate) accelerator: bool,
    /// `CL_DEVICE_MAX_MEM_ALLOC_SIZE`.
    pub(crate) largest: u64,
}

const SOURCE: &str =
    "__kernel void touch(__global uint *data) { if (data[0] == 0xffffffffu) data[0] = 1; }";

/// Number of threads in the rows of many threads.
const THREADS: usize = 8;

/// Static, so that a write of it may outlive its caller.
static SMALL: [u8; 4096] = [7; 4096];

/// Answers requests until standard input ends, with this number of devices. `platform` is a part of its name.
pub(crate) fn serve(
    platform: Option<&str>,
    devices: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut probe = Probe::open(platform, devices)?;
    let greeting = Greeting {
        device: probe.devices.name(0)?,
        accelerator: probe.devices.is_accelerator(0)?,
        largest: probe.devices.largest_buffer(0)?,
    };
    println!("{}", serde_json::to_string(&greeting)?);
    // `lines()` would keep the input locked, and some tasks read it, too.
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line)? > 0 {
        let request: Request = serde_json::from_str(&line)?;
        line.clear();
        let (values, error) = match probe.measure(&request) {
            Ok(values) => (values, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let answer = Answer {
            values,
            is_unavailable: matches!(error, Some(ClError::NotOnThisDevice(_))),
            error: error.map(|error| error.to_string()),
        };
        println!("{}", serde_json::to_string(&answer)?);
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// Prints the nanoseconds of a fresh process's first enumeration.
pub(crate) fn first_devices() -> Result<(), Box<dyn std::error::Error>> {
    let begin = Instant::now();
    devices::count()?;
    println!("{}", begin.elapsed().as_nanos());
    Ok(())
}

/// Prints the nanoseconds until a fresh process has its first devices, a context of one and a queue.
pub(crate) fn first_context() -> Result<(), Box<dyn std::error::Error>> {
    let begin = Instant::now();
    let devices = Devices::open(1)?;
    let took = begin.elapsed().as_nanos();
    drop(devices);
    println!("{took}");
    Ok(())
}

/// Prints the nanoseconds of a fresh process's first work on a device that it has found: context, queue, build,
/// launch and finish.
pub(crate) fn first_program() -> Result<(), Box<dyn std::error::Error>> {
    let found = Devices::find(1, None)?;
    let begin = Instant::now();
    let devices = found.open()?;
    let small = devices.buffer(SMALL.len())?;
    let program = devices.build(&source(0, "first"), "")?;
    let kernel = devices.kernel(program, "touch_first_0", &[Argument::Memory(small)])?;
    devices.enqueue(kernel)?;
    devices.finish(0)?;
    println!("{}", begin.elapsed().as_nanos());
    Ok(())
}

/// Prints the costs of a fresh process's platform list, in the order of
/// [`Cost::place`](crate::rows::Cost::place).
pub(crate) fn platforms() -> Result<(), Box<dyn std::error::Error>> {
    let before = Footprint::now()?;
    let begin = Instant::now();
    devices::platforms()?;
    let took = begin.elapsed().as_nanos();
    let Footprint {
        threads,
        sockets,
        descriptors,
        pages,
    } = Footprint::now()?.since(before);
    let things = threads + sockets;
    println!("{took} {things} {threads} {descriptors} {pages}");
    Ok(())
}

/// Idle probes of connections that have ended. Later connections use them again.
static IDLE: Mutex<Vec<Probe>> = Mutex::new(Vec::new());

/// A connection's probe, which becomes idle when the connection ends.
struct Lent(Option<Probe>);

impl Lent {
    fn new() -> Result<Lent, ClError> {
        let idle = IDLE.lock().ok().and_then(|mut idle| idle.pop());
        Ok(Lent(Some(match idle {
            Some(probe) => probe,
            None => Probe::open(None, 1)?,
        })))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Ok(mut idle) = IDLE.lock() {
            idle.extend(self.0.take());
        }
    }
}

/// The native call in the middle of a bare round trip.
pub(crate) fn call(order: Order) -> Result<Option<Call>, Box<dyn std::error::Error>> {
    // One counter for all connections, because every source must be new.
    static NONCE: AtomicU64 = AtomicU64::new(0);
    if matches!(order, Order::Echo | Order::Sink | Order::Source) {
        return Ok(None);
    }
    let lent = Lent::new()?;
    Ok(Some(Box::new(move || {
        let Some(probe) = &lent.0 else {
            return Ok(());
        };
        match order {
            Order::Launch => probe.launch_and_finish()?,
            Order::Build => {
                let source = source(NONCE.fetch_add(1, Ordering::Relaxed), "bare");
                probe.devices.build_and_release(&source)?;
            }
            _ => probe.read_small()?,
        }
        Ok(())
    })))
}

/// A source that is unique for the number and the tag.
fn source(nonce: u64, tag: &str) -> String {
    SOURCE.replace("touch", &format!("touch_{tag}_{nonce}"))
}

struct Probe {
    devices: Devices,
    /// A second queue.
    other: usize,
    small: Memory,
    kernels: Vec<Kernel>,
}

impl Probe {
    fn open(platform: Option<&str>, devices: usize) -> Result<Probe, ClError> {
        let mut devices = Devices::open_on(devices, platform)?;
        let small = devices.buffer(SMALL.len())?;
        devices.write_now(small, &SMALL)?;
        let program = devices.build(SOURCE, "")?;
        let kernel = || devices.kernel(program, "touch", &[Argument::Memory(small)]);
        let kernels = (0..THREADS).map(|_| kernel()).collect::<Result<_, _>>()?;
        let other = devices.add_queue()?;
        let probe = Probe {
            devices,
            other,
            small,
            kernels,
        };
        // The first launch compiles for the device.
        probe.launch_and_finish()?;
        Ok(probe)
    }

    fn launch_and_finish(&self) -> Result<(), ClError> {
        self.devices.enqueue(self.kernels[0])?;
        self.devices.finish(0)
    }

    fn read_small(&self) -> Result<(), ClError> {
        self.devices.read(0, self.small, &mut [0; 4], &[])
    }

    fn measure(&mut self, request: &Request) -> Result<Vec<u64>, ClError> {
        let cl = &self.devices;
        match request.task {
            Task::EnqueueKernel(pace) => self.enqueues(pace, || cl.enqueue(self.kernels[0])),
            Task::EnqueueWrite(pace) => {
                self.enqueues(pace, || cl.enqueue_write(self.small, &SMALL))
            }
            Task::EnqueueMarker(pace) => self.enqueues(pace, || cl.enqueue_marker()),
            Task::LaunchFinish => each(500, || self.launch_and_finish()),
            Task::ReadSmall => each(500, || self.read_small()),
            Task::ReadOnce => each(1, || self.read_small()),
            Task::ReadAllOnce(bytes) | Task::WriteOnce(bytes) => {
                self.move_once(bytes as usize, matches!(request.task, Task::WriteOnce(_)))
            }
            Task::WaitOften(often, turns) => {
                cl.wait_often(often, turns as usize, &self.kernels, self.small)
            }
            Task::Pipelined(count) => self.pipelined(count.into()),
            Task::Replayed(count) => self.replayed(count.into()),
            Task::Threads(threads, count) => self
                .threads(threads.into(), count as usize)
                .map(|time| vec![time]),
            Task::Growth(shape, count) => {
                let took = cl.grow(shape, self.small, count as usize, || pause("node to lose"))?;
                Ok(vec![took.as_nanos() as u64])
            }
            Task::Build | Task::BuildSeen => {
                let source = source(request.nonce, "own");
                each(1, || cl.build_and_release(&source))
            }
            Task::Write(_)
            | Task::WritePicture(_)
            | Task::Read(_)
            | Task::MapRead(_)
            | Task::MapWrite(_) => self.transfer(request.task),
            Task::UnmapBytes(bytes) => self.unmap_by_hand(bytes as usize),
            Task::Busy(bytes, direction) => Ok(self.busy(bytes as usize, direction)?.0),
            Task::Beside(bytes, direction) => Ok(vec![self.busy(bytes as usize, direction)?.1]),
            Task::Peak(bytes, _) => self.peak(bytes as usize).map(|bytes| vec![bytes]),
            // Other processes measure these, or they are computed from other measurements.
            Task::PingPong
            | Task::Scaling(_)
            | Task::Processor(..)
            | Task::FirstDevices
            | Task::Load(..)
            | Task::FirstContext
            | Task::FirstProgram(_)
            | Task::Applications(_)
            | Task::Mandelbrot(_)
            | Task::Resumed(_)
            | Task::CutTransfer(..) => Ok(Vec::new()),
        }
    }

    /// Times each call by itself, and then waits for all commands.
    fn enqueues(
        &self,
        pace: Pace,
        mut call: impl FnMut() -> Result<(), ClError>,
    ) -> Result<Vec<u64>, ClError> {
        let samples = match pace {
            Pace::Flood => each(2000, call)?,
            Pace::Paced => {
                let mut next = Instant::now();
                let mut samples = Vec::with_capacity(500);
                for _ in 0..500 {
                    // The loop does not sleep, because a program that computes between its calls keeps its core.
                    while Instant::now() < next {
                        std::hint::spin_loop();
                    }
                    next += Duration::from_micros(100);
                    samples.extend(each(1, &mut call)?);
                }
                samples
            }
        };
        self.devices.finish(0)?;
        Ok(samples)
    }

    fn pipelined(&self, count: u64) -> Result<Vec<u64>, ClError> {
        let begin = Instant::now();
        for _ in 0..count {
            self.devices.enqueue(self.kernels[0])?;
        }
        self.devices.finish(0)?;
        Ok(vec![begin.elapsed().as_nanos() as u64 / count])
    }

    fn replayed(&self, count: u64) -> Result<Vec<u64>, ClError> {
        let Some(replay) = self.devices.record(self.kernels[0], count)? else {
            return self.pipelined(count);
        };
        replay.run()?;
        let begin = Instant::now();
        replay.run()?;
        Ok(vec![begin.elapsed().as_nanos() as u64 / count])
    }

    /// Nanoseconds of a launch, over all threads together.
    fn threads(&mut self, threads: usize, count: usize) -> Result<u64, ClError> {
        while self.devices.queues() < threads {
            self.devices.add_queue()?;
        }
        let kernels = &self.kernels[..threads.min(self.kernels.len())];
        let took = self.devices.contend(kernels, count)?;
        Ok(took.as_nanos() as u64 / (count * kernels.len()) as u64)
    }

    /// One blocking write or read, after a pause in which the stage prepares the network.
    fn move_once(&self, size: usize, writes: bool) -> Result<Vec<u64>, ClError> {
        let cl = &self.devices;
        let buffer = cl.buffer(size)?;
        let mut data = vec![1; size];
        cl.write_now(buffer, &data)?;
        cl.finish(0)?;
        pause("buffer is ready");
        let took = each(1, || match writes {
            true => cl.write_now(buffer, &data).and_then(|()| cl.finish(0)),
            false => cl.read(0, buffer, &mut data, &[]),
        })?;
        cl.release(buffer)?;
        Ok(took)
    }

    fn transfer(&self, task: Task) -> Result<Vec<u64>, ClError> {
        let (Task::Write(size)
        | Task::WritePicture(size)
        | Task::Read(size)
        | Task::MapRead(size)
        | Task::MapWrite(size)) = task
        else {
            return Ok(Vec::new());
        };
        let size = size as usize;
        let cl = &self.devices;
        let buffer = cl.buffer(size)?;
        // All pages are touched before, so that none is new during the measurement. A buffer is written before it
        // is read, because unwritten memory is one page of zeros, which stays in the processor's cache.
        let mut data = match task {
            Task::WritePicture(_) => half_a_picture(size),
            _ => vec![1u8; size],
        };
        if matches!(task, Task::Read(_) | Task::MapRead(_)) {
            cl.write_now(buffer, &data)?;
            cl.finish(0)?;
        }
        let mut once = || match task {
            Task::Write(_) | Task::WritePicture(_) => {
                cl.write_now(buffer, &data).and_then(|()| cl.finish(0))
            }
            Task::Read(_) => cl.read(0, buffer, &mut data, &[]),
            Task::MapWrite(_) => cl.map(buffer, size, true, |bytes| bytes[0] = 1),
            _ => cl.map(buffer, size, false, |bytes| {
                black_box(bytes[bytes.len() - 1]);
            }),
        };
        once()?;
        let samples = each(repetitions(size), once)?;
        cl.release(buffer)?;
        Ok(samples)
    }

    /// Maps for reading, prints a line, and unmaps after a line of standard input.
    fn unmap_by_hand(&self, size: usize) -> Result<Vec<u64>, ClError> {
        let buffer = self.devices.buffer(size)?;
        self.devices.write_now(buffer, &vec![1; size])?;
        self.devices.map(buffer, size, false, |_| {
            // The stage reads the counters now.
            pause("mapped");
        })?;
        self.devices.release(buffer)?;
        Ok(Vec::new())
    }

    /// Reads 4 bytes every 2 ms while `size` bytes move on the other queue. The results are the times of the reads and
    /// of the bytes. If `size` is 0, the number of reads is fixed.
    fn busy(&self, size: usize, direction: Direction) -> Result<(Vec<u64>, u64), ClError> {
        const GAP: Duration = Duration::from_millis(2);
        let mut samples = Vec::new();
        let mut once = || {
            std::thread::sleep(GAP);
            samples.extend(each(1, || self.read_small())?);
            Ok::<_, ClError>(())
        };
        if size == 0 {
            (0..200).try_for_each(|_| once())?;
            return Ok((samples, 0));
        }
        let buffer = self.devices.buffer(size)?;
        let mut data = vec![1u8; size];
        let up = direction == Direction::Up;
        let begun = Instant::now();
        let running = self.devices.start(self.other, buffer, &mut data, up)?;
        while running.is_running()? {
            once()?;
        }
        let took = begun.elapsed().as_nanos() as u64;
        drop(running);
        self.devices.release(buffer)?;
        // The last read may have been alone.
        samples.pop();
        Ok((samples, took))
    }

    /// Bytes resident at the peak of a write and a read, beyond those before.
    fn peak(&self, size: usize) -> Result<u64, ClError> {
        let buffer = self.devices.buffer(size)?;
        let mut data = vec![1u8; size];
        let before = process::start_peak(std::process::id());
        self.devices.write_now(buffer, &data)?;
        self.devices.finish(0)?;
        self.devices.read(0, buffer, &mut data, &[])?;
        let peak = process::peak(std::process::id());
        self.devices.release(buffer)?;
        Ok(peak.saturating_sub(before))
    }
}

/// Prints a line for the stage, and waits for its answer. An error is ignored: without a stage, nobody reads the
/// result.
fn pause(line: &str) {
    println!("{line}");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Number of repetitions of a size, so that rounds of all sizes take about the same time.
pub(crate) fn repetitions(size: usize) -> usize {
    (256 << 20) / size.clamp(4 << 20, 256 << 20)
}

/// Nanoseconds of each of `count` calls.
pub(crate) fn each(
    count: usize,
    mut call: impl FnMut() -> Result<(), ClError>,
) -> Result<Vec<u64>, ClError> {
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        call()?;
        samples.push(begin.elapsed().as_nanos() as u64);
    }
    Ok(samples)
}
