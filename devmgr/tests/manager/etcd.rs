//! Members of the real etcd, as child processes with TLS, in memory.
//!
//! Invariant: they end with the value, and no other etcd is touched.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use causeway_devmgr::etcd::{Access, Etcd, Tls};
use causeway_devmgr::time::Span;
use causeway_security::{Authority, Issued};
use etcd_client::Client;

use super::process::AT_MOST;

/// The beginning of all keys in these tests.
pub(crate) const PREFIX: &str = "/test/";

/// Members of etcd. See the module.
pub(crate) struct Cluster {
    members: Vec<Member>,
    folder: tempfile::TempDir,
}

struct Member {
    child: Option<Child>,
    arguments: Vec<String>,
    url: String,
}

impl Cluster {
    /// Starts this many members. `None`, with a word on standard error, if etcd is not installed.
    pub(crate) async fn start(count: usize) -> Option<Cluster> {
        Cluster::with_flags(&[], count).await
    }

    /// Starts members with these flags.
    pub(crate) async fn with_flags(flags: &[&str], count: usize) -> Option<Cluster> {
        let version = Command::new("etcd").arg("--version").output();
        if version.is_err() {
            eprintln!("skipped: no etcd on this machine (Debian: etcd-server)");
            return None;
        }
        let memory = std::path::Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        let mut cluster = Cluster {
            members: Vec::new(),
            folder,
        };
        cluster.certify();
        // Held until all are chosen, so that they differ.
        let free = || TcpListener::bind("127.0.0.1:0").unwrap();
        let ports: Vec<_> = (0..count).map(|_| (free(), free())).collect();
        let port = |of: &TcpListener| of.local_addr().unwrap().port();
        let peers = ports.iter().enumerate();
        let peers = peers.map(|(at, of)| format!("m{at}=https://127.0.0.1:{}", port(&of.1)));
        let peers = peers.collect::<Vec<_>>().join(",");
        for (at, of) in ports.iter().enumerate() {
            cluster.add(at, port(&of.0), port(&of.1), &peers);
            let flags = flags.iter().map(|&flag| flag.to_owned());
            cluster.members[at].arguments.extend(flags);
        }
        drop(ports);
        for at in 0..count {
            cluster.run(at);
        }
        cluster.wait().await;
        Some(cluster)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn certify(&self) {
        let hour = Duration::from_secs(3600);
        let valid = || SystemTime::now() - hour..SystemTime::now() + hour;
        let (authority, ca) = Authority::generate("etcd", valid()).unwrap();
        let write = |name: &str, issued: &Issued| {
            std::fs::write(self.path(&format!("{name}.pem")), &issued.certificate).unwrap();
            let key = self.path(&format!("{name}.key"));
            std::fs::write(&key, issued.key.reveal()).unwrap();
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        write("ca", &ca);
        let names = ["127.0.0.1".to_owned()];
        write("member", &authority.node(&names, valid()).unwrap());
        write("manager", &authority.user("manager", valid()).unwrap());
    }

    fn add(&mut self, at: usize, client: u16, peer: u16, peers: &str) {
        let (client, peer) = (
            format!("https://127.0.0.1:{client}"),
            format!("https://127.0.0.1:{peer}"),
        );
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let pairs = [
            ("--name", format!("m{at}")),
            ("--data-dir", path(&format!("m{at}"))),
            ("--listen-client-urls", client.clone()),
            ("--advertise-client-urls", client.clone()),
            ("--listen-peer-urls", peer.clone()),
            ("--initial-advertise-peer-urls", peer),
            ("--initial-cluster", peers.to_owned()),
            ("--cert-file", path("member.pem")),
            ("--key-file", path("member.key")),
            ("--trusted-ca-file", path("ca.pem")),
            ("--log-level", "error".to_owned()),
            ("--logger", "zap".to_owned()),
        ];
        let pairs = pairs
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"));
        let flags = ["--client-cert-auth=true", "--peer-auto-tls=true"].map(str::to_owned);
        self.members.push(Member {
            child: None,
            arguments: pairs.chain(flags).collect(),
            url: client,
        });
    }

    /// Where a member listens.
    pub(crate) fn address(&self, at: usize) -> SocketAddr {
        let address = self.members[at].url.strip_prefix("https://");
        address.unwrap().parse().unwrap()
    }

    /// Starts a member, for the first time or again.
    pub(crate) fn run(&mut self, at: usize) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("log"));
        let member = &mut self.members[at];
        let mut command = Command::new("etcd");
        command.args(&member.arguments).stdin(Stdio::null());
        let log = log.unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        member.child = Some(command.spawn().unwrap());
    }

    /// Kills a member.
    pub(crate) fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.members[at].child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Waits until etcd answers.
    pub(crate) async fn wait(&self) {
        let begin = Instant::now();
        loop {
            let client = self.client().await;
            let mut kv = client.kv_client();
            let got = tokio::time::timeout(Duration::from_secs(2), kv.get("x", None));
            if matches!(got.await, Ok(Ok(_))) {
                return;
            }
            let log = || std::fs::read_to_string(self.path("log"));
            assert!(begin.elapsed() < AT_MOST, "{:?}", log());
        }
    }

    /// A client of a member that runs.
    pub(crate) async fn client(&self) -> Client {
        let at = self.members.iter().position(|of| of.child.is_some());
        self.access().client(at.unwrap()).await.unwrap()
    }

    /// How a manager reaches it, without a configuration file.
    pub(crate) fn access(&self) -> Etcd {
        self.access_at(self.members.iter().map(|of| of.url.clone()).collect())
    }

    /// The same, by other ways to the members.
    pub(crate) fn access_at(&self, endpoints: Vec<String>) -> Etcd {
        Etcd::new(Access {
            endpoints,
            prefix: PREFIX.to_owned(),
            cluster: None,
            tls: Some(Tls {
                ca: self.path("ca.pem"),
                identity: Some((self.path("manager.pem"), self.path("manager.key"))),
            }),
            login: None,
            ttl: Span::seconds(2),
        })
    }

    /// The part of a manager's configuration file. The token of the first administrator lies in `folder`.
    pub(crate) fn table(&self, token: &std::path::Path) -> String {
        let urls: Vec<_> = self.members.iter().map(|of| of.url.clone()).collect();
        self.table_at(&urls, token)
    }

    /// The same, by other ways to the members.
    pub(crate) fn table_at(&self, urls: &[String], token: &std::path::Path) -> String {
        format!(
            "store = \"etcd\"\n[etcd]\nendpoints = {urls:?}\nprefix = {PREFIX:?}\nca = {:?}\ncertificate = {:?}\n\
             key = {:?}\nadmin_token = {token:?}\n",
            self.path("ca.pem"),
            self.path("manager.pem"),
            self.path("manager.key"),
        )
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for at in 0..self.members.len() {
            self.kill(at);
        }
    }
}
