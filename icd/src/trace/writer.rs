//! Writes reports to the file: the timeline and the ring, and the file that they are for.
//!
//! Invariant: a report whose times are not known yet is kept back, and written at the end in any case.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use causeway_trace::record::{Ended, Record};
use causeway_trace::ring::{FileChange, Missing, Ring, Sizes};
use causeway_trace::timeline::{Process, Slice, Timeline};
use rustix::fs::{FlockOperation, flock};

use super::{Buffer, LateTimes, MOST, Report, VARIABLE};
use crate::host_clock::host_ns;
use crate::stderr;

/// Longest wait at the end for the clocks of all nodes.
const CLOCK_PATIENCE: Duration = Duration::from_millis(500);
/// After this number of steps for the file, they are carried out.
const MANY_STEPS: usize = 64;

pub(super) struct Writer {
    file: File,
    path: PathBuf,
    timeline: Timeline,
    ring: Ring,
    stated: Missing,
    // Ended commands whose times are not known yet.
    kept_back: Vec<(Ended, LateTimes)>,
    drawn: Vec<Slice>,
    steps: Vec<FileChange>,
}

impl Writer {
    /// Begins a trace in an empty file.
    ///
    /// # Errors
    /// Those of the file. Another process has the file as its trace.
    pub(super) fn new(file: File, path: PathBuf) -> io::Result<Writer> {
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let reason = "another process writes its trace there; %p in the name stands for the process's id";
            return Err(io::Error::other(reason));
        }
        file.set_len(0)?;
        let id = std::process::id();
        let mut steps = Vec::new();
        let ring = Ring::new(Sizes::default(), id, &mut steps);
        let timeline = Timeline::new(Process {
            id,
            name: program(),
            salt: rand::random(),
        });
        ring.state(timeline.tracks(), host_ns(), &mut steps);
        let mut writer = Writer {
            file,
            path,
            timeline,
            ring,
            stated: Missing::default(),
            kept_back: Vec::new(),
            drawn: Vec::new(),
            steps,
        };
        writer.stated = *writer.ring.missing();
        writer.carry_out()?;
        Ok(writer)
    }

    /// Writes reports. `lost` is the number of those for which there was no room behind them. Returns false if the trace
    /// has ended, because the file cannot be written.
    pub(super) fn write(
        &mut self,
        reports: &mut Vec<Report>,
        lost: u64,
        progress: &AtomicU64,
    ) -> bool {
        let written = self.try_to_write(reports, lost, progress);
        reports.clear();
        if let Err(error) = written {
            self.give_up(&error);
            return false;
        }
        true
    }

    /// Writes the last reports, and says that the trace is complete.
    pub(super) fn finish(mut self, buffer: Buffer, progress: &AtomicU64) {
        let Buffer {
            mut reports, lost, ..
        } = buffer;
        if !self.write(&mut reports, lost, progress) {
            return;
        }
        let finished = self.give_times(CLOCK_PATIENCE).and_then(|()| {
            self.timeline.finish(&mut self.drawn);
            self.draw();
            self.ring.missing().unended = self.timeline.open_commands();
            self.ring.missing().is_open = false;
            self.ring.finish(&mut self.steps);
            self.state();
            self.carry_out()
        });
        if let Err(error) = finished {
            self.give_up(&error);
        }
    }

    fn try_to_write(
        &mut self,
        reports: &mut Vec<Report>,
        lost: u64,
        progress: &AtomicU64,
    ) -> io::Result<()> {
        for report in reports.drain(..) {
            progress.fetch_add(1, Ordering::Relaxed);
            match report {
                Report::Whole(record) => self.take(record)?,
                Report::Late(ended, times) => self.kept_back.push((ended, times)),
            }
        }
        self.give_times(Duration::ZERO)?;
        if lost > 0 || self.kept_back.len() > MOST {
            let kept_back = std::mem::take(&mut self.kept_back).len() as u64;
            let commands = self.timeline.lose();
            let missing = self.ring.missing();
            missing.reports += lost + kept_back;
            missing.lost_commands += commands;
        }
        self.ring.commit(&mut self.steps);
        if self.stated != *self.ring.missing() {
            self.state();
        }
        self.carry_out()
    }

    // Takes the ended commands whose times are known. Each wait lasts at most `patience`, and only the first one of a
    // clock lasts at all.
    fn give_times(&mut self, patience: Duration) -> io::Result<()> {
        let is_last = !patience.is_zero();
        for (mut ended, times) in std::mem::take(&mut self.kept_back) {
            match times(patience) {
                None if !is_last => self.kept_back.push((ended, times)),
                known => {
                    ended.times = known.flatten();
                    self.take(Record::Ended(ended))?;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, record: Record) -> io::Result<()> {
        self.timeline.take(record, &mut self.drawn);
        self.draw();
        match self.steps.len() > MANY_STEPS {
            true => self.carry_out(),
            false => Ok(()),
        }
    }

    fn draw(&mut self) {
        for slice in self.drawn.drain(..) {
            self.ring
                .add(&slice, self.timeline.tracks(), &mut self.steps);
        }
    }

    fn state(&mut self) {
        self.stated = *self.ring.missing();
        self.ring
            .state(self.timeline.tracks(), host_ns(), &mut self.steps);
    }

    fn carry_out(&mut self) -> io::Result<()> {
        for step in self.steps.drain(..) {
            match step {
                FileChange::Write { at, bytes } => self.file.write_all_at(&bytes, at)?,
                FileChange::Length(length) => self.file.set_len(length)?,
            }
        }
        Ok(())
    }

    fn give_up(&mut self, error: &io::Error) {
        stderr::say(format_args!(
            "the trace {} ends here ({error}); the program goes on. {VARIABLE} may name a file on another disk",
            self.path.display()
        ));
        // The statement has its place on the disk already, so there is room for it.
        self.steps.clear();
        self.ring.missing().unwritable = true;
        self.ring.missing().is_open = false;
        self.state();
        let _ = self.carry_out();
    }
}

fn program() -> String {
    let path = std::env::args_os().next().map(PathBuf::from);
    let name = path.as_deref().and_then(|path| path.file_name());
    name.map_or_else(
        || "program".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}
