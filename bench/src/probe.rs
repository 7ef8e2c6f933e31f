//! The measuring side: one process per platform, a round at a time.
//!
//! The runner writes one JSON [`Request`] a line; the answer is one JSON [`Samples`] a line.

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::opencl::{self, Buffer, ClError, Kernel, Session};
use crate::rows::Row;

/// What the runner asks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// What to measure.
    pub(crate) row: Row,
    /// A number that no other request of this run has; makes sources unique.
    pub(crate) nonce: u64,
}

/// What the probe answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Samples {
    /// Nanoseconds of each repetition; for transfers, the whole transfer's.
    pub(crate) nanoseconds: Vec<u64>,
    /// The error, when there is one.
    pub(crate) error: Option<String>,
}

const SOURCE: &str =
    "__kernel void touch(__global uint *data) { if (data[0] == 0xffffffffu) data[0] = 1; }";

/// Answers requests until standard input ends.
pub(crate) fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let probe = Probe::open()?;
    println!("{}", serde_json::to_string(&probe.session.device_name()?)?);
    for line in std::io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line?)?;
        let samples = match probe.measure(&request) {
            Ok(nanoseconds) => Samples {
                nanoseconds,
                error: None,
            },
            Err(error) => Samples {
                nanoseconds: Vec::new(),
                error: Some(error.to_string()),
            },
        };
        println!("{}", serde_json::to_string(&samples)?);
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// Prints the nanoseconds of a fresh process's first enumeration.
pub(crate) fn first_devices() -> Result<(), Box<dyn std::error::Error>> {
    let begin = Instant::now();
    opencl::enumerate()?;
    println!("{}", begin.elapsed().as_nanos());
    Ok(())
}

struct Probe {
    session: Session,
    small: Buffer,
    kernel: Kernel,
}

impl Probe {
    fn open() -> Result<Probe, ClError> {
        let session = Session::open()?;
        let small = session.buffer(4096)?;
        session.write(small, &[0; 4096], true)?;
        let kernel = session.kernel(SOURCE, "touch", small)?;
        session.launch(kernel)?;
        session.finish()?;
        Ok(Probe {
            session,
            small,
            kernel,
        })
    }

    fn measure(&self, request: &Request) -> Result<Vec<u64>, ClError> {
        match request.row {
            Row::EnqueueFlood => self.each(1000, None, || self.session.launch(self.kernel)),
            Row::EnqueuePaced => self.each(500, Some(Duration::from_micros(100)), || {
                self.session.launch(self.kernel)
            }),
            Row::WriteFlood => {
                let data = vec![0u8; 4096];
                let samples =
                    self.each(500, None, || self.session.write(self.small, &data, false))?;
                drop(data);
                Ok(samples)
            }
            Row::LaunchFinish => self.each(500, None, || {
                self.session.launch(self.kernel)?;
                self.session.finish()
            }),
            Row::Pipelined => self.pipelined(2000),
            Row::ReadSmall => {
                let mut four = [0; 4];
                self.each(500, None, || self.session.read(self.small, &mut four))
            }
            Row::BuildCold => {
                let source = SOURCE.replace("touch", &format!("touch_{}", request.nonce));
                self.each(1, None, || self.session.build(&source))
            }
            Row::Write(size) | Row::Read(size) | Row::MapRead(size) | Row::MapWrite(size) => {
                self.transfer(request.row, size as usize)
            }
            Row::Commands => self.pipelined(100_000),
            // Needs a process of its own.
            Row::FirstDevices => Ok(Vec::new()),
        }
    }

    // Times each call by itself, then waits for all.
    fn each(
        &self,
        count: usize,
        pace: Option<Duration>,
        mut call: impl FnMut() -> Result<(), ClError>,
    ) -> Result<Vec<u64>, ClError> {
        let mut samples = Vec::with_capacity(count);
        let mut next = Instant::now();
        for _ in 0..count {
            if let Some(pace) = pace {
                // Spun, not slept: a program that computes between its calls keeps its core.
                while Instant::now() < next {
                    std::hint::spin_loop();
                }
                next += pace;
            }
            let begin = Instant::now();
            call()?;
            samples.push(begin.elapsed().as_nanos() as u64);
        }
        self.session.finish()?;
        Ok(samples)
    }

    fn pipelined(&self, count: u64) -> Result<Vec<u64>, ClError> {
        let begin = Instant::now();
        for _ in 0..count {
            self.session.launch(self.kernel)?;
        }
        self.session.finish()?;
        Ok(vec![begin.elapsed().as_nanos() as u64 / count])
    }

    fn transfer(&self, row: Row, size: usize) -> Result<Vec<u64>, ClError> {
        let buffer = self.session.buffer(size)?;
        // Written once, so that no page is touched for the first time inside the measurement.
        let mut data = vec![1u8; size];
        let repetitions = (256 << 20) / size.clamp(4 << 20, 256 << 20);
        let mut once = || match row {
            Row::Write(_) => self
                .session
                .write(buffer, &data, true)
                .and_then(|()| self.session.finish()),
            Row::Read(_) => self.session.read(buffer, &mut data),
            Row::MapWrite(_) => self.session.map(buffer, size, true, |bytes| bytes[0] = 1),
            _ => self.session.map(buffer, size, false, |bytes| {
                black_box(bytes[bytes.len() - 1]);
            }),
        };
        once()?;
        let mut samples = Vec::with_capacity(repetitions);
        for _ in 0..repetitions {
            let begin = Instant::now();
            once()?;
            samples.push(begin.elapsed().as_nanos() as u64);
        }
        self.session.release(buffer)?;
        Ok(samples)
    }
}
