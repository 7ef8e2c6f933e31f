//! The recorder of a program's timeline, which `CAUSEWAY_TRACE` turns on.
//!
//! ```text
//! any thread ─► buffer ─► thread cw-trace: timeline, ring (causeway-trace) ─► file
//! ```
//! Every layer reports what it does. A thread that finds the buffer full waits for room. If nothing is written for a
//! second, reports are lost until there is room, and the file says how many. If the file cannot be written, the program
//! goes on without a trace.
//!
//! Not here: slices, tracks and the format. Invariants: without the variable, each report costs one load of a
//! static. A child of `fork` and a program with more rights than its user write nothing.
#![forbid(unsafe_code)]

mod call;
mod names;
mod nodes;
mod writer;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use call::{call, thread_in_call, waiting};
pub(crate) use causeway_trace::record;
use causeway_trace::record::{Ended, Moment, Record};
pub(crate) use names::lasting;
pub(crate) use nodes::{name_node, node};
use parking_lot::{Condvar, Mutex, MutexGuard};
use writer::Writer;

use crate::fork::Mark;
use crate::stderr;
use crate::thread::{self, Stack};

/// The environment variable with the path of the file. `%p` in it stands for the process's id, and `%%` for `%`.
pub const VARIABLE: &str = "CAUSEWAY_TRACE";

/// How often reports are written. A killed program loses those of the last interval.
const INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of reports in the buffer.
const MOST: usize = 1 << 18;
/// With this number of reports in the buffer, they are written before the interval ends.
const MANY: usize = MOST / 8;
/// Longest wait at the process's end for the thread that writes. Nothing interrupts it, but a disk may be slow.
const WRITER_PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait for room in the buffer without progress, and at the process's end for a thread that reports.
const PATIENCE: Duration = Duration::from_secs(1);

static IS_ON: AtomicBool = AtomicBool::new(false);
static RECORDER: OnceLock<Recorder> = OnceLock::new();

/// The times of a command whose node's clock was not known at its end. Waits no longer than the argument for the clock.
/// `None` if the clock is not known by then.
pub(crate) type LateTimes = Box<dyn Fn(Duration) -> Option<Option<[Moment; 5]>> + Send>;

/// A report. Threads pass on many of these, so their size matters.
enum Report {
    Whole(Record),
    /// The end of a command whose times are not known yet.
    Late(Ended, LateTimes),
}

#[derive(Default)]
struct Buffer {
    reports: Vec<Report>,
    lost: u64,
    // A wait for room has timed out, and there has been no room since.
    is_stuck: bool,
}

struct Recorder {
    buffer: Mutex<Buffer>,
    many: Condvar,
    room: Condvar,
    // Number of reports that the writer has taken.
    progress: AtomicU64,
    // The process that is traced. Its children have a copy of the recorder, and none of its threads.
    process: Mark,
    // `None` once the trace has ended.
    writer: Mutex<Option<Writer>>,
}

/// Whether the program is traced.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
        && RECORDER
            .get()
            .is_some_and(|recorder| !recorder.process.is_child())
}

/// Begins the trace if the environment asks for it. `open` creates the file, or opens it. Only the first call has an
/// effect.
pub(crate) fn init(open: impl FnOnce(&Path) -> io::Result<File>) {
    let Some(path) = path() else { return };
    if RECORDER.get().is_some() {
        return;
    }
    let begun = open(&path).and_then(|file| Writer::new(file, path.clone()));
    let begun = begun.and_then(|writer| {
        let recorder = Recorder {
            buffer: Mutex::default(),
            many: Condvar::new(),
            room: Condvar::new(),
            progress: AtomicU64::new(0),
            process: Mark::this_process(),
            writer: Mutex::new(Some(writer)),
        };
        let recorder = RECORDER.get_or_init(|| recorder);
        thread::start("cw-trace", Stack::Small, || recorder.write_until_end()).map(drop)
    });
    match begun {
        Ok(()) => IS_ON.store(true, Ordering::Release),
        Err(error) => stderr::say(format_args!(
            "{VARIABLE}: {} cannot be written ({error}); the program runs without a trace",
            path.display()
        )),
    }
}

fn path() -> Option<PathBuf> {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    // In a setuid program the user controls the environment, so the variable does not count.
    let is_plain = getuid() == geteuid() && getgid() == getegid();
    let path = std::env::var_os(VARIABLE).filter(|path| is_plain && !path.is_empty())?;
    Some(with_id(&path, std::process::id()))
}

fn with_id(path: &OsString, id: u32) -> PathBuf {
    let (mut rest, mut whole) = (path.as_bytes(), Vec::new());
    while let Some((byte, behind)) = rest.split_first() {
        rest = match (byte, behind.first()) {
            (b'%', Some(b'p')) => {
                whole.extend(id.to_string().bytes());
                &behind[1..]
            }
            (b'%', Some(b'%')) => {
                whole.push(b'%');
                &behind[1..]
            }
            _ => {
                whole.push(*byte);
                behind
            }
        };
    }
    OsString::from_vec(whole).into()
}

/// Reports something.
pub(crate) fn report(record: Record) {
    put(Report::Whole(record));
}

/// Reports that a command has ended, whose times are not known yet.
pub(crate) fn ended_late(ended: Ended, times: LateTimes) {
    put(Report::Late(ended, times));
}

fn put(report: Report) {
    let Some(recorder) = RECORDER.get().filter(|_| is_on()) else {
        return;
    };
    let mut buffer = recorder.buffer.lock();
    while buffer.reports.len() >= MOST && is_on() {
        let before = recorder.progress.load(Ordering::Relaxed);
        // The writer needs no lock that the caller may have.
        let waits = !buffer.is_stuck;
        let timed_out = waits && recorder.room.wait_for(&mut buffer, PATIENCE).timed_out();
        let no_progress = recorder.progress.load(Ordering::Relaxed) == before;
        if !waits || (timed_out && no_progress) {
            buffer.is_stuck = true;
            buffer.lost += 1;
            return;
        }
    }
    buffer.reports.push(report);
    if buffer.reports.len() == MANY {
        recorder.many.notify_one();
    }
}

/// Ends the trace at the end of the process.
pub(crate) fn finish() {
    if !is_on() || !IS_ON.swap(false, Ordering::AcqRel) {
        return;
    }
    let Some(recorder) = RECORDER.get() else {
        return;
    };
    let Some(mut writer) = recorder.writer_at_end() else {
        return;
    };
    // A thread that a signal handler has interrupted, which called `exit`, may have this lock for ever.
    let Some(mut buffer) = recorder.buffer.try_lock_for(PATIENCE) else {
        return;
    };
    let buffer = std::mem::take(&mut *buffer);
    if let Some(writer) = writer.take() {
        writer.finish(buffer, &recorder.progress);
    }
}

impl Recorder {
    // Waits for the thread that writes, as long as it makes progress.
    fn writer_at_end(&self) -> Option<MutexGuard<'_, Option<Writer>>> {
        loop {
            let before = self.progress.load(Ordering::Relaxed);
            let writer = self.writer.try_lock_for(WRITER_PATIENCE);
            if writer.is_some() || self.progress.load(Ordering::Relaxed) == before {
                return writer;
            }
        }
    }

    fn write_until_end(&self) {
        let mut reports = Vec::new();
        loop {
            {
                let mut buffer = self.buffer.lock();
                if buffer.reports.len() < MANY {
                    self.many.wait_for(&mut buffer, INTERVAL);
                }
            }
            // Locked before reports are taken, so that `finish` finds them either here or written.
            let mut writer = self.writer.lock();
            let Some(active) = writer.as_mut() else {
                return;
            };
            let lost = {
                let mut buffer = self.buffer.lock();
                std::mem::swap(&mut buffer.reports, &mut reports);
                buffer.is_stuck = false;
                self.room.notify_all();
                std::mem::take(&mut buffer.lost)
            };
            if !active.write(&mut reports, lost, &self.progress) {
                IS_ON.store(false, Ordering::Release);
                *writer = None;
                self.room.notify_all();
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_id_takes_its_place_in_the_path() {
        for (path, whole) in [
            ("trace", "trace"),
            ("%p.%p", "7.7"),
            ("a%pb%c%", "a7b%c%"),
            ("%", "%"),
            ("%%p/%%%p", "%p/%7"),
        ] {
            assert_eq!(with_id(&path.into(), 7), Path::new(whole), "{path}");
        }
    }
}
