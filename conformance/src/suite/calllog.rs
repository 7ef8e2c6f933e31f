//! Checks that each call reaches the driver with the given arguments, by comparing the call logs of both sides.
//!
//! The program `programs/calllog.c` runs on the fake driver, natively and through a daemon whose OpenCL is
//! the fake driver. Each side's driver logs the calls it gets. Both logs are converted to a
//! [`story`](story::Story), without the differences that Causeway makes by design. The stories must be equal.
//! The table [`PUT_ASIDE`] lists these differences with their reasons; everything else in a log counts.

mod bytes;
mod commands;
mod line;
mod story;
mod teller;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::case::{Case, Verdict, first_difference};
use crate::places::fake_driver;
use crate::programs::Programs;
use crate::sides::{Launch, Side, Sides};
use crate::{SetupError, io_error};

use line::Call;
use story::{LogOwner, Story};

/// Permitted differences between the logs, with their reasons. `teller` and `commands` implement this.
const PUT_ASIDE: &[(&str, &str)] = &[
    (
        "clGet…, clRetain…, clSetEventCallback, clFlush, clFinish, clWaitForEvents",
        "answered, counted and waited for by the client; the worker asks and waits in ways of its own",
    ),
    (
        "clSetKernelArg",
        "travels with the launch, only what has changed; the launch shows the values it ran with",
    ),
    (
        "kernels that are asked for their names on the node",
        "the worker finds signatures and sizes of arguments on scratch kernels after a build",
    ),
    (
        "clCreateUserEvent, clSetUserEventStatus, user events in wait lists",
        "a gated command is held by the worker and reaches the driver when the gate is open",
    ),
    (
        "blocking flags, events nobody gave for, pointers",
        "waiting is the client's; every command has an event on the node; addresses are the process's",
    ),
    (
        "host-pointer and host-access flags of buffers",
        "host memory is the client's; its contents at creation are compared",
    ),
    (
        "-cl-kernel-arg-info among options, and in the bytes of binaries",
        "added by the worker, which must know the kinds of arguments",
    ),
    (
        "maps and unmaps of the application",
        "a map is a client shadow: a read, and for writing a write at the unmap; else a marker, and nothing on an idle queue \
         if no event is asked for",
    ),
    (
        "maps and unmaps of the worker, staging buffers and their queues, markers behind pieces",
        "the ways of bulk bytes into and out of device memory; their pieces are put together",
    ),
    (
        "queues and commands that bring a buffer's contents at creation",
        "large contents follow the creation; they are compared as contents",
    ),
    (
        "host origins and pitches of rectangles, rectangles that are plain ranges",
        "bytes travel packed; the device's side and the bytes are compared",
    ),
    (
        "order between queues, between programs, and between creations and commands",
        "no order that OpenCL gives; within a queue, and among buffers and queues, it counts",
    ),
    (
        "order and time of releases",
        "they follow the work that needs the object; that each comes once counts",
    ),
];

/// The sections of the program.
const SECTIONS: [&str; 10] = [
    "buffers",
    "transfers",
    "bulk",
    "rectangles",
    "maps",
    "launches",
    "programs",
    "waits",
    "gates",
    "queues",
];

/// Bulk bytes use staging on a discrete device, and mapping on one with host memory.
const DEVICES: [(&str, &str); 2] = [
    ("discrete", "{ kind = \"gpu\" }"),
    ("unified", "{ kind = \"cpu\", unified_memory = true }"),
];

/// Longer than the time in which commands enqueued while the kernel `slow` runs reach the driver.
const SLOW_NS: u64 = 2_000_000_000;

/// Time limit for a worker to drop released objects.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn cases(programs: &Programs, sides: &Sides) -> Result<Vec<Case>, SetupError> {
    let program = programs.path("calllog")?;
    let driver = fake_driver();
    if !driver.exists() {
        let reason = format!("there is no {}", driver.display());
        return Ok(vec![Case::skipped("calllog", reason)]);
    }
    let mut cases = vec![Case::new("calllog/put-aside", |_| {
        let lines = PUT_ASIDE.iter().map(|(what, why)| format!("{what}: {why}"));
        Ok(Verdict::Noted(lines.collect::<Vec<_>>().join("\n")))
    })];
    for (device, table) in DEVICES {
        let Some(bench) = Bench::open(sides, &driver, table)? else {
            return Ok(vec![Case::skipped(
                "calllog",
                "the driver of a daemon given by --server cannot be chosen",
            )]);
        };
        let bench = Arc::new(bench);
        for section in SECTIONS {
            let (bench, program) = (bench.clone(), program.clone());
            cases.push(Case::new(
                format!("calllog/{device}/{section}"),
                move |_| bench.compare(&program, section),
            ));
        }
    }
    Ok(cases)
}

/// A story, or the error on the way to it.
type Told = Result<Result<Story, String>, SetupError>;

/// Both sides over the fake driver, and its log directory.
struct Bench {
    sides: Sides,
    settings: String,
    logs: PathBuf,
    /// Serialises the cases, because a log on the node belongs to the case that ran last.
    turn: Mutex<()>,
}

impl Bench {
    /// Opens both sides; `None` if the daemon cannot be configured.
    fn open(sides: &Sides, driver: &Path, device: &str) -> Result<Option<Self>, SetupError> {
        let logs = sides.fresh_directory()?;
        let settings = format!("kernel.slow.ns = {SLOW_NS}; device = [{device}]");
        let variables = [
            ("FAKE_OPENCL_CONFIG", settings.clone()),
            (
                "FAKE_OPENCL_LOG",
                logs.join("node.%p").display().to_string(),
            ),
            ("CAUSEWAYD_SANDBOX_WRITE", logs.display().to_string()),
        ];
        let over = sides.over(driver, &variables)?;
        Ok(over.map(|sides| Self {
            sides,
            settings,
            logs,
            turn: Mutex::default(),
        }))
    }

    fn compare(&self, program: &Path, section: &str) -> Result<Verdict, SetupError> {
        let _turn = self.turn.lock();
        let native = match self.run_natively(program, section)? {
            Ok(story) => story,
            Err(why) => return Ok(Verdict::Failed(format!("native: {why}"))),
        };
        let causeway = if self.sides.is_causeway() {
            self.run_through_causeway(program, section, &native)?
        } else {
            self.run_natively(program, section)?
        };
        let causeway = match causeway {
            Ok(story) => story,
            Err(why) => return Ok(Verdict::Failed(format!("causeway: {why}"))),
        };
        let difference = first_difference(&native.to_string(), &causeway.to_string());
        Ok(difference.map_or(Verdict::Passed, Verdict::Failed))
    }

    fn launch(&self, program: &Path, section: &str) -> Launch {
        Launch::new(program)
            .args([section])
            .env("FAKE_OPENCL_CONFIG", &self.settings)
    }

    fn run_natively(&self, program: &Path, section: &str) -> Told {
        let log = self.logs.join("native");
        let launch = self.launch(program, section);
        let launch = launch.env("FAKE_OPENCL_LOG", log.display().to_string());
        let finished = self.sides.run(Side::Native, &launch)?;
        if !finished.succeeded() {
            return Ok(Err(format!("{}\n{}", finished.exit, finished.tail())));
        }
        let story = read(&log, LogOwner::Native)?;
        fs::remove_file(&log).map_err(io_error("cannot remove a call log"))?;
        Ok(story)
    }

    /// Runs the program and keeps it from ending until the worker has released the same objects as the native
    /// run. The end of the session would end everything, so objects that are not released yet would never be.
    fn run_through_causeway(&self, program: &Path, section: &str, native: &Story) -> Told {
        let hold = self.logs.join("hold");
        fs::write(&hold, "").map_err(io_error("cannot write a file"))?;
        let launch = self.launch(program, section);
        let launch = launch.env("CALLLOG_HOLD", hold.display().to_string());
        let finished = thread::scope(|scope| {
            scope.spawn(|| {
                let end = Instant::now() + PATIENCE;
                while Instant::now() < end && hold.exists() && !self.has_released(native) {
                    thread::sleep(Duration::from_millis(5));
                }
                let _ = fs::remove_file(&hold);
            });
            let finished = self.sides.run(Side::Causeway, &launch);
            let _ = fs::remove_file(&hold);
            finished
        })?;
        if !finished.succeeded() {
            return Ok(Err(format!("{}\n{}", finished.exit, finished.tail())));
        }
        let Some(log) = self.worker_log()? else {
            return Ok(Err("no worker has logged a context".to_owned()));
        };
        let story = read(&log, LogOwner::Node)?;
        // The log has been read. A log found later belongs to another session.
        fs::remove_file(&log).map_err(io_error("cannot remove a call log"))?;
        Ok(story)
    }

    fn has_released(&self, native: &Story) -> bool {
        let log = self.worker_log().ok().flatten();
        let story = log.and_then(|log| read(&log, LogOwner::Node).ok()?.ok());
        story.is_some_and(|story| story.released() == native.released())
    }

    /// Returns the log of the worker that has made a context; other workers only probe.
    fn worker_log(&self) -> Result<Option<PathBuf>, SetupError> {
        let entries = fs::read_dir(&self.logs).map_err(io_error("cannot list call logs"))?;
        let mut logs = entries.flatten().map(|entry| entry.path()).filter(|path| {
            path.file_stem().is_some_and(|stem| stem == "node")
                && fs::read_to_string(path).is_ok_and(|text| text.contains("clCreateContext("))
        });
        Ok(logs.next())
    }
}

/// Converts a log to a story. The inner error is a log that cannot be converted.
fn read(log: &Path, place: LogOwner) -> Told {
    let text = fs::read_to_string(log).map_err(io_error("cannot read a call log"))?;
    // An unfinished line is still being written, so it is ignored.
    let lines = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    let calls: Option<Vec<Call>> = lines.map(|line| Call::parse(line.trim_end())).collect();
    Ok(calls
        .map(|calls| Story::of(&calls, place))
        .ok_or_else(|| format!("{} has lines that are no calls", log.display())))
}
