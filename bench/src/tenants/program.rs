//! A tenant: an ordinary OpenCL program that launches one small kernel again and again.
//!
//! The program prints a line of JSON for each part, and waits for a line before the next part, so that the experiment
//! has all tenants in the same part at the same time. Several tenants can be threads of one program, with queues in one
//! context; each prints its lines, in their order. Invariant: a result is checked, so a kernel that did not run is an
//! error and no fast kernel.
#![forbid(unsafe_code)]

use std::io::BufRead;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::devices::{Argument, Devices, Kernel, Memory};
use crate::figures::quantile;
use crate::opencl::ClError;

/// The kernel.
const SOURCE: &str = include_str!("../../programs/spin.cl");
/// Launches between two `clFinish` when only the number of launches counts.
const GROUP: usize = 256;
/// Launches that a tenant which floods always has queued.
const FLOOD: usize = 2000;
/// Bytes that such a tenant reads at a time, if it reads.
const READ: usize = 16 << 20;
/// Launches of a calibration's shorter and longer kernel.
const CALIBRATION: usize = 20;

/// A tenant's work.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Steps of the kernel; 0: an empty kernel. Several numbers: as many tenants in one context
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_value = "0")]
    pub(crate) steps: Vec<u32>,
    /// Length of each part, s
    #[arg(long, default_value_t = 1.0)]
    pub(crate) seconds: f64,
    /// Launches between two waits when only the number of launches counts
    #[arg(long, default_value_t = GROUP)]
    pub(crate) group: usize,
    /// The first tenant always has thousands of launches queued
    #[arg(long)]
    pub(crate) flood: bool,
    /// The first tenant, which floods, also reads again and again
    #[arg(long, requires = "flood")]
    pub(crate) reads: bool,
    /// Only print the steps that take this time on the device, s
    #[arg(long)]
    pub(crate) calibrate: Option<f64>,
}

/// The start of a tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Started {
    /// The device's name.
    pub(crate) device: String,
    /// Seconds from the load of the loader to the first context and queue.
    pub(crate) context: f64,
    /// Seconds from the load of the loader to the first result.
    pub(crate) first: f64,
}

/// Launch and finish, repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// The median in seconds.
    pub(crate) p50: f64,
    /// In seconds.
    pub(crate) p99: f64,
}

/// Launches in a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rate {
    /// Launches that have ended, per second.
    pub(crate) launches: f64,
}

struct Tenant {
    devices: Devices,
    kernel: Kernel,
    out: Memory,
    steps: u32,
    floods: bool,
    /// What a tenant that floods also reads.
    large: Option<Memory>,
}

/// Runs the tenants to their end.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let (mut tenants, started) = start(arguments)?;
    if let (Some(seconds), Some(tenant)) = (arguments.calibrate, tenants.first()) {
        println!("{}", tenant.calibrate(seconds)?);
        return Ok(());
    }
    let mut parts = std::io::stdin().lock().lines();
    let mut next_part = || parts.next().transpose();
    started.iter().try_for_each(print)?;
    let length = Duration::from_secs_f64(arguments.seconds);
    next_part()?;
    let latencies = at_once(&mut tenants, |tenant| tenant.latency(length))?;
    latencies.iter().try_for_each(print)?;
    next_part()?;
    let rates = at_once(&mut tenants, |tenant| tenant.rate(length, arguments.group))?;
    rates.iter().try_for_each(print)?;
    tenants.iter().try_for_each(Tenant::check)
}

/// Starts all tenants, in one context. Each has its first result on return.
fn start(arguments: &Arguments) -> Result<(Vec<Tenant>, Vec<Started>), Box<dyn std::error::Error>> {
    let (mut tenants, mut started) = (Vec::<Tenant>::new(), Vec::new());
    for steps in &arguments.steps {
        let begin = Instant::now();
        let devices = match tenants.first() {
            None => Devices::open(1)?,
            Some(tenant) => tenant.devices.beside()?,
        };
        let context = begin.elapsed().as_secs_f64();
        let floods = arguments.flood && tenants.is_empty();
        let mut tenant = Tenant::new(devices, *steps, floods)?;
        if arguments.reads && floods {
            tenant.large = Some(tenant.devices.buffer(READ)?);
        }
        tenant.launch()?;
        tenant.check()?;
        started.push(Started {
            device: tenant.devices.name(0)?,
            context,
            first: begin.elapsed().as_secs_f64(),
        });
        tenants.push(tenant);
    }
    Ok((tenants, started))
}

/// Has all tenants do their part at the same time, each on a thread of its own; what they return, in their order.
fn at_once<T: Send>(
    tenants: &mut [Tenant],
    part: impl Fn(&Tenant) -> Result<T, ClError> + Sync,
) -> Result<Vec<T>, ClError> {
    let part = &part;
    std::thread::scope(|scope| {
        let threads: Vec<_> = tenants
            .iter_mut()
            .map(|tenant| scope.spawn(move || part(tenant)))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .map(|part| part.unwrap_or(Err(ClError::NoDevice)))
            .collect()
    })
}

fn print(part: &impl Serialize) -> serde_json::Result<()> {
    println!("{}", serde_json::to_string(part)?);
    Ok(())
}

impl Tenant {
    fn new(devices: Devices, steps: u32, floods: bool) -> Result<Tenant, ClError> {
        let program = devices.build(SOURCE, "")?;
        let out = devices.buffer(4)?;
        let kernel = devices.kernel(
            program,
            "spin",
            &[Argument::Memory(out), Argument::Uint(steps)],
        )?;
        Ok(Tenant {
            devices,
            kernel,
            out,
            steps,
            floods,
            large: None,
        })
    }

    fn launch(&self) -> Result<(), ClError> {
        self.devices.enqueue(self.kernel)?;
        self.devices.finish(0)
    }

    /// Compares the kernel's result with the host's.
    fn check(&self) -> Result<(), Box<dyn std::error::Error>> {
        let mut result = [0; 4];
        self.devices.read(0, self.out, &mut result, &[])?;
        let expected = (0..self.steps).fold(self.steps, |value, _| {
            value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)
        });
        match u32::from_ne_bytes(result) {
            found if found == expected => Ok(()),
            found => Err(format!("a kernel's result is {found} and must be {expected}").into()),
        }
    }

    /// The steps that take `seconds` beyond an empty launch.
    fn calibrate(&self, seconds: f64) -> Result<u32, ClError> {
        let mut steps = 1000u32;
        // Doubled until the loop takes longer than a launch.
        loop {
            let (short, long) = (self.time(steps)?, self.time(steps.saturating_mul(2))?);
            let of_steps = long - short;
            if of_steps > 0.5 * seconds || steps > u32::MAX / 4 {
                return Ok((f64::from(steps) * seconds / of_steps.max(1e-9)) as u32);
            }
            steps = steps.saturating_mul(2);
        }
    }

    /// The median seconds of a launch with so many steps.
    fn time(&self, steps: u32) -> Result<f64, ClError> {
        let program = self.devices.build(SOURCE, "")?;
        let arguments = [Argument::Memory(self.out), Argument::Uint(steps)];
        let kernel = self.devices.kernel(program, "spin", &arguments)?;
        let mut times = Vec::with_capacity(CALIBRATION);
        for _ in 0..CALIBRATION {
            let begin = Instant::now();
            self.devices.enqueue(kernel)?;
            self.devices.finish(0)?;
            times.push(begin.elapsed().as_secs_f64());
        }
        Ok(quantile(&times, 0.5))
    }

    fn latency(&self, length: Duration) -> Result<Latency, ClError> {
        if self.floods {
            self.flood(length)?;
            // The neighbours are measured.
            return Ok(Latency::default());
        }
        let (begin, mut times) = (Instant::now(), Vec::new());
        while begin.elapsed() < length {
            let launched = Instant::now();
            self.launch()?;
            times.push(launched.elapsed().as_secs_f64());
        }
        Ok(Latency {
            p50: quantile(&times, 0.5),
            p99: quantile(&times, 0.99),
        })
    }

    fn rate(&self, length: Duration, group: usize) -> Result<Rate, ClError> {
        if self.floods {
            return self.flood(length);
        }
        let (begin, mut launches) = (Instant::now(), 0);
        while begin.elapsed() < length {
            for _ in 0..group {
                self.devices.enqueue(self.kernel)?;
            }
            self.devices.finish(0)?;
            launches += group;
        }
        Ok(Rate {
            launches: launches as f64 / begin.elapsed().as_secs_f64(),
        })
    }

    /// Always has between one and two floods queued.
    fn flood(&self, length: Duration) -> Result<Rate, ClError> {
        let (begin, mut launches) = (Instant::now(), 0);
        let many = || (0..FLOOD).try_for_each(|_| self.devices.enqueue(self.kernel));
        let marked = || self.devices.launch(0, self.kernel, &[1], &[]);
        let mut bytes = vec![0; self.large.map_or(0, |_| READ)];
        many()?;
        let mut last = marked()?;
        while begin.elapsed() < length {
            many()?;
            if let Some(large) = self.large {
                self.devices.read(0, large, &mut bytes, &[])?;
            }
            self.devices.wait(&[last])?;
            launches += FLOOD + 1;
            last = marked()?;
        }
        let rate = launches as f64 / begin.elapsed().as_secs_f64();
        self.devices.wait(&[last])?;
        Ok(Rate { launches: rate })
    }
}
