//! How those who watch machines see a server: `/healthz` and `/metrics` over HTTP/1.1, with TLS or without.
//!
//! What it is not: a web server; one request a connection, answered and closed. Invariants: nobody is asked who he
//! is, so there are counts only; strangers are few and have little time; beyond loopback nothing is said in the clear
//! unless `--insecure` asked for it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use causeway_security::{NotSecured, ServerTls, TLS_HANDSHAKE, secure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use toml::Spanned;

use crate::admission::Admission;
use crate::exposition::CONTENT_TYPE;
use crate::{BadAddress, BadFile, ConfigFile, is_loopback, parse_listen};

/// How a request in the clear begins: with `GET`.
pub const FIRST_BYTE: u8 = b'G';
/// A request's head is shorter.
const MAX_HEAD: usize = 8 << 10;
/// Watchers at once, in all and from one address.
const WATCHERS: (usize, usize) = (64, 32);
/// For handshake, request and answer.
const WITHIN: Duration = Duration::from_secs(5);
/// After a failed accept: descriptors are short, and somebody has to close some.
const BREATHER: Duration = Duration::from_millis(100);

/// `[metrics]` of a configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Where to listen.
    pub listen: Option<Spanned<String>>,
}

/// Where to listen, as flag (which wins) or file say; `None`: nowhere.
///
/// # Errors
/// What is no address.
pub fn address<T: DeserializeOwned, E: From<BadAddress> + From<BadFile>>(
    flag: Option<&String>,
    file: &ConfigFile<T>,
    table: &Table,
    usual_port: u16,
) -> Result<Option<SocketAddr>, E> {
    if let Some(text) = flag {
        return Ok(Some(parse_listen(text, usual_port)?));
    }
    let listed = table.listen.as_ref().map(|text| {
        let parsed = parse_listen(text.get_ref(), usual_port);
        parsed.map_err(|error| file.wrong(text, &error))
    });
    Ok(listed.transpose()?)
}

/// A server that is watched.
pub trait Watched: Clone + Send + Sync + 'static {
    /// Why it does not serve; `None`: it does.
    fn problem(&self) -> impl Future<Output = Option<String>> + Send;

    /// Its counts, as [`Exposition`](crate::exposition::Exposition) writes them; or why there are none.
    fn metrics(&self) -> impl Future<Output = Result<String, String>> + Send;
}

/// Answers the one request of a connection; the caller limits the time.
///
/// # Errors
/// What the connection says.
pub async fn answer(
    watched: &impl Watched,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let room = MAX_HEAD - head.len();
        let got = (&mut stream).take(room as u64).read_buf(&mut head).await?;
        if got == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    let head = String::from_utf8_lossy(&head);
    let path = head
        .strip_prefix("GET ")
        .and_then(|rest| rest.split(' ').next());
    let (status, body) = match path {
        Some("/healthz") => match watched.problem().await {
            None => ("200 OK", "ok\n".to_owned()),
            Some(problem) => ("503 Service Unavailable", format!("{problem}\n")),
        },
        Some("/metrics") => match watched.metrics().await {
            Ok(text) => ("200 OK", text),
            Err(problem) => ("503 Service Unavailable", format!("{problem}\n")),
        },
        _ => (
            "404 Not Found",
            "there are /healthz and /metrics\n".to_owned(),
        ),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Where watchers come to.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<ServerTls>,
    in_the_clear: bool,
}

/// A watcher is not answered.
#[derive(Debug, thiserror::Error)]
enum NotAnswered {
    #[error("the caller was silent for too long")]
    Silent,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] NotSecured),
    #[error("the caller speaks TLS, which is off here")]
    TlsIsOff,
    #[error("the caller speaks in the clear, beyond loopback")]
    Clear,
}

impl Listener {
    /// Listens, with the server's certificate if there is one. `insecure`: in the clear beyond loopback as well.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind(
        address: SocketAddr,
        tls: Option<&ServerTls>,
        insecure: bool,
    ) -> io::Result<Listener> {
        let socket = std::net::TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Listener {
            socket: TcpListener::from_std(socket)?,
            address,
            tls: tls.map(ServerTls::over_http1),
            in_the_clear: insecure || is_loopback(&address),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers for ever.
    pub async fn serve(self, watched: impl Watched) {
        let admission = Admission::new(WATCHERS.0, WATCHERS.1);
        let shared = Arc::new((self, watched));
        loop {
            let (socket, peer) = match shared.0.socket.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accept");
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            };
            let Some(mut permit) = admission.admit(peer.ip()) else {
                tracing::debug!(%peer, "too many watchers");
                continue;
            };
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let answered = shared.0.answer(socket, &shared.1);
                let answered = tokio::select! {
                    answered = tokio::time::timeout(WITHIN, answered) => answered,
                    () = permit.displaced() => return,
                };
                drop(permit);
                if let Err(error) = answered.unwrap_or(Err(NotAnswered::Silent)) {
                    tracing::debug!(%peer, %error, "a watcher was not answered");
                }
            });
        }
    }

    async fn answer(&self, socket: TcpStream, watched: &impl Watched) -> Result<(), NotAnswered> {
        let mut first = [0];
        if socket.peek(&mut first).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        match (first[0] == TLS_HANDSHAKE, &self.tls) {
            (true, Some(tls)) => {
                let stream = secure(tls.handshake()?, socket, &[]).await?;
                Ok(answer(watched, stream).await?)
            }
            (true, None) => Err(NotAnswered::TlsIsOff),
            (false, _) if self.in_the_clear => Ok(answer(watched, socket).await?),
            (false, _) => Err(NotAnswered::Clear),
        }
    }
}
