//! Each call arrives with the arguments given: the call logs of both sides, compared.
//!
//! The program `programs/calllog.c` runs on the fake driver, natively and through a
//! daemon whose OpenCL is the fake driver; each side's driver writes down what it is
//! asked. Both logs are told as a [`story`](story::Story), in which what Causeway does
//! by design has been put aside; the stories must be the same. What is put aside, and
//! why, is the table [`PUT_ASIDE`]; everything else in a log counts.

mod bytes;
mod commands;
mod line;
mod story;
mod teller;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::case::{Case, Verdict, first_difference};
use crate::programs::Programs;
use crate::sides::{Launch, Side, Sides, fake_driver};
use crate::{SetupError, io_error};

use line::Call;
use story::{Place, Story};

/// What differs between the logs and may, with the reason. `teller` and `commands` do what this says.
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
        "kernels of clCreateKernelsInProgram on the node",
        "signatures and sizes of arguments are found out on scratch kernels after a build",
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
        "a map is a client shadow: a read, and for writing a write at the unmap; else a marker",
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

/// A discrete device gets bulk bytes by staging, one with the host's memory by mapping.
const DEVICES: [(&str, &str); 2] = [
    ("discrete", "{ kind = \"gpu\" }"),
    ("unified", "{ kind = \"cpu\", unified_memory = true }"),
];

/// Longer than anything that is enqueued while the kernel `slow` runs takes to get there.
const SLOW_NS: u64 = 2_000_000_000;

/// How long a worker may take to end after its client.
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

/// Both sides over the fake driver, and where it logs.
struct Bench {
    sides: Sides,
    settings: String,
    logs: PathBuf,
    /// One at a time: a log on the node belongs to whoever ran last.
    turn: Mutex<()>,
}

impl Bench {
    /// `None` where the daemon is not ours to configure.
    fn open(sides: &Sides, driver: &Path, device: &str) -> Result<Option<Self>, SetupError> {
        let logs = sides.fresh_directory()?;
        let settings = format!("kernel.slow.ns = {SLOW_NS}; device = [{device}]");
        let variables = [
            ("FAKE_OPENCL_CONFIG", settings.clone()),
            (
                "FAKE_OPENCL_LOG",
                logs.join("node.%p").display().to_string(),
            ),
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
        let native = self.run(Side::Native, program, section)?;
        let causeway = self.run(Side::Causeway, program, section)?;
        let (native, causeway) = match (native, causeway) {
            (Ok(native), Ok(causeway)) => (native, causeway),
            (Err(why), _) => return Ok(Verdict::Failed(format!("native: {why}"))),
            (_, Err(why)) => return Ok(Verdict::Failed(format!("causeway: {why}"))),
        };
        Ok(match first_difference(&native, &causeway) {
            None => Verdict::Passed,
            Some(difference) => {
                Verdict::Failed(format!("{difference}\n  logs in {}", self.logs.display()))
            }
        })
    }

    /// Runs the program; the story of what reached the driver, or what went wrong.
    fn run(
        &self,
        side: Side,
        program: &Path,
        section: &str,
    ) -> Result<Result<String, String>, SetupError> {
        let native_log = self.logs.join(format!("native.{section}"));
        let before = self.node_logs()?;
        let launch = Launch::new(program)
            .args([section])
            .env("FAKE_OPENCL_CONFIG", &self.settings)
            .env("FAKE_OPENCL_LOG", native_log.display().to_string());
        let finished = self.sides.run(side, &launch)?;
        if !finished.succeeded() {
            return Ok(Err(format!("{}\n{}", finished.exit, finished.tail())));
        }
        let itself = side == Side::Native || !self.sides.is_causeway();
        let (log, place) = if itself {
            (native_log, Place::Native)
        } else {
            match self.worker_log(&before)? {
                Some(log) => (log, Place::Node),
                None => return Ok(Err("no worker has logged a context".to_owned())),
            }
        };
        let text = fs::read_to_string(&log).map_err(io_error("cannot read a call log"))?;
        if itself {
            fs::remove_file(&log).map_err(io_error("cannot remove a call log"))?;
        }
        let calls: Option<Vec<Call>> = text.lines().map(Call::parse).collect();
        Ok(match calls {
            Some(calls) => Ok(Story::of(&calls, place).to_string()),
            None => Err(format!("{} has lines that are no calls", log.display())),
        })
    }

    fn node_logs(&self) -> Result<BTreeSet<PathBuf>, SetupError> {
        let entries = fs::read_dir(&self.logs).map_err(io_error("cannot list call logs"))?;
        let paths = entries.flatten().map(|entry| entry.path());
        Ok(paths.filter(|path| path.extension().is_some()).collect())
    }

    /// The log of the worker that has made a context since, once it has ended.
    fn worker_log(&self, before: &BTreeSet<PathBuf>) -> Result<Option<PathBuf>, SetupError> {
        let made_context = |path: &PathBuf| {
            fs::read_to_string(path).is_ok_and(|text| text.contains("clCreateContext("))
        };
        // A spare worker had begun its log before: what counts is the context.
        let new = self.node_logs()?.into_iter().filter(made_context);
        let known = |path: &PathBuf| before.contains(path) && self.seen(path);
        let Some(log) = new.into_iter().find(|path| !known(path)) else {
            return Ok(None);
        };
        let pid = log.extension().map(|pid| Path::new("/proc").join(pid));
        let end = Instant::now() + PATIENCE;
        while pid.as_ref().is_some_and(|pid| pid.exists()) && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        let told = log.with_extension(format!(
            "{}-told",
            log.extension().unwrap_or_default().display()
        ));
        fs::rename(&log, &told).map_err(io_error("cannot rename a call log"))?;
        Ok(Some(told))
    }

    /// Whether a log has been told before.
    fn seen(&self, path: &Path) -> bool {
        path.to_string_lossy().ends_with("-told")
    }
}
