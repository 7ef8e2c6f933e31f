//! What a server says to a peer that speaks TLS where there is none, or speaks in the clear where there is TLS.
//!
//! A socket that is closed while bytes of the peer are unread resets the connection, and the peer may lose the
//! last word. So the server shuts its own side down and reads on for a moment.
//!
//! What it is not: it does not decide who is refused. Invariant: a refusal takes half a second at most.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A fatal alert, `handshake_failure`: what a TLS server says that cannot serve.
pub const NO_TLS: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];
/// `SETTINGS` without any, and `GOAWAY` for `INADEQUATE_SECURITY` (RFC 9113 §6.8, §7): what an HTTP/2 server says
/// that serves nobody in the clear.
pub const NOT_IN_THE_CLEAR: [u8; 26] = [
    0, 0, 0, 4, 0, 0, 0, 0, 0, //
    0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12,
];

/// How long the peer may take to read the refusal.
const LINGER: Duration = Duration::from_millis(500);

/// Sends the refusal, and waits until the peer has closed the connection or half a second is over.
pub async fn refuse(mut socket: impl AsyncRead + AsyncWrite + Unpin, refusal: &[u8]) {
    let linger = async {
        socket.write_all(refusal).await?;
        socket.shutdown().await?;
        let mut ignored = [0; 4096];
        while socket.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    // A peer that is gone needs no refusal.
    let _ = tokio::time::timeout(LINGER, linger).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_peer_reads_the_refusal_although_nobody_reads_its_words() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            refuse(socket, &NOT_IN_THE_CLEAR).await;
        });
        let mut peer = tokio::net::TcpStream::connect(address).await.unwrap();
        peer.write_all(&[7; 100_000]).await.unwrap();
        let mut heard = Vec::new();
        peer.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, NOT_IN_THE_CLEAR);
        drop(peer);
        server.await.unwrap();
    }
}
