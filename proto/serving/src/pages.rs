//! Pages and streams for browsers, over HTTP/1.1.
//!
//! A connection carries one request. This module authenticates nobody: the router does, by the request's
//! [`Peer`], which has the client's certificate. Invariants: a stranger's connection has a deadline
//! and may be displaced by a newcomer. An answer lasts longer only if its handler calls [`Stay::stay`]. A peer that does
//! not read loses its connection, and no other connection waits for it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Extension;
use axum::Router;
use causeway_security::ServerTls;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;

use crate::admission::Admission;
use crate::gate::{Full, Peer, Places, Standing};
use crate::http_socket::{HttpSocket, NotOpened};
use crate::is_loopback;
use crate::patient::Patient;

/// Maximum number of connections over which no caller is authenticated, in total and for each address. A browser opens
/// a few at once.
const STRANGERS: (usize, usize) = (256, 64);
/// Maximum number of connections of known callers.
const KNOWN: (usize, usize) = (512, 256);
/// Timeout for handshake, request and answer together.
const WITHIN: Duration = Duration::from_secs(15);
/// Time without progress after which a write fails.
const READS_WITHIN: Duration = Duration::from_secs(20);
/// Size limit of a request's headers, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// The socket for browsers.
pub struct Pages {
    socket: HttpSocket,
    places: Places,
}

/// Lets an answer last: an extension of each request.
#[derive(Clone, Default)]
pub struct Stay(Arc<AtomicBool>);

impl Stay {
    /// Lifts the timeout of this connection.
    pub fn stay(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The reason why a connection has ended without an answer.
#[derive(Debug, thiserror::Error)]
enum NotAnswered {
    #[error("the request was not answered in time")]
    Silent,
    #[error("the connection's place was given to another one")]
    Displaced,
    #[error(transparent)]
    Full(#[from] Full),
    #[error(transparent)]
    NotOpened(#[from] NotOpened),
    #[error("{0}")]
    Http(#[from] hyper::Error),
}

impl Pages {
    /// Listens, with the server's certificate if there is one; then every connection uses TLS. Without a certificate,
    /// nobody beyond loopback is answered, unless `insecure` allows it.
    ///
    /// # Errors
    /// The system's error.
    pub fn bind(address: SocketAddr, tls: Option<&ServerTls>, insecure: bool) -> io::Result<Pages> {
        let in_the_clear = tls.is_none() && (insecure || is_loopback(&address));
        Ok(Pages {
            socket: HttpSocket::bind(address, tls, in_the_clear)?,
            places: Places {
                strangers: Admission::new(STRANGERS.0, STRANGERS.1),
                known: Admission::new(KNOWN.0, KNOWN.1),
            },
        })
    }

    /// The address on which the socket listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    /// Accepts connections, and answers their requests by the router. Never returns.
    pub async fn serve(self, router: Router) {
        let shared = Arc::new((self, router));
        loop {
            let (socket, address) = shared.0.socket.accept().await;
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                if let Err(error) = shared.0.answer(socket, address, &shared.1).await {
                    tracing::debug!(%address, %error, "a browser's connection has ended");
                }
            });
        }
    }

    async fn answer(
        &self,
        socket: TcpStream,
        address: SocketAddr,
        router: &Router,
    ) -> Result<(), NotAnswered> {
        let standing = Arc::new(Standing::new(address, false, &self.places)?);
        let stay = Stay::default();
        let answered = self.connection(socket, address, (&standing, &stay), router);
        let late = async {
            tokio::time::sleep(WITHIN).await;
            if stay.0.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            answered = answered => answered,
            () = standing.displaced() => Err(NotAnswered::Displaced),
            () = late => Err(NotAnswered::Silent),
        }
    }

    async fn connection(
        &self,
        socket: TcpStream,
        address: SocketAddr,
        (standing, stay): (&Arc<Standing>, &Stay),
        router: &Router,
    ) -> Result<(), NotAnswered> {
        // Each message of a stream is complete, so it leaves at once.
        let _ = socket.set_nodelay(true);
        let port = self.socket.open(socket).await?;
        let peer = Peer {
            address,
            certified: port.certified(),
            standing: Arc::clone(standing),
        };
        let router = router.clone();
        let router = router.layer(Extension(peer)).layer(Extension(stay.clone()));
        http1::Builder::new()
            .keep_alive(false)
            .max_buf_size(MAX_HEAD)
            .serve_connection(
                TokioIo::new(Patient::new(port, READS_WITHIN)),
                TowerToHyperService::new(router),
            )
            .await?;
        Ok(())
    }
}
