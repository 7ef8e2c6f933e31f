//! A CA, a node's files and users' credentials, and a client that uses TLS without the library.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{
    GetInventoryRequest, GetStatusRequest, Inventory, NodeStatus, OpenSessionReply,
    OpenSessionRequest,
};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{
    ClientWord, GREETING, Greeting, Preamble, Purpose, Verdict, WORKER_PROOF, check_worker_proof,
    client_proof,
};
use causeway_security::{
    Authority, ClientTls, Fingerprint, Issued, NotSecured, Records, TlsStream, Token, pinned,
};
use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};

use crate::support::{Daemon, PATIENCE, Setup, VERSION, connect};

const DAY: Duration = Duration::from_secs(86_400);

/// From yesterday until tomorrow.
pub(crate) fn now() -> Range<SystemTime> {
    SystemTime::now() - DAY..SystemTime::now() + DAY
}

/// A folder of credentials.
pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    pub(crate) authority: Authority,
    pub(crate) token: Token,
}

impl Cluster {
    pub(crate) fn new() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let (authority, ca) = Authority::generate("cluster", now()).unwrap();
        let cluster = Cluster {
            folder,
            authority,
            token: Token::generate(),
        };
        cluster.write("ca", &ca);
        let names = ["127.0.0.1".to_owned()];
        cluster.write("node", &cluster.authority.node(&names, now()).unwrap());
        cluster.list(&format!("{} alice\n", cluster.token.hash()));
        cluster
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes `NAME` and `NAME.key`.
    pub(crate) fn write(&self, name: &str, issued: &Issued) {
        self.put(name, issued.certificate.as_bytes());
        self.put(&format!("{name}.key"), issued.key.reveal());
    }

    /// Replaces the list of tokens atomically.
    pub(crate) fn list(&self, text: &str) {
        self.put("fresh", text.as_bytes());
        fs::rename(self.path("fresh"), self.path("tokens")).unwrap();
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Returns the setup of a daemon with this certificate. The caller may add flags.
    pub(crate) fn setup(&self, certificate: &str) -> Setup {
        let (certificate, key) = (
            self.text(certificate),
            self.text(&format!("{certificate}.key")),
        );
        Setup::new().args(&["--tls-certificate", &certificate, "--tls-key", &key])
    }

    /// Returns the setup of a daemon that requires tokens.
    pub(crate) fn with_tokens(&self) -> Setup {
        self.secure(Setup::new())
    }

    /// Adds that the daemon has a certificate and requires tokens.
    pub(crate) fn secure(&self, setup: Setup) -> Setup {
        let (certificate, key) = (self.text("node"), self.text("node.key"));
        setup
            .args(&["--tls-certificate", &certificate, "--tls-key", &key])
            .args(&["--tokens", &self.text("tokens")])
    }

    pub(crate) fn client(&self, identity: Option<&str>) -> ClientTls {
        self.client_of("ca", identity)
    }

    pub(crate) fn client_of(&self, ca: &str, identity: Option<&str>) -> ClientTls {
        let files = identity.map(|name| (self.path(name), self.path(&format!("{name}.key"))));
        let files = files.as_ref().map(|(c, k)| (c.as_path(), k.as_path()));
        ClientTls::load(&self.path(ca), files).unwrap()
    }
}

/// A connection over TLS, with this token in its calls.
pub(crate) struct Caller {
    client: NodeClient<Channel>,
    token: Option<Token>,
}

impl Caller {
    pub(crate) async fn reach(
        address: SocketAddr,
        tls: &ClientTls,
        token: Option<&Token>,
    ) -> Result<Caller, NotSecured> {
        let channel = channel(address, tls).await?;
        Ok(Caller {
            client: NodeClient::new(channel),
            token: token.cloned(),
        })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            let value = format!("Bearer {}", token.reveal()).parse().unwrap();
            request.metadata_mut().insert("authorization", value);
        }
        request
    }

    pub(crate) async fn inventory(&mut self) -> Result<Inventory, Status> {
        let request = self.request(GetInventoryRequest {
            wire_version: VERSION,
            ..GetInventoryRequest::default()
        });
        Ok(self.client.get_inventory(request).await?.into_inner())
    }

    pub(crate) async fn status(&mut self) -> Result<NodeStatus, Status> {
        let request = self.request(GetStatusRequest {
            wire_version: VERSION,
        });
        Ok(self.client.get_status(request).await?.into_inner())
    }

    pub(crate) async fn open(&mut self) -> Result<OpenSessionReply, Status> {
        self.open_for(0).await
    }

    /// Opens a session that outlives its connections for this time.
    pub(crate) async fn open_for(&mut self, resume_ms: u32) -> Result<OpenSessionReply, Status> {
        let generation = self.inventory().await?.generation;
        let request = self.request(OpenSessionRequest {
            wire_version: VERSION,
            inventory_generation: generation,
            resume_ms,
            ..OpenSessionRequest::default()
        });
        Ok(self.client.open_session(request).await?.into_inner())
    }
}

/// Opens one connection with TLS, which is never replaced by another.
pub(crate) async fn channel(address: SocketAddr, tls: &ClientTls) -> Result<Channel, NotSecured> {
    let socket = tokio::net::TcpStream::connect(address).await?;
    let handshake = tls.handshake("127.0.0.1")?;
    let secured = causeway_security::secure(handshake, socket, &[]).await?;
    let mut secured = Some(secured);
    let connector = tower::service_fn(move |_: Uri| {
        let stream = secured.take().map(TokioIo::new);
        std::future::ready(stream.ok_or_else(|| std::io::Error::other("one is all there is")))
    });
    let channel = Endpoint::from_static("http://node")
        .connect_with_connector(connector)
        .await
        .map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(channel)
}

/// Checks that a caller with the right CA and token is served.
pub(crate) async fn assert_serves(daemon: &Daemon, cluster: &Cluster) {
    let token = Some(&cluster.token);
    let caller = Caller::reach(daemon.address(), &cluster.client(None), token).await;
    caller.unwrap().status().await.unwrap();
}

/// Opens a connection of the session, and sends its preamble.
pub(crate) fn introduce(daemon: &Daemon, reply: &OpenSessionReply) -> (TcpStream, Vec<u8>) {
    introduce_for(daemon, reply, Purpose::Commands)
}

fn introduce_for(
    daemon: &Daemon,
    reply: &OpenSessionReply,
    purpose: Purpose,
) -> (TcpStream, Vec<u8>) {
    use std::io::Write;
    let preamble = Preamble {
        purpose,
        lane: 0,
        session: SessionId(reply.session_id[..].try_into().unwrap()),
        link: 0,
    }
    .encode();
    let mut socket = connect(daemon.address());
    socket.write_all(&preamble).unwrap();
    (socket, preamble.to_vec())
}

/// Opens the command connection of the session, and proves the secret on both sides.
pub(crate) fn commands(daemon: &Daemon, reply: &OpenSessionReply) -> TlsStream {
    connect_after(daemon, reply, Purpose::Commands, 0).0
}

/// As [`commands`], for any purpose, and for a client that has handled the event batches up to `position`. Returns the
/// worker's position, too.
pub(crate) fn connect_after(
    daemon: &Daemon,
    reply: &OpenSessionReply,
    purpose: Purpose,
    position: u64,
) -> (TlsStream, u64) {
    use std::io::{Read, Write};
    let fingerprint = Fingerprint::from_wire(&reply.certificate_sha256).unwrap();
    let secret = secret_of(reply);
    let (socket, preamble) = introduce_for(daemon, reply, purpose);
    let preamble: [u8; 32] = preamble.try_into().unwrap();
    let records = shake(pinned(fingerprint).unwrap(), &socket).unwrap();
    let stream = TlsStream::new(socket, records).unwrap();
    let mut bytes = [0; GREETING];
    (&stream).read_exact(&mut bytes).unwrap();
    let greeting = Greeting::decode(&bytes).unwrap();
    assert_eq!(greeting.verdict, Verdict::Welcome);
    let word = ClientWord {
        position,
        ..ClientWord::default()
    };
    let ours = client_proof(&secret, &preamble, &greeting.nonce, &word);
    (&stream).write_all(&ours).unwrap();
    let mut theirs = [0; WORKER_PROOF];
    (&stream).read_exact(&mut theirs).unwrap();
    let position = check_worker_proof(&secret, &preamble, &greeting.nonce, &ours, &theirs);
    (stream, position.expect("the worker's proof"))
}

pub(crate) fn secret_of(reply: &OpenSessionReply) -> SessionSecret {
    SessionSecret(reply.session_secret[..].try_into().unwrap())
}

/// Makes a TLS handshake on a blocking socket.
pub(crate) fn shake(
    handshake: causeway_security::Handshake,
    socket: &TcpStream,
) -> Result<std::sync::Arc<Records>, NotSecured> {
    causeway_security::complete(handshake, socket, Instant::now() + PATIENCE)
}
