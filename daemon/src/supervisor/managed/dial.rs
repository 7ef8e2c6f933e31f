//! Connects to the device manager: HTTP/2 over TCP, with TLS if the settings name a CA.

use std::io;
use std::time::Duration;

use causeway_proto::endpoint::{KeepAlive, over_connection};
use causeway_proto::status::TlsFault;
use causeway_security::{ClientTls, NotSecured, Token, secure};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;

use crate::config::ManagerAddress;

const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The connection to the manager failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotDialled {
    #[error("the device manager cannot be reached: {0}")]
    Io(#[from] io::Error),
    #[error("the device manager did not accept a connection within {} s", CONNECT_WITHIN.as_secs())]
    TooSlow,
    #[error(transparent)]
    Tls(#[from] NotSecured),
    #[error("the device manager's port does not use HTTP/2: {0}")]
    Http2(#[from] tonic::transport::Error),
}

impl NotDialled {
    /// Returns the error of a connection to another node.
    pub(super) fn at_node(&self) -> String {
        match self {
            NotDialled::Io(error) => error.to_string(),
            NotDialled::TooSlow => format!("no answer within {} s", CONNECT_WITHIN.as_secs()),
            NotDialled::Tls(error) => error.to_string(),
            NotDialled::Http2(error) => format!("its port does not use HTTP/2: {error}"),
        }
    }

    /// Returns advice on how to fix the error, if the error determines it.
    pub(super) fn cure(&self) -> Option<&'static str> {
        let NotDialled::Tls(not) = self else {
            return None;
        };
        if matches!(not, NotSecured::InTheClear) {
            return Some(
                "the device manager does not use TLS, or this is another service's port; configure [tls] in \
                 manager.toml, or correct the address",
            );
        }
        Some(match not.fault() {
            TlsFault::OtherCa => {
                "the device manager's certificate was signed by another CA; set that one (--manager-ca, [manager] ca \
                 in daemon.toml)"
            }
            TlsFault::OtherName => {
                "the device manager's certificate does not contain this name; use a name in it (--manager, [manager] \
                 address in daemon.toml), or issue one with this name (causeway certs node NAME --address HOST)"
            }
            TlsFault::OtherTime => {
                "the device manager's certificate is not valid now; check the clocks of both machines, or issue a new \
                 one (causeway certs node NAME; [tls] in manager.toml)"
            }
            TlsFault::OwnMissing => {
                "the device manager takes nodes with a certificate only; give this node one (--manager-certificate, \
                 --manager-key; causeway certs node NAME)"
            }
            TlsFault::OwnRefused => {
                "use a valid certificate that was signed by the device manager's CA (--manager-certificate, --manager-key; \
                 causeway certs node NAME --from FOLDER)"
            }
            TlsFault::OwnExpired | TlsFault::Missing | TlsFault::Other => return None,
        })
    }
}

/// Opens a connection to the manager.
pub(super) async fn dial(
    address: &ManagerAddress,
    tls: Option<&ClientTls>,
) -> Result<Channel, NotDialled> {
    let dialling = async {
        let socket = TcpStream::connect((address.host.as_str(), address.port)).await?;
        socket.set_nodelay(true)?;
        match tls {
            None => channel_over(socket).await,
            Some(tls) => {
                let handshake = tls.handshake(address.certified())?;
                channel_over(secure(handshake, socket, &[]).await?).await
            }
        }
    };
    let dialled = tokio::time::timeout(CONNECT_WITHIN, dialling).await;
    dialled.map_err(|_| NotDialled::TooSlow)?
}

async fn channel_over<S>(stream: S) -> Result<Channel, NotDialled>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let once = Mutex::new(Some(TokioIo::new(stream)));
    let endpoint = over_connection("http://causeway.manager", KeepAlive::USUAL);
    let connector = tower::service_fn(move |_| {
        // tonic calls the connector again to reconnect. This channel never reconnects: a new link opens a
        // connection of its own.
        let stream = once.lock().take();
        std::future::ready(stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
    });
    Ok(endpoint.connect_with_connector(connector).await?)
}

/// Adds the node's token to a request.
pub(super) fn authorize<T>(request: &mut tonic::Request<T>, token: Option<&Token>) {
    let Some(token) = token else {
        return;
    };
    // All characters of a token are valid in a header, so this does not fail.
    if let Ok(mut value) = MetadataValue::try_from(format!("Bearer {}", token.reveal())) {
        value.set_sensitive(true);
        request.metadata_mut().insert("authorization", value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::manager::nodes_client::NodesClient;
    use causeway_security::{Authority, ClientCertificates, Issued, ServerTls};
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::time::SystemTime;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn write(folder: &Path, name: &str, issued: &Issued) -> (PathBuf, PathBuf) {
        let (certificate, key) = (
            folder.join(format!("{name}.pem")),
            folder.join(format!("{name}.key")),
        );
        std::fs::write(&certificate, &issued.certificate).unwrap();
        std::fs::write(&key, issued.key.reveal()).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        (certificate, key)
    }

    /// Plays a manager that sends its HTTP/2 settings and then nothing more.
    async fn fall_silent(mut stream: tokio::io::DuplexStream) {
        const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        stream.write_all(&SETTINGS).await.unwrap();
        let mut heard = Vec::new();
        // Reads until the node closes the connection.
        stream.read_to_end(&mut heard).await.unwrap();
        assert!(heard.starts_with(b"PRI * HTTP/2.0"));
    }

    #[tokio::test]
    async fn a_manager_that_is_gone_without_a_word_is_noticed() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let silent = tokio::spawn(fall_silent(theirs));
        let mut nodes = NodesClient::new(channel_over(ours).await.unwrap());
        let joined = nodes.join(tokio_stream::pending());
        let joined = tokio::time::timeout(Duration::from_secs(60), joined).await;
        assert!(joined.expect("the silence is noticed in time").is_err());
        drop(nodes);
        silent.await.unwrap();
    }

    #[tokio::test]
    async fn a_manager_with_a_ca_named_has_to_show_its_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let hour = Duration::from_secs(3600);
        let valid = SystemTime::now() - hour..SystemTime::now() + hour;
        let (authority, ca) = Authority::generate("ours", valid.clone()).unwrap();
        let (_, other) = Authority::generate("other", valid.clone()).unwrap();
        let node = authority.node(&["127.0.0.1".to_owned()], valid).unwrap();
        let (certificate, key) = write(folder.path(), "manager", &node);
        let server = ServerTls::load(&certificate, &key, ClientCertificates::None).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = ManagerAddress {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
            name: None,
        };
        let (ca, other) = (
            write(folder.path(), "ca", &ca).0,
            write(folder.path(), "other", &other).0,
        );
        let serving = tokio::spawn(async move {
            let (refused, _) = listener.accept().await.unwrap();
            let refused = secure(server.handshake().unwrap(), refused, &[]);
            assert!(refused.await.is_err());
            let (socket, _) = listener.accept().await.unwrap();
            let mut stream = secure(server.handshake().unwrap(), socket, &[])
                .await
                .unwrap();
            let mut preface = [0; 14];
            stream.read_exact(&mut preface).await.unwrap();
            assert_eq!(&preface, b"PRI * HTTP/2.0");
        });
        let stranger = ClientTls::load(&other, None).unwrap();
        let refused = dial(&address, Some(&stranger)).await;
        assert!(matches!(refused, Err(NotDialled::Tls(_))), "{refused:?}");
        let ours = ClientTls::load(&ca, None).unwrap();
        dial(&address, Some(&ours)).await.unwrap();
        serving.await.unwrap();
    }

    /// Returns the advice for a manager that presents this certificate.
    async fn cure_of(folder: &Path, ca: &Issued, shown: &Issued) -> Option<&'static str> {
        let (certificate, key) = write(folder, "shown", shown);
        let server = ServerTls::load(&certificate, &key, ClientCertificates::None).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = ManagerAddress {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
            name: None,
        };
        let serving = tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let refused = secure(server.handshake().unwrap(), socket, &[]);
            assert!(refused.await.is_err());
        });
        let ca = ClientTls::load(&write(folder, "named", ca).0, None).unwrap();
        let refused = dial(&address, Some(&ca)).await.unwrap_err();
        serving.await.unwrap();
        refused.cure()
    }

    #[tokio::test]
    async fn of_a_bad_certificate_it_is_told_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
        let (valid, over) = (now - hour..now + hour, now - 2 * hour..now - hour);
        let (authority, ca) = Authority::generate("ours", valid.clone()).unwrap();
        let (_, other) = Authority::generate("other", valid.clone()).unwrap();
        let (_, alike) = Authority::generate("ours", valid.clone()).unwrap();
        let at = |name: &str, valid| authority.node(&[name.to_owned()], valid).unwrap();
        let good = at("127.0.0.1", valid.clone());
        let (elsewhere, late) = (at("10.0.0.1", valid), at("127.0.0.1", over));
        for (ca, shown, message) in [
            (&other, &good, "--manager-ca"),
            (&alike, &good, "--manager-ca"),
            (&ca, &elsewhere, "--manager,"),
            (&ca, &late, "clocks"),
        ] {
            let cure = cure_of(folder.path(), ca, shown).await.unwrap();
            assert!(cure.contains(message), "{cure}");
        }
    }
}
