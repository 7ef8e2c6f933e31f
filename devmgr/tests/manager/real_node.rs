//! The real manager with a real daemon in managed mode, on a fake driver: a lease from request to end.

use std::ffi::OsStr;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{
    GetInventoryRequest, GetStatusRequest, OpenSessionReply, OpenSessionRequest,
};
use causeway_proto::manager::{Granted, LeaseState, RequestDevices, progress};
use causeway_proto::version::WireVersion;
use rustix::process::{Pid, Signal, kill_process};
use tonic::{Code, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::process::{AT_MOST, Client, Manager, channel, next_address, request};
use super::watching::get;

const VERSION: u32 = WireVersion::CURRENT.number() as u32;

/// A daemon; killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    address: SocketAddr,
    watched_at: SocketAddr,
    log: PathBuf,
}

impl Daemon {
    /// Starts a daemon with two devices; the second is offered as two shares.
    pub(crate) fn start(manager: SocketAddr, folder: &Path) -> Daemon {
        Daemon::configured(
            folder,
            &format!(
                "[manager]\naddress = [\"{manager}\"]\n[[shares]]\ndevice = \"0.1\"\ncount = 2\n"
            ),
        )
    }

    /// Starts a daemon with two devices of the fake driver and this configuration file.
    pub(crate) fn configured(folder: &Path, text: &str) -> Daemon {
        Daemon::listening(folder, text, &["--listen", "127.0.0.1:0"])
    }

    /// Starts a daemon as [`Daemon::configured`] does, with these flags for its addresses.
    pub(crate) fn listening(folder: &Path, text: &str, listen: &[&str]) -> Daemon {
        Daemon::over(folder, text, listen, "devices = 2", None)
    }

    /// Starts a daemon with these devices of the fake driver, and a folder with further libraries.
    pub(crate) fn over(
        folder: &Path,
        text: &str,
        listen: &[&str],
        devices: &str,
        libraries: Option<&Path>,
    ) -> Daemon {
        let driver = programs().join("libfake_opencl.so");
        let vendors = folder.join("vendors");
        std::fs::create_dir_all(&vendors).unwrap();
        std::fs::write(vendors.join("fake.icd"), driver.to_str().unwrap()).unwrap();
        let mut variables = vec![
            ("OCL_ICD_VENDORS", vendors.as_os_str()),
            ("FAKE_OPENCL_CONFIG", devices.as_ref()),
        ];
        variables.extend(libraries.map(|folder| ("LD_LIBRARY_PATH", folder.as_os_str())));
        Daemon::with_variables(folder, text, listen, &variables)
    }

    /// Starts a daemon over the drivers that these variables name, or over the system's.
    pub(crate) fn with_variables(
        folder: &Path,
        text: &str,
        listen: &[&str],
        variables: &[(&str, &OsStr)],
    ) -> Daemon {
        let config = folder.join("daemon.toml");
        std::fs::write(&config, text).unwrap();
        let log = folder.join("daemon.log");
        let mut child = Command::new(programs().join("causewayd"))
            .args(listen)
            .args(["--spare-workers", "0"])
            .args(["--log", "warn,causeway=debug"])
            .args(["--metrics", "127.0.0.1:0"])
            .arg("--config")
            .arg(&config)
            .envs(variables.iter().copied())
            .env("CAUSEWAYD_BUILD_CACHE_SIZE", "0")
            .env("STATE_DIRECTORY", folder)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut next = |what: &str| next_address(&mut out, what);
        Daemon {
            address: next("listening on "),
            watched_at: next("metrics on "),
            child,
            log,
        }
    }

    /// The address that the daemon listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the daemon's listener for monitoring.
    pub(crate) fn watched_at(&self) -> SocketAddr {
        self.watched_at
    }

    /// The daemon's log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal to the daemon.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether the daemon ends with success.
    pub(crate) fn ends_well(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }

    /// Waits until the daemon reports in each of its three ways whether it is being drained.
    async fn says_draining(&self, draining: bool) {
        let begin = Instant::now();
        while self.is_draining().await != [draining; 3] {
            assert!(begin.elapsed() < AT_MOST, "{:?}", self.is_draining().await);
        }
    }

    /// Whether the daemon is being drained, by its status, by `/healthz`, and by gRPC's health service.
    async fn is_draining(&self) -> [bool; 3] {
        let channel = channel(self.address).await;
        let mut node = NodeClient::new(channel.clone());
        let status = node
            .get_status(GetStatusRequest {
                wire_version: VERSION,
            })
            .await;
        let text = get(self.watched_at, "/healthz").await;
        let mut health = HealthClient::new(channel);
        let health = health.check(HealthCheckRequest::default()).await;
        [
            status.unwrap().into_inner().draining,
            text.starts_with("HTTP/1.1 503 ")
                && text.ends_with(
                    "the device manager is draining this node, so it gets no new leases\n",
                ),
            health.unwrap().into_inner().status == ServingStatus::NotServing as i32,
        ]
    }

    pub(crate) async fn open(&self, credential: &[u8]) -> Result<OpenSessionReply, Status> {
        let mut node = NodeClient::connect(format!("http://{}", self.address))
            .await
            .unwrap();
        let inventory = node.get_inventory(GetInventoryRequest {
            wire_version: VERSION,
            credential: credential.to_vec().into(),
        });
        let inventory = inventory.await.unwrap().into_inner();
        let reply = node.open_session(OpenSessionRequest {
            wire_version: VERSION,
            inventory_generation: inventory.generation,
            credential: credential.to_vec().into(),
            ..OpenSessionRequest::default()
        });
        reply.await.map(tonic::Response::into_inner)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// The folder of the daemon and the fake driver, built with this test's profile.
pub(crate) fn programs() -> PathBuf {
    build(&["causewayd", "fake-driver"])
}

/// The path of the client library.
pub(crate) fn library() -> PathBuf {
    build(&["causeway-icd"]).join("libcauseway.so")
}

/// Builds the programs, and returns their folder. `CAUSEWAY_BUILT` says that the whole workspace has just
/// been built.
fn build(packages: &[&str]) -> PathBuf {
    let manager = PathBuf::from(env!("CARGO_BIN_EXE_causeway-devmgr"));
    if std::env::var_os("CAUSEWAY_BUILT").is_some() {
        return manager.parent().unwrap().to_owned();
    }
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet"]);
    build.args(packages.iter().flat_map(|package| ["-p", package]));
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
    manager.parent().unwrap().to_owned()
}

async fn lease(client: &mut Client, asked: RequestDevices) -> Granted {
    match client.ask(asked).await.unwrap().last().await {
        progress::Step::Granted(granted) => granted,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_manager_grants_the_daemon_serves_until_it_is_over() {
    let mut manager = Manager::start();
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(manager.address, folder.path());
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    // The whole device, and a share of the other one.
    let units = lease(&mut ann, request("2")).await;
    assert_eq!(units.nodes[0].units.len(), 2);
    let mut bob = manager.user("bob").await;
    let refused = bob.ask(request("2")).await.unwrap().last().await;
    assert!(matches!(refused, progress::Step::Refused(_)), "{refused:?}");

    assert_eq!(
        daemon.open(&[]).await.unwrap_err().code(),
        Code::PermissionDenied
    );
    daemon.open(&units.signed_lease).await.unwrap();
    // The lease survives the manager's restart, on both sides.
    manager.kill();
    daemon.open(&units.signed_lease).await.unwrap();
    manager.kill_and_restart();
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let leases = ann.list().await;
    assert_eq!(leases[0].lease_id, units.lease_id);
    daemon.open(&units.signed_lease).await.unwrap();

    ann.release(&units.lease_id).await.unwrap();
    let begin = Instant::now();
    while ann
        .list()
        .await
        .iter()
        .any(|of| of.state() != LeaseState::Unspecified)
    {
        assert!(begin.elapsed() < AT_MOST, "the lease does not end");
    }
    let refused = daemon.open(&units.signed_lease).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let mut bob = manager.user("bob").await;
    let next = lease(&mut bob, request("2")).await;
    daemon.open(&next.signed_lease).await.unwrap();
    let refused = daemon.open(&units.signed_lease).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_was_killed_gives_its_units_back_at_once() {
    let manager = Manager::start();
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(manager.address, folder.path());
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let before = lease(&mut ann, request("2")).await;
    drop(daemon);
    ann.see_nodes(0).await;
    let daemon = Daemon::start(manager.address, folder.path());
    ann.see_nodes(1).await;
    let after = lease(&mut ann, request("2")).await;
    daemon.open(&after.signed_lease).await.unwrap();
    let refused = daemon.open(&before.signed_lease).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_says_that_it_is_being_drained_for_as_long_as_it_is() {
    let mut manager = Manager::start();
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(manager.address, folder.path());
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    daemon.says_draining(false).await;
    let node = ann.nodes().await[0].name.clone();
    ann.drain(&node, true).await;
    daemon.says_draining(true).await;

    // The state survives a restart of either side. A node that was resumed while it was away learns that
    // when it joins.
    drop(daemon);
    ann.see_nodes(0).await;
    let daemon = Daemon::start(manager.address, folder.path());
    daemon.says_draining(true).await;
    manager.kill_and_restart();
    let mut ann = manager.user("ann").await;
    ann.drain(&node, false).await;
    daemon.says_draining(false).await;
    lease(&mut ann, request("2")).await;
}
