//! Programs that run while networks, clients and workers fail at random times.
//!
//! Each case runs one program again and again until its share of the faults has happened. The case has its own nodes,
//! each behind a forwarder. Every run must print, exit and write as the native run does, within a time limit.
//! After the last run, no worker, descriptor or temporary file may be left. The first run has no faults.
//! [`schedule`] decides on faults, and [`injector`] makes them happen.

mod injector;
pub(super) mod made;
mod schedule;

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::faults::processes::{Process, children_of};
use crate::case::{Case, Verdict, first_difference};
use crate::options::Survival;
use crate::places::fake_driver;
use crate::programs::Programs;
use crate::sides::{self, Launch, Side, Sides};
use crate::suite::on_path;
use crate::{SetupError, io_error};
use injector::Injector;
use schedule::{Kind, Schedule};

/// Most runs in a row in which a program may report no move and no re-execution, if those are counted.
const MOST_FRUITLESS: u32 = 20;
/// Such runs in a row fail a program only after this time. Some programs end within 0.2 s on a fast machine, and most of
/// their runs meet no fault.
const MOST_FRUITLESS_TIME: Duration = Duration::from_secs(60);
/// Time limit of a run. A fault may last 20 s, and several may follow each other.
const RUN_WITHIN: Duration = Duration::from_secs(240);

/// Time limit of the programs' own watchdogs, which end before [`RUN_WITHIN`] and say what was done.
const WATCHED_FOR: Duration = Duration::from_secs(220);
/// The mean time between faults for which the faults have their usual durations.
const USUAL_MTBF: Duration = Duration::from_secs(2);
/// How many times shorter than usual faults last under which kernels cannot be built for half a minute.
const TOO_FAST: u64 = 8;

/// How long sessions survive, for longer than faults that follow each other. If the network fails when a program ends,
/// the node keeps its session for this time.
const RESUME: Duration = Duration::from_secs(120);
/// The same, if faults last a tenth.
const SHORT_RESUME: Duration = Duration::from_secs(20);

/// Time limit for workers to end, and for descriptors to close, after a run, beyond [`RESUME`] if there were faults.
const CLEAN_WITHIN: Duration = Duration::from_secs(15);

/// The name of the node whose address changes.
const NAME: &str = "causeway-node.test";

/// Behaviours of the fake driver for random programs.
const FAKE: &str = "order = 'random'; kernel.fails.fail = -5; kernel.fake_add_u32.ns = 300000; \
                    kernel.fake_copy.ns = 200000; kernel.fake_fill_u32.ns = 100000";

/// A program that must survive.
#[derive(Clone, Copy)]
struct Program {
    name: &'static str,
    /// The file among the built programs, or on the path if the program has a package.
    file: &'static str,
    /// The Debian package that contains the program. Without it, the case is skipped.
    package: Option<&'static str>,
    /// Whether the program is skipped if faults are [`TOO_FAST`], because its kernels take too long to build.
    slow: bool,
    arguments: &'static [&'static str],
    /// Arguments of the native run alone, or of the other run alone.
    natively: &'static [&'static str],
    elsewhere: &'static [&'static str],
    /// Number of nodes with the fake driver; none for one node with the system's driver.
    fakes: Option<usize>,
    /// Whether each run has its own `--seed`.
    seeded: bool,
    /// The file that the program writes. Its text is then not compared.
    writes: Option<&'static str>,
    /// Whether the program also has a case in which its workers are killed.
    killed: bool,
}

const PLAIN: Program = Program {
    name: "",
    file: "",
    package: None,
    slow: false,
    arguments: &[],
    natively: &[],
    elsewhere: &[],
    fakes: None,
    seeded: false,
    writes: None,
    killed: false,
};

const PROGRAMS: &[Program] = &[
    // The first two take longest.
    Program {
        name: "clfft",
        file: "fourier",
        arguments: &["--rounds", "100"],
        killed: true,
        ..PLAIN
    },
    Program {
        name: "hashcat",
        file: "hashcat",
        package: Some("hashcat"),
        slow: true,
        arguments: HASHCAT,
        ..PLAIN
    },
    Program {
        name: "mandelbrot",
        file: "mandelbrot",
        arguments: &["--width", "1024", "--height", "768", "--iterations", "6000"],
        writes: Some("mandelbrot.png"),
        killed: true,
        ..PLAIN
    },
    Program {
        name: "gradients",
        file: "gradients",
        arguments: &["--side", "256", "--steps", "300"],
        killed: true,
        ..PLAIN
    },
    Program {
        name: "coherence",
        file: "coherence",
        arguments: &["--computes", "0", "--rounds", "30"],
        natively: &["--devices", "1", "--gates", "0"],
        elsewhere: &["--devices", "3"],
        fakes: Some(3),
        seeded: true,
        ..PLAIN
    },
    Program {
        name: "graphs",
        file: "graphs",
        arguments: &["--devices", "3", "--graphs", "150", "--failing", "1"],
        fakes: Some(3),
        seeded: true,
        ..PLAIN
    },
    // On one node, whose daemon is restarted.
    Program {
        name: "one-coherence",
        file: "coherence",
        arguments: &["--computes", "0", "--rounds", "30", "--devices", "1"],
        natively: &["--gates", "0"],
        fakes: Some(1),
        seeded: true,
        killed: true,
        ..PLAIN
    },
    Program {
        name: "one-graphs",
        file: "graphs",
        arguments: &["--devices", "1", "--graphs", "150", "--failing", "1"],
        fakes: Some(1),
        seeded: true,
        ..PLAIN
    },
    Program {
        name: "threads",
        file: "threads",
        arguments: &["queues"],
        killed: true,
        ..PLAIN
    },
    Program {
        name: "threads-map",
        file: "threads",
        arguments: &["maps"],
        killed: true,
        ..PLAIN
    },
    Program {
        name: "images",
        file: "api-images",
        arguments: &["image_kernels", "60"],
        killed: true,
        ..PLAIN
    },
    Program {
        name: "printf",
        file: "api-printf",
        arguments: &["printf_of_several_queues", "60"],
        ..PLAIN
    },
    // What several queues print comes in another order if it is executed again; see the limits in icd/README.md.
    Program {
        name: "printf-one-queue",
        file: "api-printf",
        arguments: &["printf_mixes_with_the_programs_own_text", "60"],
        killed: true,
        ..PLAIN
    },
    Program {
        name: "callbacks",
        file: "api-callbacks",
        arguments: &["callback_many_events", "60"],
        killed: true,
        ..PLAIN
    },
    Program {
        name: "halo-map",
        file: "api-ordering",
        arguments: &["halo_exchange_through_map", "60"],
        killed: true,
        ..PLAIN
    },
    Program {
        name: "out-of-order",
        file: "api-ordering",
        arguments: &["out_of_order_diamond", "60"],
        killed: true,
        ..PLAIN
    },
    Program {
        name: "command-buffers",
        file: "api-command_buffers",
        arguments: &["command_buffers_replay_what_was_recorded", "60"],
        ..PLAIN
    },
];

/// Finds the word with this MD5 sum by its mask. The small workload makes many launches.
const HASHCAT: &[&str] = &[
    "-m0",
    "-a3",
    "-O",
    "-n8",
    "-u8",
    "-D1,2",
    "--force",
    "--quiet",
    "--potfile-disable",
    "--restore-disable",
    "--logfile-disable",
    "69c459dd76c6198f72f0c20ddd3c9447",
    "?l?l?l?l?l",
];

pub(super) fn cases(programs: &Programs, sides: &Sides) -> Result<Vec<Case>, SetupError> {
    if sides.daemons().is_empty() || !fake_driver().exists() {
        let reason = "faults need daemons of the runner's own, and the fake driver";
        return Ok(vec![Case::skipped("survival", reason)]);
    }
    let (moves, kills) = sides.survival.only.unwrap_or((true, true));
    let is_plain = |program: &&Program| match sides.survival.only {
        Some(_) => moves && program.is_parked(),
        None => true,
    };
    let is_killed = |program: &&Program| kills && program.killed;
    let all = || PROGRAMS.iter();
    let count = all().filter(is_plain).count() + all().filter(is_killed).count();
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let share = sides.survival.faults.div_ceil(count);
    let mut cases = Vec::new();
    for (program, number) in PROGRAMS.iter().zip(0..) {
        if !is_plain(&program) && !is_killed(&program) {
            continue;
        }
        let name = format!("survival/{}", program.name);
        let path = match program.package {
            Some(package) if !on_path(program.file) => {
                cases.push(Case::skipped(name, format!("apt-get install {package}")));
                continue;
            }
            Some(_) => PathBuf::from(program.file),
            None => programs.path(program.file)?,
        };
        if program.slow && faster(sides.survival) >= TOO_FAST {
            let reason = "its kernels take too long to build for faults in such quick succession";
            cases.push(Case::skipped(name, reason));
            continue;
        }
        if is_killed(&program) {
            let path = path.clone();
            cases.push(Case::new(format!("{name}-killed"), move |sides| {
                survive(sides, program, &path, number + 500, share, true)
            }));
        }
        if is_plain(&program) {
            cases.push(Case::new(name, move |sides| {
                survive(sides, program, &path, number, share, false)
            }));
        }
    }
    Ok(cases)
}

impl Program {
    /// Whether the program's sessions can be parked: sessions with links never are.
    fn is_parked(&self) -> bool {
        self.fakes.is_none_or(|of| of == 1) && self.name != "command-buffers"
    }
}

/// Returns how many times shorter than usual faults last.
fn faster(settings: Survival) -> u64 {
    match settings.tenth {
        true => 10,
        false => shortened(settings.mtbf),
    }
}

/// Returns how many times shorter faults last that follow each other after `mtbf`. With the usual durations, faults in
/// quick succession would leave nearly no time with a connection: every fourth lasts for seconds.
fn shortened(mtbf: Duration) -> u64 {
    let times = USUAL_MTBF.as_millis() / mtbf.as_millis().max(1);
    u64::try_from(times).unwrap_or(u64::MAX).clamp(1, 10)
}

/// The workers of a daemon.
fn workers_of(daemon: Pid) -> Vec<Process> {
    let mut workers = children_of(daemon);
    workers.retain(|worker| worker.has_argument("--internal-worker"));
    workers
}

/// The hosts file of a program: the node's name has this address.
fn hosts_file(address: IpAddr) -> String {
    format!("127.0.0.1 localhost\n{address} {NAME}\n")
}

fn survive(
    sides: &Sides,
    program: &Program,
    path: &Path,
    number: u64,
    share: u32,
    killed: bool,
) -> Result<Verdict, SetupError> {
    let settings = sides.survival;
    let faster = faster(settings);
    let directory = sides.fresh_directory()?;
    // Two daemons cannot have one directory.
    let restarts = program.is_parked();
    // A lease moves to a node of its own.
    let moves = restarts && sides.cluster().is_some();
    let file = daemon_file(&directory, faster, restarts && !moves)?;
    let driver = fake_driver();
    let fake = program.fakes.map(|_| (driver.as_path(), FAKE));
    let nodes = program.fakes.unwrap_or(1);
    let name = format!(
        "survival-{}{}",
        program.name,
        if killed { "-killed" } else { "" }
    );
    let daemons = nodes + usize::from(moves);
    let Some(nodes) = sides.forwarded(&name, (nodes, daemons), fake, &file)? else {
        return Ok(Verdict::Skipped("the daemons are given".to_owned()));
    };
    let renames = program.fakes.is_none() && nodes.cluster().is_none() && can_mount(&directory);
    let applies =
        |kind| is_wanted(settings, kind) && can_happen(kind, program, &nodes, killed, renames);
    let seed = sides.effort.seed + 1000 * number;
    let schedule = Schedule::new(seed, settings.mtbf, faster, applies);
    let mut trial = Trial {
        sides: &nodes,
        program,
        path,
        injector: Injector::new(schedule, settings.only.map_or(share, |_| u32::MAX)),
        wanted: settings.only.map(|_| share),
        survived: 0,
        killed,
        resume: if settings.tenth { SHORT_RESUME } else { RESUME },
        home: directory.clone(),
        native: None,
        base: None,
        longest: Duration::ZERO,
    };
    if renames {
        trial.injector.hosts = Some(directory.join("hosts"));
    }
    if let Err(why) = trial.once(Side::Native, sides.effort.seed, false)? {
        let why = why.lines().last().unwrap_or_default().to_owned();
        return Ok(Verdict::Skipped(format!("it fails natively: {why}")));
    }
    trial.run_all(sides.effort.seed)
}

/// Whether a fault of this kind can happen to the program, and the program can survive it. `renames`: the program reads
/// the name of its node from a file of its own.
fn can_happen(kind: Kind, program: &Program, nodes: &Sides, killed: bool, renames: bool) -> bool {
    let is_managed = nodes.cluster().is_some();
    let restarts = program.is_parked();
    match kind {
        Kind::LinkReset | Kind::LinkSilence => nodes.nodes > 1,
        Kind::Address => renames,
        Kind::ManagerStopped => is_managed,
        Kind::Drain => restarts && is_managed,
        // A session of a lease is not parked for the next daemon.
        Kind::Restart => restarts && !is_managed,
        // PoCL writes a kernel's text by one call. If the process is stopped in that call, the rest of the text is lost,
        // also natively.
        Kind::WorkerStopped => !program.name.starts_with("printf"),
        Kind::WorkerKilled => killed,
        // A node takes its checkpoints with it.
        Kind::DaemonKilled => {
            killed && std::env::var_os(sides::HOLD).is_some_and(|of| of == "client")
        }
        _ => true,
    }
}

/// Writes the settings of the daemons.
fn daemon_file(directory: &Path, faster: u64, parks: bool) -> Result<PathBuf, SetupError> {
    let file = directory.join("daemon.toml");
    let (interval, limit) = (500 / faster, 4000 / faster);
    let parked = match parks {
        true => format!("[survival]\ndirectory = {:?}\n", directory.join("parked")),
        false => String::new(),
    };
    // With `--together`, nothing is left of a program soon after its end.
    let idle = "[sharing]\nhost_idle = \"1s\"\n";
    let text = format!("{parked}{idle}[heartbeat]\ninterval_ms = {interval}\nlimit_ms = {limit}\n");
    fs::write(&file, text).map_err(io_error("cannot write daemon.toml"))?;
    Ok(file)
}

/// Whether the options ask for faults of this kind.
fn is_wanted(settings: Survival, kind: Kind) -> bool {
    let Some((moves, kills)) = settings.only else {
        return true;
    };
    match kind {
        Kind::Restart | Kind::Drain => moves,
        Kind::WorkerKilled | Kind::DaemonKilled => kills,
        _ => false,
    }
}

/// Whether a program can have a hosts file of its own.
fn can_mount(directory: &Path) -> bool {
    let hosts = directory.join("hosts");
    let written = fs::write(&hosts, hosts_file(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let mut mount = std::process::Command::new("unshare");
    mount.args(mounting(&hosts)).arg("true");
    written.is_ok() && mount.output().is_ok_and(|ended| ended.status.success())
}

/// The arguments of `unshare` that give a program this hosts file. The program follows them.
fn mounting(hosts: &Path) -> Vec<String> {
    let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    ["--mount", "--", "sh", "-c", script]
        .into_iter()
        .map(str::to_owned)
        .chain([hosts.display().to_string()])
        .collect()
}

/// A program, and what its earlier runs have shown.
struct Trial<'s> {
    sides: &'s Sides,
    program: &'s Program,
    path: &'s Path,
    injector: Injector,
    /// How many moves and re-executions are to be survived, if that counts and not the number of faults.
    wanted: Option<u32>,
    survived: u32,
    /// Whether workers are killed.
    killed: bool,
    /// How long sessions survive.
    resume: Duration,
    /// Where programs keep caches and data.
    home: PathBuf,
    /// What the native run showed, if it is the same for all runs.
    native: Option<Shown>,
    /// Descriptors of the daemons and temporary files after the run without faults.
    base: Option<(usize, usize)>,
    /// The longest run through Causeway.
    longest: Duration,
}

/// The text and the file of a run.
type Shown = (String, Vec<u8>);

impl Trial<'_> {
    fn is_done(&mut self) -> bool {
        match self.wanted {
            Some(wanted) => self.survived >= wanted,
            None => self.injector.is_done(),
        }
    }

    /// Runs the program until its share of the faults has happened. The first run has seed `first`, and no faults.
    fn run_all(&mut self, first: u64) -> Result<Verdict, SetupError> {
        let begin = Instant::now();
        let (mut runs, mut fruitless, mut fruit) = (0, 0, begin);
        while runs == 0 || !self.is_done() {
            let before = self.survived;
            let mut ended = self.run(first + runs, runs > 0)?;
            // A session whose farewell a fault has swallowed lasts for some time. The next run need not wait for that,
            // unless it needs the lease.
            if ended.is_ok() && (runs == 0 || self.is_done() || self.sides.cluster().is_some()) {
                ended = self.until_clean(runs > 0);
            }
            if let Err(why) = ended {
                let (count, counts) = (self.injector.count(), &self.injector.counts);
                return Ok(Verdict::Failed(format!(
                    "seed {first}, run {runs}, after {count} faults {counts:?}: {why}"
                )));
            }
            runs += 1;
            fruitless += 1;
            if self.survived > before || self.wanted.is_none() {
                (fruitless, fruit) = (0, Instant::now());
            }
            if fruitless > MOST_FRUITLESS && fruit.elapsed() > MOST_FRUITLESS_TIME {
                return Ok(Verdict::Failed(format!(
                    "seed {first}: {fruitless} runs in a row reported no move and no re-execution"
                )));
            }
        }
        Ok(Verdict::Noted(self.summary(runs, begin.elapsed())))
    }

    fn summary(&self, runs: u64, took: Duration) -> String {
        let counts = self.injector.counts.iter();
        let counts: Vec<_> = counts.map(|(name, of)| format!("{of} {name}")).collect();
        let renames = self.injector.hosts.is_some() || self.program.fakes.is_some();
        let lack = match renames {
            true => "",
            false => "; no other addresses, which needs root and a mount",
        };
        format!(
            "{} faults, {} moves and re-executions in {runs} runs and {:.0} s, the longest run {:.1} s: {}{lack}",
            self.injector.count(),
            self.survived,
            took.as_secs_f64(),
            self.longest.as_secs_f64(),
            counts.join(", "),
        )
    }

    fn run(&mut self, seed: u64, faults: bool) -> Result<Result<(), String>, SetupError> {
        let native = match self.native.take() {
            Some(native) => native,
            None => match self.once(Side::Native, seed, false)? {
                Ok(native) => native,
                Err(why) => return Ok(Err(format!("native: {why}"))),
            },
        };
        let begin = Instant::now();
        let here = match self.once(Side::Causeway, seed, faults)? {
            Ok(here) => here,
            Err(why) => return Ok(Err(why)),
        };
        self.longest = self.longest.max(begin.elapsed());
        if let Some(difference) = first_difference(&native.0, &here.0) {
            return Ok(Err(difference));
        }
        if native.1 != here.1 {
            return Ok(Err("the files differ".to_owned()));
        }
        if !self.program.seeded {
            self.native = Some(native);
        }
        Ok(Ok(()))
    }

    fn once(
        &mut self,
        side: Side,
        seed: u64,
        faults: bool,
    ) -> Result<Result<Shown, String>, SetupError> {
        let directory = self.sides.fresh_directory()?;
        let launch = self.launch(side, seed, &directory)?;
        let sides = self.sides;
        if faults && side == Side::Causeway {
            injector::wait_until_quiet(sides);
        }
        let injector = &mut self.injector;
        let finished = thread::scope(|scope| {
            let (pid, started) = mpsc::channel();
            let (ends, ended) = mpsc::channel::<()>();
            if faults && side == Side::Causeway {
                scope.spawn(move || injector.attend(sides, &started, &ended));
            }
            let finished = sides.run_watched(side, &launch, |process| {
                let _ = pid.send(process);
            });
            drop((ends, pid));
            finished
        })?;
        if !finished.succeeded() {
            return Ok(Err(finished.failure()));
        }
        if side == Side::Causeway {
            self.survived += made::count(&finished);
        }
        Ok(Ok(match self.program.writes {
            Some(name) => {
                let file = fs::read(directory.join(name));
                (
                    String::new(),
                    file.map_err(io_error("cannot read the program's file"))?,
                )
            }
            None => (finished.stdout, Vec::new()),
        }))
    }

    /// How the program runs on this side.
    fn launch(&self, side: Side, seed: u64, directory: &Path) -> Result<Launch, SetupError> {
        let program = self.program;
        let more = match side {
            Side::Causeway => program.elsewhere,
            _ => program.natively,
        };
        let mut arguments: Vec<String> = program
            .arguments
            .iter()
            .map(|of| (*of).to_owned())
            .collect();
        arguments.extend(more.iter().map(|of| (*of).to_owned()));
        if program.seeded {
            arguments.extend(["--seed".to_owned(), seed.to_string()]);
        }
        let devices = program.fakes.unwrap_or(1);
        let launch = match (&self.injector.hosts, side) {
            (Some(hosts), Side::Causeway) => Launch::new("unshare")
                .args(mounting(hosts))
                .args([self.path.display().to_string()])
                .servers(self.named()?),
            _ => Launch::new(self.path),
        };
        Ok(launch
            .args(arguments)
            .directory(directory)
            // Later runs find the kernels that a program keeps, but no other program's.
            .env("XDG_CACHE_HOME", self.home.display().to_string())
            .env("XDG_DATA_HOME", self.home.display().to_string())
            .env("FAKE_OPENCL_CONFIG", format!("devices = {devices}; {FAKE}"))
            .env(sides::RESUME, format!("{}s", self.resume.as_secs()))
            .env("CONFORMANCE_WATCHDOG", WATCHED_FOR.as_secs().to_string())
            .env("CAUSEWAY_REEXECUTE", if self.killed { "1" } else { "0" })
            .limit(RUN_WITHIN))
    }

    /// The servers by name, which the hosts file resolves.
    fn named(&self) -> Result<String, SetupError> {
        let daemon = self.sides.daemons().first();
        let address = daemon.map(|daemon| daemon.address()).transpose()?;
        let hosts: PathBuf = self.injector.hosts.clone().unwrap_or_default();
        fs::write(hosts, hosts_file(self.injector.address()))
            .map_err(io_error("cannot write the hosts file"))?;
        let address = address.unwrap_or_default();
        let port = address.rsplit(':').next().unwrap_or_default();
        Ok(format!("{NAME}:{port}"))
    }

    /// Waits until workers have ended, descriptors are closed and files are gone.
    fn until_clean(&mut self, faults: bool) -> Result<(), String> {
        let limit = match faults {
            true => CLEAN_WITHIN + self.resume,
            false => CLEAN_WITHIN,
        };
        let end = Instant::now() + limit;
        loop {
            let daemons = self.sides.daemons().iter().filter_map(|of| of.pid());
            let daemons: Vec<Pid> = daemons.collect();
            let workers: usize = daemons.iter().map(|of| workers_of(*of).len()).sum();
            let descriptors: usize = daemons.iter().map(|of| open_descriptors(*of)).sum();
            let files = fs::read_dir(self.sides.temporary()).map_or(0, Iterator::count);
            let (most_descriptors, most_files) = match self.base {
                Some(base) => base,
                None if workers == 0 => {
                    // The run without faults shows what stays open.
                    thread::sleep(Duration::from_millis(500));
                    self.base = Some((daemons.iter().map(|of| open_descriptors(*of)).sum(), files));
                    return Ok(());
                }
                None => (usize::MAX, usize::MAX),
            };
            if workers == 0 && descriptors <= most_descriptors && files <= most_files {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!(
                    "{workers} workers, {descriptors} descriptors and {files} files are left after {} s; \
                     {most_descriptors} descriptors and {most_files} files are usual",
                    limit.as_secs()
                ));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Number of open descriptors of a process.
fn open_descriptors(process: Pid) -> usize {
    let folder = format!("/proc/{}/fd", process.as_raw_pid());
    fs::read_dir(folder).map_or(0, Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_in_quick_succession_last_shorter() {
        let of = |millis| shortened(Duration::from_millis(millis));
        let millis = [60_000, 2000, 1001, 1000, 500, 250, 1];
        assert_eq!(millis.map(of), [1, 1, 1, 2, 4, 8, 10]);
    }
}
