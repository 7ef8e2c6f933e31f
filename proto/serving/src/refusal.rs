//! The last message to a peer that uses TLS where there is none, or does not use TLS where it is required.
//!
//! Closing a socket with unread bytes resets the connection, and the peer may lose the last message. So the
//! server shuts down its sending side and keeps reading for a moment.
//!
//! This module does not decide whom to refuse. Invariant: a refusal takes at most half a second.

use std::io;

use causeway_security::LINGER;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// The fatal alert `handshake_failure` of TLS, from a server without TLS.
pub const NO_TLS: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];
/// An empty `SETTINGS`, and `GOAWAY` with `INADEQUATE_SECURITY` (RFC 9113 §6.8, §7), from an HTTP/2 server
/// that requires TLS.
pub const NOT_IN_THE_CLEAR: [u8; 26] = [
    0, 0, 0, 4, 0, 0, 0, 0, 0, //
    0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12,
];

/// Sends the refusal. Waits until the peer has closed the connection, for half a second at most.
pub async fn refuse(mut socket: impl AsyncRead + AsyncWrite + Unpin, refusal: &[u8]) {
    let linger = async {
        socket.write_all(refusal).await?;
        causeway_security::linger(&mut socket).await;
        io::Result::Ok(())
    };
    // Neither a timeout nor an error matters: the peer is gone or had its chance.
    let _ = tokio::time::timeout(LINGER, linger).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

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
