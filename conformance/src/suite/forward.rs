//! `forward HOST:PORT`: only a forwarder, for programs that are started by hand.

use std::net::ToSocketAddrs;
use std::thread;
use std::time::Duration;

use causeway_cutter::{Forwarder, Plan, Purpose, Target};

use crate::options::Options;
use crate::{SetupError, io_error};

/// Forwards to the daemon at this address until the runner is killed. Prints every second what was cut.
pub(crate) fn forward(options: &Options, target: &str) -> Result<bool, SetupError> {
    let mut addresses = target
        .to_socket_addrs()
        .map_err(io_error(format!("cannot resolve `{target}`")))?;
    let target = addresses
        .next()
        .ok_or_else(|| SetupError::Missing(format!("`{target}` has no address")))?;
    let forwarder =
        Forwarder::start(Some(Target::Tcp(target))).map_err(io_error("cannot forward"))?;
    forwarder.set_plan(options.plan().unwrap_or(Plan::Whole));
    println!("listening on {}", forwarder.address());
    let mut told = 0;
    loop {
        thread::sleep(Duration::from_secs(1));
        let counts = forwarder.counts();
        if counts.cuts != told {
            told = counts.cuts;
            let sessions = counts.of(Purpose::Commands);
            println!("{told} connections cut, {sessions} command connections so far");
        }
    }
}
