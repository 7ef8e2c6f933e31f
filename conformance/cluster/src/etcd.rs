//! Members of etcd without TLS, on loopback or on emulated hosts, for managers of this machine.
//!
//! The package's own service is not touched. Invariant: dropped members have ended.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::{Error, io};

/// The members. See the module.
pub struct Etcd {
    members: Vec<Child>,
    urls: Vec<String>,
}

impl Etcd {
    /// Starts this many members with their data in this folder. Managers retry until the members answer.
    ///
    /// # Errors
    /// [`Error::Io`] if etcd is not installed, or a file or port is not available.
    pub fn start(folder: &Path, count: usize) -> Result<Etcd, Error> {
        let urls = urls(2 * count)?;
        let (urls, peers) = urls.split_at(count);
        Etcd::start_with(folder, urls, peers, |_, command| command.spawn())
    }

    /// As [`Etcd::start`], with a member at each of these addresses, on the usual ports. `spawn` starts a member's command on
    /// the host that has the address of this number.
    ///
    /// # Errors
    /// [`Error::Io`] if `spawn` fails, or a file is not available.
    pub fn start_at(
        folder: &Path,
        addresses: &[Ipv4Addr],
        spawn: impl FnMut(usize, &mut Command) -> std::io::Result<Child>,
    ) -> Result<Etcd, Error> {
        let urls = |port| {
            addresses
                .iter()
                .map(move |of| format!("http://{of}:{port}"))
        };
        let (urls, peers): (Vec<_>, Vec<_>) = (urls(2379).collect(), urls(2380).collect());
        Etcd::start_with(folder, &urls, &peers, spawn)
    }

    fn start_with(
        folder: &Path,
        urls: &[String],
        peers: &[String],
        mut spawn: impl FnMut(usize, &mut Command) -> std::io::Result<Child>,
    ) -> Result<Etcd, Error> {
        let all = peers.iter().enumerate();
        let all: Vec<String> = all.map(|(at, peer)| format!("m{at}={peer}")).collect();
        let mut etcd = Etcd {
            members: Vec::new(),
            urls: urls.to_vec(),
        };
        for (at, (url, peer)) in urls.iter().zip(peers).enumerate() {
            let log = File::create(folder.join(format!("etcd-{at}.log")));
            let log = log.map_err(io("cannot write etcd's log"))?;
            let pairs = [
                ("name", format!("m{at}")),
                (
                    "data-dir",
                    folder.join(format!("etcd-{at}")).display().to_string(),
                ),
                ("listen-client-urls", url.clone()),
                ("advertise-client-urls", url.clone()),
                ("listen-peer-urls", peer.clone()),
                ("initial-advertise-peer-urls", peer.clone()),
                ("initial-cluster", all.join(",")),
                // As devmgr/README.md says: else a member that comes back takes the lead from its leader.
                ("pre-vote", "true".to_owned()),
                ("logger", "zap".to_owned()),
                ("log-level", "error".to_owned()),
            ];
            let mut command = Command::new("etcd");
            command
                .args(pairs.map(|(name, value)| format!("--{name}={value}")))
                .stdin(Stdio::null())
                .stdout(log.try_clone().map_err(io("cannot write etcd's log"))?)
                .stderr(log);
            let child = spawn(at, &mut command);
            let child = child.map_err(io("cannot run etcd (Debian: etcd-server)"))?;
            etcd.members.push(child);
        }
        Ok(etcd)
    }

    /// Where clients reach the members.
    #[must_use]
    pub fn urls(&self) -> &[String] {
        &self.urls
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            // Fails only if the process has ended.
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

/// URLs with free ports, all different.
fn urls(count: usize) -> Result<Vec<String>, Error> {
    let free = || io("no free port");
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listeners: Result<Vec<TcpListener>, _> = (0..count).map(|_| bind()).collect();
    let listeners = listeners.map_err(free())?;
    let urls = listeners.iter().map(|of| of.local_addr());
    let urls: Result<Vec<String>, _> = urls.map(|of| of.map(|of| format!("http://{of}"))).collect();
    urls.map_err(free())
}
