//! `causeway links --measure` among real daemons. The host of the tool takes part.
#![forbid(unsafe_code)]

use std::io;
use std::process::Stdio;
use std::time::{Duration, Instant};

use causeway_network::{Network, Rate};

use crate::mesh::ours::start;
use crate::setup::Build;

type Error = Box<dyn std::error::Error>;

/// Rate of each cable: so slow that two processors can fill all of them.
const RATE: Rate = Rate::mbit(50);

/// Measures all pairs of so many hosts, `seconds` in each direction. Returns the seconds that it took.
pub(super) fn sweep(hosts: usize, seconds: u32, limit: Duration) -> Result<f64, Error> {
    let network = Network::builder().hosts(hosts).rate(RATE).build()?;
    let (build, state) = (Build::find()?, tempfile::tempdir()?);
    let daemons = start(&build, state.path(), &network.hosts()[1..], |_| {
        Ok(Vec::new())
    })?;
    let servers: Vec<&str> = daemons
        .iter()
        .map(|(_, address)| address.as_str())
        .collect();
    let mut tool = network.host(0).command("timeout");
    tool.arg(limit.as_secs().to_string())
        .arg(build.part("causeway")?);
    // A sweep of eight hosts takes more than the 10 s that a daemon measures in a minute.
    tool.args([
        "links",
        "--measure",
        "--force",
        "--seconds",
        &seconds.to_string(),
    ]);
    tool.env("CAUSEWAY_SERVERS", servers.join(","))
        .env("XDG_STATE_HOME", state.path().join("tool"))
        .env_remove("CAUSEWAY_CONFIG");
    let begun = Instant::now();
    let output = tool.stdin(Stdio::null()).output()?;
    let took = begun.elapsed();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("causeway links: {said}")).into());
    }
    Ok(took.as_secs_f64())
}
