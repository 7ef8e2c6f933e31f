//! Monitoring over HTTP/1.1, with TLS or without: `/healthz` and `/metrics`.
//!
//! This is no general web server: a connection carries one request, is answered and closed. Invariants:
//! callers are not authenticated, so only counts are published. The number of connections and their time
//! are limited. Beyond loopback nothing is sent without TLS, unless `--insecure` allows it.

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

/// First byte of a request without TLS: that of `GET`.
pub const FIRST_BYTE: u8 = b'G';
/// Size limit of a request's headers, in bytes.
const MAX_HEAD: usize = 8 << 10;
/// Connection limits, in total and for each address.
const WATCHERS: (usize, usize) = (64, 32);
/// Timeout for handshake, request and answer together.
const WITHIN: Duration = Duration::from_secs(5);
/// Pause after a failed accept: file descriptors may have run out, and others must be closed first.
const BREATHER: Duration = Duration::from_millis(100);

/// The table `[metrics]` of a configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The address to listen on.
    pub listen: Option<Spanned<String>>,
}

/// The address to listen on. The flag overrides the file. `None` if neither has one.
///
/// # Errors
/// The error of the address that is not valid.
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

/// A server that can be monitored.
pub trait Watched: Clone + Send + Sync + 'static {
    /// The reason why the server does not serve at present. `None` if it serves.
    fn problem(&self) -> impl Future<Output = Option<String>> + Send;

    /// The metrics in the format of [`Exposition`](crate::exposition::Exposition), or the reason why there
    /// are none.
    fn metrics(&self) -> impl Future<Output = Result<String, String>> + Send;
}

/// Answers the one request of a connection. The caller sets the timeout.
///
/// # Errors
/// The error of the connection, or `InvalidData` for headers that are too long or incomplete.
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
            "not found; this port serves /healthz and /metrics\n".to_owned(),
        ),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// The socket for monitoring requests.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<ServerTls>,
    in_the_clear: bool,
}

/// The reason why a monitoring request gets no answer.
#[derive(Debug, thiserror::Error)]
enum NotAnswered {
    #[error("the request was not complete in time")]
    Silent,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] NotSecured),
    #[error("the caller requested TLS, but TLS is disabled")]
    TlsIsOff,
    #[error(
        "a caller from another machine did not use TLS; use TLS or start the server with --insecure"
    )]
    Clear,
}

impl Listener {
    /// Listens, with the server's certificate if there is one. With `insecure`, connections beyond loopback
    /// may be without TLS as well.
    ///
    /// # Errors
    /// The system's error.
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

    /// The address on which the socket listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts and answers requests. Never returns.
    pub async fn serve(self, watched: impl Watched) {
        let admission = Admission::new(WATCHERS.0, WATCHERS.1);
        let shared = Arc::new((self, watched));
        loop {
            let (socket, peer) = match shared.0.socket.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a monitoring connection cannot be accepted");
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            };
            let Some(mut permit) = admission.admit(peer.ip()) else {
                tracing::debug!(%peer, "a monitoring connection was refused: too many connections");
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
                    tracing::debug!(%peer, %error, "a monitoring request was not answered");
                }
            });
        }
    }

    async fn answer(&self, socket: TcpStream, watched: &impl Watched) -> Result<(), NotAnswered> {
        // The first byte is only peeked at, so TLS or HTTP reads it again.
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
