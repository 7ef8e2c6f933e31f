//! Monitoring over HTTP/1.1, with TLS or without: `/healthz` and `/metrics`.
//!
//! HTTP is hyper's and axum's. A connection carries one request, is answered and closed. Invariants: callers
//! are not authenticated, so only counts are published. The number of connections and their time are
//! limited. Beyond loopback nothing is sent without TLS, unless `--insecure` allows it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::routing::get;
use causeway_security::ServerTls;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use toml::Spanned;

use crate::admission::Admission;
use crate::exposition::{self, Registry};
use crate::http_socket::{HttpSocket, NotOpened};
use crate::{BadAddress, BadFile, ConfigFile, is_loopback, parse_listen};

/// First byte of a request without TLS: that of `GET`.
pub const FIRST_BYTE: u8 = b'G';
/// Size limit of a request's headers, in bytes. hyper takes no smaller one.
const MAX_HEAD: usize = 8 << 10;
/// Connection limits, in total and for each address.
const WATCHERS: (usize, usize) = (64, 32);
/// Timeout for handshake, request and answer together.
const WITHIN: Duration = Duration::from_secs(5);

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

    /// The metrics at present, or the reason why there are none.
    fn metrics(&self) -> impl Future<Output = Result<Registry, String>> + Send;
}

/// Answers the one request of a connection. The caller sets the timeout.
///
/// # Errors
/// The error of the connection or of the request.
pub async fn answer(
    watched: &impl Watched,
    stream: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    let answers = TowerToHyperService::new(answers(watched.clone()));
    http1::Builder::new()
        .keep_alive(false)
        // A caller may close its side once it has sent the request.
        .half_close(true)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), answers)
        .await
        .map_err(io::Error::other)
}

fn answers<W: Watched>(watched: W) -> Router {
    Router::new()
        .route("/healthz", get(healthz::<W>))
        .route("/metrics", get(metrics::<W>))
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .with_state(watched)
}

async fn healthz<W: Watched>(State(watched): State<W>) -> Result<&'static str, Problem> {
    match watched.problem().await {
        None => Ok("ok\n"),
        Some(problem) => Err(unavailable(problem)),
    }
}

async fn metrics<W: Watched>(
    State(watched): State<W>,
) -> Result<([(HeaderName, &'static str); 1], String), Problem> {
    let registry = watched.metrics().await.map_err(unavailable)?;
    Ok((
        [(CONTENT_TYPE, exposition::CONTENT_TYPE)],
        exposition::written(&registry),
    ))
}

async fn not_found() -> (StatusCode, &'static str) {
    let found = "not found; this port serves /healthz and /metrics\n";
    (StatusCode::NOT_FOUND, found)
}

type Problem = (StatusCode, String);

fn unavailable(problem: String) -> Problem {
    (StatusCode::SERVICE_UNAVAILABLE, problem + "\n")
}

/// The socket for monitoring requests.
pub struct Listener(HttpSocket);

/// The reason why a monitoring request gets no answer.
#[derive(Debug, thiserror::Error)]
enum NotAnswered {
    #[error("the request was not complete in time")]
    Silent,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    NotOpened(#[from] NotOpened),
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
        let in_the_clear = insecure || is_loopback(&address);
        HttpSocket::bind(address, tls, in_the_clear).map(Listener)
    }

    /// The address on which the socket listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Accepts and answers requests. Never returns.
    pub async fn serve(self, watched: impl Watched) {
        let admission = Admission::new(WATCHERS.0, WATCHERS.1);
        let shared = Arc::new((self, watched));
        loop {
            let (socket, peer) = shared.0.0.accept().await;
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
        let stream = self.0.open(socket).await?;
        Ok(answer(watched, stream).await?)
    }
}
