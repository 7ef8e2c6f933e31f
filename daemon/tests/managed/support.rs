//! A manager under the test's control, a connected daemon, and first calls of sessions.

use std::path::Path;

use causeway_proto::control::Inventory;
use causeway_proto::control::node_client::NodeClient;
use causeway_proto::manager::{Grant, Move, NodeShare, to_node};
use hyper_util::rt::TokioIo;
use prost::bytes::Bytes;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::common::manager::{Manager, Node, grant};
use crate::common::{Daemon, Session};

/// Three devices. The last one is offered as two shares.
pub(crate) const DEVICES: &str = "devices = 3";
pub(crate) const SHARES: &str = "[[shares]]\ndevice = \"0.2\"\ncount = 2\nmemory = 67108864\n";

pub(crate) fn daemon(manager: &Manager, state: &Path) -> Daemon {
    configured(manager, state, SHARES)
}

pub(crate) fn configured(manager: &Manager, state: &Path, text: &str) -> Daemon {
    let config = state.join("daemon.toml");
    std::fs::write(&config, text).unwrap();
    let arguments = [
        "--manager",
        &manager.address.to_string(),
        "--config",
        config.to_str().unwrap(),
    ];
    let state = [("STATE_DIRECTORY", state.to_str().unwrap())];
    Daemon::fake_with(DEVICES, &arguments, &state)
}

/// A manager, a connected daemon, and the folder of its identity.
pub(crate) struct Cluster {
    pub(crate) daemon: Daemon,
    pub(crate) node: Node,
    pub(crate) manager: Manager,
    pub(crate) state: tempfile::TempDir,
}

pub(crate) fn cluster() -> Cluster {
    cluster_with(SHARES)
}

/// As [`cluster`], with these settings of the daemon.
pub(crate) fn cluster_with(text: &str) -> Cluster {
    let manager = Manager::start();
    let state = tempfile::tempdir().unwrap();
    let daemon = configured(&manager, state.path(), text);
    let node = manager.welcomed(10);
    Cluster {
        daemon,
        node,
        manager,
        state,
    }
}

impl Cluster {
    /// Makes a lease of the whole device 1. Returns the grant and the client's credential.
    pub(crate) fn lease(&self) -> (Grant, Vec<u8>) {
        let lease = grant(1, 11, &[(0, 1, 0, 0)]);
        self.node.grant(&lease);
        let credential = self.manager.credential(&self.node, &lease);
        (lease, credential)
    }

    pub(crate) fn open(&self, credential: &[u8]) -> Session {
        Session::try_open(&self.daemon, credential).unwrap()
    }

    pub(crate) fn refusal(&self, credential: &[u8]) -> String {
        let refused = Session::try_open(&self.daemon, credential);
        let status = refused.err().expect("no session");
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        status.message().to_owned()
    }
}

pub(crate) fn shown(inventory: &Inventory) -> Vec<bool> {
    let devices = inventory.platforms.iter().flat_map(|of| &of.devices);
    devices.map(|device| !device.info.is_empty()).collect()
}

/// Opens one connection for calls to a node.
pub(crate) async fn reach(daemon: &Daemon) -> NodeClient<Channel> {
    let socket = tokio::net::TcpStream::connect(&daemon.address).await;
    let mut socket = Some(socket.unwrap());
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.take().map(TokioIo::new);
        std::future::ready(socket.ok_or_else(|| std::io::Error::other("one is all there is")))
    });
    let node = Endpoint::from_static("http://node");
    NodeClient::new(node.connect_with_connector(connector).await.unwrap())
}

/// Orders a lease's move to the node at this address, where the credential proves the grant of this epoch.
pub(crate) fn move_order(
    lease: &Grant,
    address: String,
    credential: Bytes,
    target_epoch: u64,
) -> to_node::Message {
    to_node::Message::Move(Move {
        lease_id: lease.lease_id.clone(),
        epoch: lease.epoch,
        target: Some(NodeShare {
            name: "target".to_owned(),
            addresses: vec![address],
            ..NodeShare::default()
        }),
        credential,
        within_ms: 600_000,
        target_epoch,
    })
}
