//! The processes of the farm's workers: a thread for each, which starts the process again when it ends.
//!
//! Not here: who gets which work. Invariant: a worker that has ended is reported once, before it is ready again. All end
//! with this process, because their input does.
#![forbid(unsafe_code)]

use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::farm::WorkerId;
use super::frame::{Frame, write_floats};

/// The time until a worker that has ended is started again. Its node may not be back yet.
const AGAIN: Duration = Duration::from_millis(20);

/// What a worker reports.
#[derive(Debug)]
pub(super) enum Event {
    /// The worker has its device and the factor.
    Ready,
    /// A result.
    Result(Frame),
    /// The worker or its node is lost.
    Gone(io::Error),
}

/// The workers.
pub(super) struct Pool {
    work: Vec<Sender<Frame>>,
    events: Receiver<(WorkerId, Event)>,
}

/// What a worker's thread needs to start its process.
struct WorkerThread {
    worker: WorkerId,
    server: String,
    factor: Arc<Vec<f32>>,
    size: usize,
    grain: usize,
    work: Receiver<Frame>,
    events: Sender<(WorkerId, Event)>,
}

impl Pool {
    /// Starts a worker for each server.
    pub(super) fn start(
        servers: &[String],
        factor: Vec<f32>,
        size: usize,
        grain: usize,
    ) -> io::Result<Pool> {
        let factor = Arc::new(factor);
        let (sender, events) = channel();
        let mut pool = Pool {
            work: Vec::new(),
            events,
        };
        for (number, server) in servers.iter().enumerate() {
            let (give, work) = channel();
            let thread = WorkerThread {
                worker: WorkerId(number),
                server: server.clone(),
                factor: Arc::clone(&factor),
                size,
                grain,
                work,
                events: sender.clone(),
            };
            std::thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || thread.keep())?;
            pool.work.push(give);
        }
        Ok(pool)
    }

    /// The number of workers.
    pub(super) fn count(&self) -> usize {
        self.work.len()
    }

    /// Gives work to a worker. If the worker has just ended, the next process of its thread gets the work.
    pub(super) fn give(&self, worker: WorkerId, work: Frame) {
        // A thread ends only with the pool.
        let _ = self.work[worker.0].send(work);
    }

    /// The next event; `None` if none comes within `patience`.
    pub(super) fn next_within(&self, patience: Duration) -> Option<(WorkerId, Event)> {
        self.events.recv_timeout(patience).ok()
    }
}

impl WorkerThread {
    /// Keeps the worker running until the pool ends.
    fn keep(self) {
        loop {
            let Err(error) = self.serve() else {
                return;
            };
            if !self.report(Event::Gone(error)) {
                return;
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Whether the pool still listens.
    fn report(&self, event: Event) -> bool {
        self.events.send((self.worker, event)).is_ok()
    }

    /// Runs one process to the end of the pool, or of the process, which is an error.
    fn serve(&self) -> io::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("matrix-worker")
            .args(["--size", &self.size.to_string()])
            .args(["--grain", &self.grain.to_string()])
            .env("CAUSEWAY_SERVERS", &self.server)
            // A node that is gone is lost at once, because the farm needs no session to survive.
            .env("CAUSEWAY_RESUME", "0s")
            .env("CAUSEWAY_RESTART", "0s")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Process(command.spawn()?);
        let pipes = (process.0.stdin.take(), process.0.stdout.take());
        let (Some(mut input), Some(mut output)) = pipes else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let ended = || io::Error::other("the process has ended");
        write_floats(&mut input, &self.factor)?;
        let most = self.grain * self.size;
        Frame::read(&mut output, 0)?.ok_or_else(ended)?;
        if !self.report(Event::Ready) {
            return Ok(());
        }
        for work in &self.work {
            work.write(&mut input)?;
            let result = Frame::read(&mut output, most)?.ok_or_else(ended)?;
            if result.name != work.name || result.rows.len() != work.rows.len() {
                return Err(io::Error::other("the result is of other work"));
            }
            if !self.report(Event::Result(result)) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// A process that ends with its thread.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
