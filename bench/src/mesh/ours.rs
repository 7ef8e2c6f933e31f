//! Real daemons that announce themselves, each on a host of its own.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use causeway_discovery::{Search, SearchProgress};
use causeway_network::{Host, Network};
use causeway_security::Authority;

use crate::setup::{Build, Process, set_vendors};

type Error = Box<dyn std::error::Error>;

/// Starts a daemon on each of these hosts, with a state folder of its own. The daemons have no devices and no spare workers,
/// because none of the two experiments opens a session, and 64 daemons share a machine. Nobody else can reach the hosts, so no
/// authentication is needed.
pub(crate) fn start(
    build: &Build,
    state: &Path,
    hosts: &[Host],
    flags: impl Fn(&Host) -> io::Result<Vec<OsString>>,
) -> io::Result<Vec<(Process, String)>> {
    let no_drivers = build.scratch().join("no-drivers");
    std::fs::create_dir_all(&no_drivers)?;
    let mut daemons = Vec::new();
    for host in hosts {
        let name = name(host);
        let mut command: Command = host.command(build.part("causewayd")?);
        command.args(["--listen", &format!("{}:0", host.address()), "--insecure"]);
        command
            .args(["--log", "error", "--name", &name])
            .args(["--spare-workers", "0"])
            .args(flags(host)?);
        command.env("XDG_STATE_HOME", state.join(&name));
        set_vendors(&mut command, Some(&no_drivers));
        daemons.push(Build::listening(&mut command)?);
    }
    Ok(daemons)
}

/// The name of a host's node.
fn name(host: &Host) -> String {
    format!("host{}", host.index())
}

fn valid() -> Range<SystemTime> {
    let day = Duration::from_secs(86_400);
    SystemTime::now() - day..SystemTime::now() + 100 * day
}

/// The flags of a daemon that announces itself under its host's name. A node announces its certificate's name.
fn announced(ca: &Authority, folder: &Path, host: &Host) -> Result<Vec<OsString>, Error> {
    let issued = ca.node(&[name(host)], valid())?;
    let file = |kind: &str| folder.join(format!("{}.{kind}", name(host)));
    let mut flags = vec![OsString::from("--announce")];
    for (flag, kind, contents) in [
        ("--tls-certificate", "pem", issued.certificate.as_bytes()),
        ("--tls-key", "key", issued.key.reveal()),
    ] {
        let path = file(kind);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(contents))?;
        flags.extend([flag.into(), path.into()]);
    }
    Ok(flags)
}

/// Seconds from the moment when the last daemon listens until a search on each host has found all others.
pub(crate) fn all_know_all(hosts: usize, limit: Duration) -> Result<f64, Error> {
    let network = Network::builder().hosts(hosts).build()?;
    let (build, state) = (Build::find()?, tempfile::tempdir()?);
    let (ca, _) = Authority::generate("bench", valid())?;
    let flags = |host: &Host| {
        announced(&ca, state.path(), host).map_err(|error| io::Error::other(error.to_string()))
    };
    let daemons = start(&build, state.path(), network.hosts(), flags)?;
    let begun = Instant::now();
    let knows = std::thread::scope(|scope| {
        let searches: Vec<_> = network
            .hosts()
            .iter()
            .map(|host| {
                scope.spawn(|| host.enter(|| knows_all(host, network.hosts(), begun + limit)))
            })
            .collect();
        let ends = searches.into_iter().map(|search| search.join());
        ends.collect::<Result<Vec<_>, _>>()
    });
    let took = begun.elapsed();
    drop(daemons);
    let knows = knows.map_err(|_| io::Error::other("a search has panicked"))?;
    for knows in knows {
        if !knows?? {
            return Err(io::Error::other("a host has not found all others in time").into());
        }
    }
    Ok(took.as_secs_f64())
}

/// Searches on a host, whose network this thread is in, until all others are found. A program keeps what an earlier search
/// has found, and so does this.
fn knows_all(own: &Host, hosts: &[Host], until: Instant) -> io::Result<bool> {
    let others = hosts.iter().filter(|host| host.index() != own.index());
    let mut missing: BTreeSet<String> = others.map(name).collect();
    while Instant::now() < until {
        let mut search = Search::begin(Vec::new(), false).map_err(io::Error::other)?;
        let end = Instant::now() + Duration::from_secs(1);
        loop {
            match search.step(end)? {
                SearchProgress::Over => break,
                SearchProgress::Nothing => {}
                SearchProgress::New => {
                    for of in search.found() {
                        missing.remove(&of.name);
                    }
                }
            }
            if missing.is_empty() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
