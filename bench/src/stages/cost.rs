//! Daemons with and without TLS, a device manager and the sandbox, each row's two sides in turn.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::side::{Node, Probed, values};
use super::{Cast, Error, Stage};
use crate::figures::Side;
use crate::manager::{Manager, Watcher};
use crate::nodes::run_within;
use crate::options::Options;
use crate::report::Line;
use crate::rows::{Feature, Row, Task, Way};
use crate::secured::Secured;
use crate::setup::Build;

/// Number of processes in a round that open a context.
const SAMPLES: usize = 5;
/// Timeout for such a process.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon's features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The default on loopback: no TLS, no manager, with the sandbox.
    Plain,
    Tls,
    Managed,
    NoSandbox,
}

impl Kind {
    /// The row's two sides: without the feature, and with it.
    fn of(feature: Feature) -> [Kind; 2] {
        match feature {
            Feature::Tls => [Kind::Plain, Kind::Tls],
            Feature::Manager => [Kind::Plain, Kind::Managed],
            Feature::Sandbox => [Kind::NoSandbox, Kind::Plain],
        }
    }
}

/// The stage.
pub(super) struct Cost {
    vendors: Option<PathBuf>,
    carrier: String,
    /// Programs by daemon, and by whether bytes use TCP only. This field is before the daemons, so that the
    /// programs end first.
    probes: BTreeMap<(Kind, bool), Probed>,
    nodes: BTreeMap<Kind, Node>,
    manager: Option<(Manager, Watcher)>,
    secured: Secured,
}

impl Cost {
    /// Starts nothing yet; daemons are started when a row needs them.
    pub(super) fn start(options: &Options) -> Result<Cost, Error> {
        Ok(Cost {
            vendors: options.native_vendors.clone(),
            carrier: options.carrier.clone(),
            probes: BTreeMap::new(),
            nodes: BTreeMap::new(),
            manager: None,
            secured: Secured::new()?,
        })
    }

    fn node(&mut self, kind: Kind) -> Result<&Node, Error> {
        if !self.nodes.contains_key(&kind) {
            if kind == Kind::Managed && self.manager.is_none() {
                let manager = Manager::start()?;
                let watcher = Watcher::new(manager.address())?;
                self.manager = Some((manager, watcher));
            }
            let build = Build::find()?;
            let state = build.scratch().to_path_buf();
            let keys = match kind {
                Kind::Tls => self.secured.keys(),
                _ => String::new(),
            };
            let tell = |daemon: &mut Command| match kind {
                Kind::Plain => {}
                Kind::Tls => self.secured.tell(daemon),
                Kind::NoSandbox => drop(daemon.arg("--no-sandbox")),
                Kind::Managed => {
                    let manager = self.manager.iter().map(|(manager, _)| manager.address());
                    daemon.arg("--manager").args(manager);
                    daemon.env("STATE_DIRECTORY", state);
                }
            };
            let node = Node::with(build, self.vendors.clone(), &self.carrier, &keys, tell)?;
            if let (Kind::Managed, Some((_, watcher))) = (kind, &self.manager) {
                watcher.see_devices(1)?;
            }
            self.nodes.insert(kind, node);
        }
        let node = self.nodes.get(&kind);
        node.ok_or_else(|| Error::Call("a daemon is gone".to_owned()))
    }

    fn values(&mut self, kind: Kind, row: &Row) -> Result<Vec<f64>, Error> {
        if row.task == Task::FirstContext {
            let times = (0..SAMPLES).map(|_| self.first_context(kind, row.way));
            return Ok(values(row, &times.collect::<Result<Vec<_>, _>>()?));
        }
        let key = (kind, row.way == Way::Tcp);
        if !self.probes.contains_key(&key) {
            let mut command = self.node(kind)?.causeway("probe", row.way)?;
            self.probes.insert(key, Probed::start(&mut command)?);
        }
        let probe = self.probes.get_mut(&key);
        probe
            .ok_or_else(|| Error::Call("a probe is gone".to_owned()))?
            .round(row, 0)
    }

    /// Nanoseconds of a process that ends before the next begins.
    fn first_context(&mut self, kind: Kind, way: Way) -> Result<u64, Error> {
        let node = self.node(kind)?;
        let mut command = node.causeway("first-context", way)?;
        if kind == Kind::Managed {
            let nobody = node.build.scratch().join("nobody.toml");
            std::fs::write(&nobody, "")?;
            command.env("CAUSEWAY_CONFIG", nobody);
        }
        if let (Kind::Managed, Some((manager, watcher))) = (kind, &self.manager) {
            // The device of the process before must be free again.
            watcher.see_no_lease()?;
            command
                .env("CAUSEWAY_MANAGER", manager.address())
                .env("CAUSEWAY_REQUEST", "1");
        }
        let told = run_within(&mut command, PATIENCE)?;
        let time = told.lines().last().and_then(|line| line.parse().ok());
        time.ok_or(Error::Call(format!("a time was expected, not: {told}")))
    }
}

impl Stage for Cost {
    fn round(&mut self, line: &mut Line) -> Result<(), Error> {
        let row = line.row.clone();
        let Some(feature) = row.feature else {
            return Err(Error::Call("there is nothing to be without".to_owned()));
        };
        let [without, with] = Kind::of(feature);
        line.samples.push(Side::Bare, self.values(without, &row)?);
        line.samples.push(Side::Causeway, self.values(with, &row)?);
        Ok(())
    }

    fn cast(&self) -> Cast {
        Cast::default()
    }
}
