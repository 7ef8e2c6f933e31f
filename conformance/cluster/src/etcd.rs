//! One member of etcd on loopback, without TLS, for several managers on this machine.
//!
//! The package's own service is not touched. Invariant: a dropped member has ended.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::{Error, io};

/// The member. See the module.
pub(crate) struct Etcd {
    child: Child,
    url: String,
}

impl Etcd {
    /// Starts a member with its data in this folder. Managers retry until the member answers.
    pub(crate) fn start(folder: &Path) -> Result<Etcd, Error> {
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|of| of.local_addr());
        let url = || free().map(|address| format!("http://{address}"));
        let no_port = || io("no free port");
        let (url, peer) = (url().map_err(no_port())?, url().map_err(no_port())?);
        let log = File::create(folder.join("etcd.log")).map_err(io("cannot write etcd's log"))?;
        let data = folder.join("etcd").display().to_string();
        let pairs = [
            ("name", "m"),
            ("data-dir", &data),
            ("listen-client-urls", &url),
            ("advertise-client-urls", &url),
            ("listen-peer-urls", &peer),
            ("initial-advertise-peer-urls", &peer),
            ("initial-cluster", &format!("m={peer}")),
            ("logger", "zap"),
            ("log-level", "error"),
        ];
        let child = Command::new("etcd")
            .args(pairs.map(|(name, value)| format!("--{name}={value}")))
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(io("cannot write etcd's log"))?)
            .stderr(log)
            .spawn()
            .map_err(io("cannot run etcd (Debian: etcd-server)"))?;
        Ok(Etcd { child, url })
    }

    /// Where clients reach the member.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
