//! A program's first work, in a process of its own for each sample, on daemons with and without contexts that are
//! made before a session.
//!
//! All daemons have a build cache that knows the program, and one spare worker. A sample begins when the spare
//! worker, or the host, is ready. A native program builds anew; the driver's own cache may help it.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::side::Node;
use super::{Error, Stage};
use crate::figures::Side;
use crate::nodes::run_within;
use crate::options::Options;
use crate::report::Line;
use crate::rows::{Task, WarmIn, Way};
use crate::setup::Build;

/// Number of samples in a round.
const SAMPLES: usize = 5;
/// Timeout for a program, and for a daemon to be ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before a sample, in which a spare worker that has no context to make loads the drivers.
const LOADING: Duration = Duration::from_secs(1);
/// Pause between two looks at a daemon.
const POLL: Duration = Duration::from_millis(20);
const CACHE_BYTES: u64 = 64 << 20;

/// The stage.
pub(super) struct Programs {
    vendors: Option<PathBuf>,
    carrier: String,
    daemons: BTreeMap<Option<WarmIn>, Daemon>,
}

struct Daemon {
    node: Node,
    metrics: String,
}

impl Programs {
    /// Starts nothing yet; daemons are started when a row needs them.
    pub(super) fn start(options: &Options) -> Programs {
        Programs {
            vendors: options.native_vendors.clone(),
            carrier: options.carrier.clone(),
            daemons: BTreeMap::new(),
        }
    }

    /// The daemon with these warm contexts, or without any.
    fn daemon(&mut self, warm: Option<WarmIn>) -> Result<&Daemon, Error> {
        if !self.daemons.contains_key(&warm) {
            let daemon = Daemon::start(self.vendors.clone(), &self.carrier, warm)?;
            self.daemons.insert(warm, daemon);
        }
        let daemon = self.daemons.get(&warm);
        daemon.ok_or_else(|| Error::Call("a daemon is gone".to_owned()))
    }

    fn sample(&mut self, side: Side, warm: WarmIn) -> Result<f64, Error> {
        let warm = (side == Side::Causeway).then_some(warm);
        let daemon = self.daemon(warm)?;
        let mut command = match side {
            Side::Native => daemon.node.native("first-program")?,
            _ => {
                daemon.ready(warm)?;
                daemon.node.causeway("first-program", Way::Own)?
            }
        };
        nanoseconds(&run_within(&mut command, PATIENCE)?)
    }
}

fn nanoseconds(text: &str) -> Result<f64, Error> {
    let time = text.lines().last().and_then(|line| line.parse().ok());
    time.ok_or(Error::Call(format!("a time was expected, not: {text}")))
}

impl Daemon {
    /// Starts a daemon, and runs the program once, so that the build cache knows it.
    fn start(
        vendors: Option<PathBuf>,
        carrier: &str,
        warm: Option<WarmIn>,
    ) -> Result<Daemon, Error> {
        let build = Build::find()?;
        let settings = build.scratch().join("daemon.toml");
        let table = warm.map_or("", |_| "[sessions]\nwarm = \"all\"\n");
        std::fs::write(&settings, table)?;
        let mut node = Node::with(build, vendors, carrier, "", |daemon| {
            daemon.env("CAUSEWAYD_BUILD_CACHE_SIZE", CACHE_BYTES.to_string());
            daemon.arg("--config").arg(&settings);
            daemon.args(["--metrics", "127.0.0.1:0", "--spare-workers", "1"]);
            if warm == Some(WarmIn::Host) {
                daemon.args(["--together", "user"]);
            }
        })?;
        let line = node.daemon.line()?;
        let metrics = line.strip_prefix("metrics on ").map(str::to_owned);
        let metrics = metrics.ok_or_else(|| Error::Call(format!("not an address: {line}")))?;
        let daemon = Daemon { node, metrics };
        // The program below begins the host, which keeps what the spare worker has made.
        daemon.ready(warm.map(|_| WarmIn::Spare))?;
        let mut command = daemon.node.causeway("first-program", Way::Own)?;
        run_within(&mut command, PATIENCE)?;
        until("the build is not in the cache", || {
            Ok(daemon.node.cached_builds() > 0)
        })?;
        Ok(daemon)
    }

    /// Waits until the worker of the next session is ready.
    fn ready(&self, warm: Option<WarmIn>) -> Result<(), Error> {
        sleep(LOADING);
        let name = match warm {
            None => "causeway_workers_spare",
            Some(WarmIn::Spare) => "causeway_warm_contexts{by=\"spare\"}",
            Some(WarmIn::Host) => "causeway_warm_contexts{by=\"host\"}",
        };
        until(name, || {
            let no_session = warm != Some(WarmIn::Host) || self.count("causeway_sessions")? == 0;
            Ok(no_session && self.count(name)? > 0)
        })
    }

    /// A count of `/metrics`.
    fn count(&self, name: &str) -> Result<u64, Error> {
        let mut socket = TcpStream::connect(&self.metrics)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        let mut lines = answer.lines();
        let count = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        count.ok_or_else(|| Error::Call(format!("the daemon has no count {name}")))
    }
}

/// Waits until something holds.
fn until(what: &str, mut holds: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
    let end = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() > end {
            return Err(Error::Call(format!("not within {PATIENCE:?}: {what}")));
        }
        sleep(POLL);
    }
    Ok(())
}

impl Stage for Programs {
    fn round(&mut self, line: &mut Line) -> Result<(), Error> {
        let Task::FirstProgram(warm) = line.row.task else {
            return Err(Error::Call("not a program's first work".to_owned()));
        };
        for _ in 0..SAMPLES {
            for side in [Side::Native, Side::Bare, Side::Causeway] {
                let value = self.sample(side, warm)?;
                line.samples.push(side, vec![value]);
            }
        }
        Ok(())
    }
}
