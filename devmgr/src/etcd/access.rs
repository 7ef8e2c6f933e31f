//! How etcd is reached: endpoints, TLS, credentials, and the prefix of all keys.
//!
//! Files are read when a client is made, not before: renewed ones count from the next client on. Invariant: an
//! [`Access`] names at least one endpoint, and has TLS if one of them needs it.

use std::io;
use std::path::PathBuf;

use causeway_proto::metadata::ClusterId;
use causeway_security::{ClientTls, secure};
use etcd_client::{Channel, Client, ConnectOptions};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::transport::{Endpoint, Uri};
use tower::service_fn;

use super::client::{CONNECTS_WITHIN, PING_EVERY, PING_WITHIN};
use super::fault::Fault;
use crate::store::StoreError;
use crate::time::Span;

/// How etcd is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// URLs of etcd's members; not empty.
    pub endpoints: Vec<String>,
    /// The beginning of all keys; ends with `/`.
    pub prefix: String,
    /// The cluster whose state lies below the prefix. No other one is touched. `None`: whichever is there, or a new one.
    pub cluster: Option<ClusterId>,
    /// TLS to `https` endpoints.
    pub tls: Option<Tls>,
    /// etcd's user, and the file with the password.
    pub login: Option<(String, PathBuf)>,
    /// Time of the leader's key without a sign of its leader.
    pub ttl: Span,
}

/// TLS to etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The CA of the members' certificates.
    pub ca: PathBuf,
    /// This manager's certificate and key, if etcd wants one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A connection to etcd, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Access {
    /// Checks the cluster that etcd has below the prefix.
    ///
    /// # Errors
    /// [`StoreError::OtherCluster`]
    pub(super) fn check_cluster(&self, found: Option<ClusterId>) -> Result<(), StoreError> {
        match self.cluster {
            Some(expected) if found != Some(expected) => Err(StoreError::OtherCluster {
                key: format!("{}rows/meta/cluster", self.prefix),
                found: found.map_or_else(|| "none".to_owned(), |of| of.to_string()),
                expected,
            }),
            _ => Ok(()),
        }
    }

    /// A client of the member with this number. It connects with the first call.
    pub(super) async fn client(&self, at: usize) -> Result<Client, Fault> {
        let url = &self.endpoints[at];
        let refused = |error| Fault::Refused {
            endpoint: url.clone(),
            error,
        };
        let uri: Uri = url
            .parse()
            .map_err(|error| refused(etcd_client::Error::InvalidUri(error)))?;
        let host = uri.host().unwrap_or_default();
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let port = uri.port_u16().unwrap_or(2379);
        let tls = match &self.tls {
            Some(tls) if uri.scheme_str() == Some("https") => {
                let identity = tls.identity.as_ref();
                let identity = identity.map(|(certificate, key)| (&**certificate, &**key));
                Some(ClientTls::load(&tls.ca, identity)?)
            }
            _ => None,
        };
        let connector = service_fn(move |_: Uri| {
            let (tls, host) = (tls.clone(), host.clone());
            async move { connect(tls.as_ref(), &host, port).await.map(TokioIo::new) }
        });
        // TLS is the connector's, so that tonic has nothing to do with it.
        let endpoint = Endpoint::from_shared(format!(
            "http://{}",
            uri.authority().map_or("", |of| of.as_str())
        ));
        let channel = endpoint
            .map_err(|error| refused(error.into()))?
            .connect_timeout(CONNECTS_WITHIN)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_WITHIN)
            .keep_alive_while_idle(true)
            .connect_with_connector_lazy(connector);
        let client = Client::from_channel(Channel::Tonic(channel), Some(self.options()?)).await;
        client.map_err(refused)
    }

    fn options(&self) -> Result<ConnectOptions, Fault> {
        // Without a leader of its own, a member that is cut off from the others serves watches for ever.
        let options = ConnectOptions::new().with_require_leader(true);
        let Some((user, file)) = &self.login else {
            return Ok(options);
        };
        let password = std::fs::read_to_string(file).map_err(|error| Fault::File {
            path: file.clone(),
            error,
        })?;
        Ok(options.with_user(user, password.trim_end_matches(['\r', '\n'])))
    }
}

async fn connect(tls: Option<&ClientTls>, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
    let socket = TcpStream::connect((host, port)).await?;
    socket.set_nodelay(true)?;
    let Some(tls) = tls else {
        return Ok(Box::new(socket));
    };
    let secured = secure(tls.handshake(host)?, socket, &[]).await;
    Ok(Box::new(secured.map_err(io::Error::other)?))
}
