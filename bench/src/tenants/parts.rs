//! Two tenants on shares of one device that have 25 and 75 percent of its time.
//!
//! Invariant: both launch all the time while they are measured.
#![forbid(unsafe_code)]

use std::io;
use std::path::Path;

use serde::Serialize;

use super::program::{Latency, Rate, Started};
use super::{Side, answers, go_on};
use crate::manager::{Manager, Watcher};
use crate::setup::{Build, Process};

/// Parts of the time, in percent.
const PARTS: [u32; 2] = [25, 75];
/// Launches between two `clFinish`, so that the end of the measurement is exact.
const GROUP: usize = 4;

/// The parts that two tenants got.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Parts {
    side: Side,
    /// Launches a second of the tenant that got less, and of the other.
    launches: [f64; 2],
}

impl Parts {
    /// The side, and the part of the tenant that got less, in percent.
    pub(super) fn of_the_smaller(&self) -> (Side, f64) {
        let [less, more] = self.launches;
        (self.side, 100.0 * less / (less + more).max(1e-9))
    }

    /// Runs two tenants that launch kernels of this many steps.
    pub(super) fn run(
        build: &Build,
        client: &Path,
        vendors: Option<&Path>,
        side: Side,
        steps: u32,
        seconds: f64,
    ) -> io::Result<Parts> {
        let manager = Manager::start()?;
        let _node = node(build, vendors, &manager, side)?;
        Watcher::new(manager.address())?.see_devices(1)?;
        let start = || -> io::Result<_> {
            let mut command = build.own("tenant", Some(client), None)?;
            command
                .env("CAUSEWAY_MANAGER", manager.address())
                .env("CAUSEWAY_REQUEST", "1")
                .args(["--steps", &steps.to_string()])
                .args(["--group", &GROUP.to_string()])
                .args(["--seconds", &seconds.to_string()]);
            Ok((Process::start(&mut command)?, 1))
        };
        let mut tenants = vec![start()?, start()?];
        answers::<Started>(&mut tenants)?;
        go_on(&mut tenants)?;
        answers::<Latency>(&mut tenants)?;
        go_on(&mut tenants)?;
        let rates: Vec<Rate> = answers(&mut tenants)?;
        let mut launches = [rates[0].launches, rates[1].launches];
        launches.sort_by(f64::total_cmp);
        Ok(Parts { side, launches })
    }
}

fn node(
    build: &Build,
    vendors: Option<&Path>,
    manager: &Manager,
    side: Side,
) -> io::Result<Process> {
    let name = side.name();
    let state = build.scratch().join(format!("parts-{name}"));
    std::fs::create_dir_all(&state)?;
    let together = if side == Side::Together {
        "all"
    } else {
        "none"
    };
    let config = state.join("daemon.toml");
    let text = format!(
        "[[shares]]\ndevice = \"0.0\"\ncount = {}\ntime = {PARTS:?}\ntogether = \"{together}\"\n",
        PARTS.len()
    );
    std::fs::write(&config, text)?;
    let mut command = build.daemon_command("127.0.0.1:0", vendors)?;
    command
        .arg("--config")
        .arg(config)
        .args(["--manager", manager.address()])
        .env("STATE_DIRECTORY", state);
    Ok(Build::listening(&mut command)?.0)
}
