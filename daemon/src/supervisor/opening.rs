//! Recognizes the protocol of a connection by its first bytes.
//!
//! Invariant: reads no byte beyond those that decide, and none beyond a preamble.

use bytes::Bytes;
use causeway_proto::preamble::{MAGIC, PREAMBLE};
use causeway_security::TLS_HANDSHAKE;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Connection preface of HTTP/2 (RFC 9113, section 3.4).
const HTTP2: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Protocol of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// HTTP/2; contains the bytes that were read.
    Control(Bytes),
    /// A connection of a session; contains its preamble, not validated yet.
    Session([u8; PREAMBLE]),
    /// TLS; the first byte was read.
    Tls,
    /// A protocol that is not served here.
    Foreign,
}

/// Reads until the protocol is known. The caller limits the time.
///
/// # Errors
/// The connection's error, or `UnexpectedEof` if it ends too early.
pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Opening> {
    let mut bytes = [0; PREAMBLE];
    bytes[0] = from.read_u8().await?;
    if bytes[0] == TLS_HANDSHAKE {
        Ok(Opening::Tls)
    } else if bytes[0] == HTTP2[0] {
        let same = read_while(from, &mut bytes[..HTTP2.len()], HTTP2).await?;
        Ok(if same {
            Opening::Control(Bytes::from_static(HTTP2))
        } else {
            Opening::Foreign
        })
    } else if bytes[0] == MAGIC[0] {
        let same = read_while(from, &mut bytes, &MAGIC).await?;
        Ok(if same {
            Opening::Session(bytes)
        } else {
            Opening::Foreign
        })
    } else {
        Ok(Opening::Foreign)
    }
}

/// Fills `into`, whose first byte is already read, as long as it begins like `model`. Returns whether it
/// does.
async fn read_while(
    from: &mut (impl AsyncRead + Unpin),
    into: &mut [u8],
    model: &[u8],
) -> std::io::Result<bool> {
    let mut have = 1;
    loop {
        let known = have.min(model.len());
        if into[..known] != model[..known] {
            return Ok(false);
        }
        if have == into.len() {
            return Ok(true);
        }
        let n = from.read(&mut into[have..]).await?;
        if n == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        have += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::id::SessionId;
    use causeway_proto::preamble::{Preamble, Purpose};

    async fn opening(bytes: &[u8]) -> std::io::Result<Opening> {
        read(&mut &bytes[..]).await
    }

    #[tokio::test]
    async fn each_protocol_is_known_by_its_first_bytes() {
        let preamble = Preamble {
            purpose: Purpose::Heartbeat,
            lane: 0,
            session: SessionId([5; 16]),
            link: 0,
        };
        let bytes = preamble.encode();
        assert_eq!(opening(&bytes).await.unwrap(), Opening::Session(bytes));
        assert!(matches!(opening(HTTP2).await.unwrap(), Opening::Control(_)));
        for (bytes, expected) in [
            (&b"\x16\x03\x01"[..], Opening::Tls),
            (b"GET / HTTP/1.1\r\n\r\n", Opening::Foreign),
            (b"POST / HTTP/1.1\r\n\r\n", Opening::Foreign),
            (b"CONNECT x HTTP/1.1\r\n", Opening::Foreign),
            (&[0; 100], Opening::Foreign),
        ] {
            assert_eq!(opening(bytes).await.unwrap(), expected, "{bytes:?}");
        }
        for cut in [&b""[..], b"C", b"CSWY", b"PRI"] {
            assert!(opening(cut).await.is_err(), "{cut:?}");
        }
    }

    #[tokio::test]
    async fn what_follows_stays_in_the_socket() {
        let mut bytes = [&HTTP2[..], b"rest"].concat();
        let mut from = &bytes[..];
        read(&mut from).await.unwrap();
        assert_eq!(from, b"rest");
        bytes[..4].copy_from_slice(&MAGIC);
        bytes.extend([0; 20]);
        let mut from = &bytes[..];
        read(&mut from).await.unwrap();
        assert_eq!(from.len(), bytes.len() - PREAMBLE);
    }
}
