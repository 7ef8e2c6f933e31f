//! The manager's process, and clients of it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use causeway_proto::manager::admin_client::AdminClient;
use causeway_proto::manager::leases_client::LeasesClient;
use causeway_proto::manager::{
    ConfirmReservation, DrainNodeRequest, Fitting, Granted, LeaseInfo, ListLeasesRequest,
    ListNodesRequest, NodeInfo, Progress, Refused, ReleaseLease, RenewLease, RequestDevices,
    considered, progress,
};
use causeway_proto::version::WireVersion;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

/// Timeout of every wait in these tests.
pub(crate) const AT_MOST: Duration = Duration::from_secs(60);

/// Asks for a dashboard.
pub(crate) const DASHBOARD: &str = "[dashboard]\nlisten = \"127.0.0.1:0\"";

/// A running manager; killed when dropped.
pub(crate) struct Manager {
    child: Child,
    pub(crate) address: SocketAddr,
    watched_at: Option<SocketAddr>,
    dashboard: Option<SocketAddr>,
    store: PathBuf,
    config: PathBuf,
    log: PathBuf,
    arguments: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Manager {
    /// Starts a manager with a store of its own.
    pub(crate) fn start() -> Manager {
        Manager::configured("")
    }

    /// Starts a manager with this configuration file.
    pub(crate) fn configured(config: &str) -> Manager {
        Manager::started(config, &[])
    }

    /// Starts a manager with this configuration file and these flags.
    pub(crate) fn started(config: &str, arguments: &[&str]) -> Manager {
        let arguments: Vec<_> = arguments.iter().map(|&flag| flag.to_owned()).collect();
        // In memory, because tests kill the manager and not the machine. Disks are slow to synchronise.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            tempfile::tempdir_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        let path = folder.path().join("manager.toml");
        std::fs::write(&path, config).unwrap();
        let store = match config.contains("[etcd]") {
            true => "etcd".into(),
            false => folder.path().join("store"),
        };
        let log = folder.path().join("log");
        let (child, listens) = spawn(&store, &path, &log, "127.0.0.1:0", &arguments);
        Manager {
            child,
            address: listens.address,
            watched_at: listens.watched_at,
            dashboard: listens.dashboard,
            store,
            config: path,
            log,
            arguments,
            _folder: folder,
        }
    }

    /// Kills the manager with SIGKILL, and starts it again at the same address.
    pub(crate) fn kill_and_restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Starts a manager that was killed again, at the same addresses.
    pub(crate) fn start_again(&mut self) {
        if let Some(dashboard) = self.dashboard {
            let text = std::fs::read_to_string(&self.config).unwrap();
            let fixed = format!("[dashboard]\nlisten = \"{dashboard}\"");
            let text = text.replace(DASHBOARD, &fixed);
            std::fs::write(&self.config, text).unwrap();
        }
        let listen = self.address.to_string();
        let (store, config, log) = (&self.store, &self.config, &self.log);
        let (child, listens) = spawn(store, config, log, &listen, &self.arguments);
        self.child = child;
        self.address = listens.address;
        self.watched_at = listens.watched_at;
        self.dashboard = listens.dashboard;
    }

    /// The address of the separate listener for monitoring, which the flags have asked for by `--metrics`.
    pub(crate) fn watched_at(&self) -> SocketAddr {
        self.watched_at.expect("a listener for monitoring")
    }

    /// The address of the dashboard, which the configuration has asked for by [`DASHBOARD`].
    pub(crate) fn dashboard(&self) -> SocketAddr {
        self.dashboard.expect("a dashboard")
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// The manager's log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The manager's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A client with these credentials.
    pub(crate) async fn client(&self, who: Who) -> Client {
        Client::connect(self.address, who).await
    }

    pub(crate) async fn user(&self, name: &str) -> Client {
        self.client(Who::Name(name.to_owned())).await
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// The address in the next line of a server's output, which begins with `what`.
pub(super) fn next_address(out: &mut impl BufRead, what: &str) -> SocketAddr {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix(what);
    let address = address.unwrap_or_else(|| panic!("not {what:?} but {line:?}"));
    address.parse().unwrap()
}

/// Where a manager listens, as it says itself.
struct Addresses {
    address: SocketAddr,
    watched_at: Option<SocketAddr>,
    dashboard: Option<SocketAddr>,
}

fn spawn(
    store: &Path,
    config: &Path,
    log: &Path,
    listen: &str,
    arguments: &[String],
) -> (Child, Addresses) {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log);
    let mut child = Command::new(env!("CARGO_BIN_EXE_causeway-devmgr"))
        .args(["--listen", listen, "--log", "warn,causeway=debug"])
        .arg("--store")
        .arg(store)
        .arg("--config")
        .arg(config)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(log.unwrap())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut next = |what: &str| next_address(&mut out, what);
    let address = next("listening on ");
    let has_dashboard =
        std::fs::read_to_string(config).is_ok_and(|text| text.contains("[dashboard]"));
    let has_metrics = arguments.iter().any(|flag| flag == "--metrics");
    let listens = Addresses {
        address,
        watched_at: has_metrics.then(|| next("metrics on ")),
        dashboard: has_dashboard.then(|| next("dashboard on ")),
    };
    (child, listens)
}

/// The credentials of a caller.
#[derive(Clone)]
pub(crate) enum Who {
    Name(String),
    Token(String),
    Nobody,
}

impl Who {
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        match self {
            Who::Name(name) => drop(metadata.insert("causeway-user", name.parse().unwrap())),
            Who::Token(token) => {
                let bearer = format!("Bearer {token}");
                metadata.insert("authorization", bearer.parse().unwrap());
            }
            Who::Nobody => {}
        }
        request
    }
}

/// Connects to the manager, and retries until the manager answers.
pub(crate) async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let begin = std::time::Instant::now();
    loop {
        match endpoint.connect().await {
            Ok(channel) => return channel,
            Err(error) => assert!(begin.elapsed() < AT_MOST, "{error}"),
        }
        tokio::task::yield_now().await;
    }
}

/// Connects to the manager, if it is there.
pub(crate) async fn try_channel(address: SocketAddr) -> Option<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    endpoint.connect().await.ok()
}

/// A user's connection, with one method for each call.
pub(crate) struct Client {
    pub(crate) who: Who,
    pub(crate) leases: LeasesClient<Channel>,
    pub(crate) admin: AdminClient<Channel>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, who: Who) -> Client {
        let channel = channel(address).await;
        Client {
            who,
            leases: LeasesClient::new(channel.clone()),
            admin: AdminClient::new(channel),
        }
    }

    pub(crate) async fn ask(&mut self, request: RequestDevices) -> Result<Asked, Status> {
        let stream = self.leases.request(self.who.request(request)).await?;
        Ok(Asked(stream.into_inner()))
    }

    /// Makes a request that must be refused by a status.
    pub(crate) async fn refused(&mut self, request: RequestDevices) -> Status {
        let mut asked = match self.ask(request).await {
            Ok(asked) => asked,
            Err(status) => return status,
        };
        loop {
            let next = tokio::time::timeout(AT_MOST, asked.0.message()).await;
            match next.expect("an answer in time") {
                Ok(Some(progress)) => {
                    let step = progress.step;
                    assert!(
                        matches!(step, Some(progress::Step::Position(_))),
                        "{step:?}"
                    );
                }
                Ok(None) => panic!("the stream ended without an answer"),
                Err(status) => return status,
            }
        }
    }

    /// Makes a request that must be granted.
    pub(crate) async fn granted(&mut self, request: RequestDevices) -> Granted {
        match self.ask(request).await.unwrap().last().await {
            progress::Step::Granted(granted) => granted,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn confirm(&mut self, lease: &[u8]) -> Result<Granted, Status> {
        let lease_id = lease.to_vec().into();
        let request = self.who.request(ConfirmReservation { lease_id });
        Ok(self.leases.confirm(request).await?.into_inner())
    }

    pub(crate) async fn renew(&mut self, lease: &[u8]) -> Result<Granted, Status> {
        let lease_id = lease.to_vec().into();
        let request = self.who.request(RenewLease { lease_id });
        Ok(self.leases.renew(request).await?.into_inner())
    }

    pub(crate) async fn release(&mut self, lease: &[u8]) -> Result<(), Status> {
        let lease_id = lease.to_vec().into();
        let request = self.who.request(ReleaseLease { lease_id });
        self.leases.release(request).await.map(drop)
    }

    pub(crate) async fn list(&mut self) -> Vec<LeaseInfo> {
        let request = self.who.request(ListLeasesRequest {});
        let list = self.leases.list_leases(request).await;
        list.unwrap().into_inner().leases
    }

    pub(crate) async fn nodes(&mut self) -> Vec<NodeInfo> {
        let request = self.who.request(ListNodesRequest {});
        let list = self.admin.list_nodes(request).await;
        list.unwrap().into_inner().nodes
    }

    /// Starts or ends the draining of a node.
    pub(crate) async fn drain(&mut self, node: &str, draining: bool) {
        self.try_drain(node, draining).await.unwrap();
    }

    /// Like [`Client::drain`], which the manager may refuse.
    pub(crate) async fn try_drain(&mut self, node: &str, draining: bool) -> Result<(), Status> {
        let node = node.to_owned();
        let request = self.who.request(DrainNodeRequest {
            node,
            draining,
            ..DrainNodeRequest::default()
        });
        self.admin.drain_node(request).await.map(drop)
    }

    /// Asks what a request would get.
    pub(crate) async fn considers(&mut self, request: RequestDevices) -> Result<Fitting, Refused> {
        let request = self.who.request(request);
        let considered = self.leases.consider(request).await.unwrap();
        match considered.into_inner().outcome.expect("an outcome") {
            considered::Outcome::Fitting(fitting) => Ok(fitting),
            considered::Outcome::Refused(refused) => Err(refused),
        }
    }

    /// Waits until this number of nodes is connected.
    pub(crate) async fn see_nodes(&mut self, count: usize) {
        let begin = std::time::Instant::now();
        while self
            .nodes()
            .await
            .iter()
            .filter(|node| node.connected)
            .count()
            != count
        {
            assert!(begin.elapsed() < AT_MOST, "the nodes did not come");
        }
    }
}

/// A request's stream.
pub(crate) struct Asked(pub(crate) Streaming<Progress>);

impl Asked {
    pub(crate) async fn next(&mut self) -> Option<progress::Step> {
        let next = tokio::time::timeout(AT_MOST, self.0.message()).await;
        let next = next.expect("news in time").expect("no error");
        next.map(|progress| progress.step.expect("a step"))
    }

    /// Waits until the manager or the connection ends the call.
    pub(crate) async fn parted(&mut self) {
        let ended = async { while let Ok(Some(_)) = self.0.message().await {} };
        let ended = tokio::time::timeout(AT_MOST, ended).await;
        ended.expect("an end in time");
    }

    /// The first message that is not a position.
    pub(crate) async fn last(mut self) -> progress::Step {
        self.answer().await
    }

    pub(crate) async fn answer(&mut self) -> progress::Step {
        loop {
            match self.next().await.expect("an answer") {
                progress::Step::Position(_) => {}
                other => return other,
            }
        }
    }
}

/// An id in hexadecimal digits, as the tool prints it.
pub(crate) fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A request that does not wait.
pub(crate) fn request(line: &str) -> RequestDevices {
    RequestDevices {
        wire_version: WireVersion::CURRENT.number().into(),
        request: line.to_owned(),
        ..RequestDevices::default()
    }
}

/// A request that waits in the queue.
pub(crate) fn waiting(line: &str) -> RequestDevices {
    RequestDevices {
        wait: true,
        ..request(line)
    }
}
