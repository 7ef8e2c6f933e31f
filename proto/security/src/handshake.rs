//! The TLS handshake on a blocking socket, with a deadline.
//!
//! Invariant: a peer that sends slowly cannot extend the deadline. rustls bounds the memory that a peer
//! can occupy to 64 KiB.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::status::TlsFault;

use crate::Handshake;
use crate::records::Records;

/// Types of TLS records.
const RECORDS: std::ops::RangeInclusive<u8> = 20..=23;

/// Why no secure connection was established.
#[derive(Debug, thiserror::Error)]
pub enum NotSecured {
    /// An error of the system, or a timeout.
    #[error("{0}")]
    Io(io::Error),
    /// The other end does not use TLS. None of its bytes has been consumed.
    #[error("the peer does not use TLS, but TLS is configured")]
    InTheClear,
    /// A TLS error, detected by either end.
    #[error("{}", text_of(self.fault(), .0))]
    Tls(rustls::Error),
}

impl From<io::Error> for NotSecured {
    fn from(error: io::Error) -> NotSecured {
        NotSecured::behind(&error).unwrap_or(NotSecured::Io(error))
    }
}

impl NotSecured {
    /// The cause, for errors between client and node.
    #[must_use]
    pub fn fault(&self) -> TlsFault {
        use rustls::{AlertDescription as Alert, CertificateError as Wrong, Error};
        let error = match self {
            NotSecured::Tls(error) => error,
            NotSecured::InTheClear => return TlsFault::Missing,
            NotSecured::Io(_) => return TlsFault::Other,
        };
        match error {
            Error::InvalidCertificate(wrong) => match wrong {
                // A bad signature occurs when another CA has the same name.
                Wrong::UnknownIssuer | Wrong::BadSignature => TlsFault::OtherCa,
                Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                    TlsFault::OtherName
                }
                Wrong::Expired
                | Wrong::ExpiredContext { .. }
                | Wrong::NotValidYet
                | Wrong::NotValidYetContext { .. } => TlsFault::OtherTime,
                _ => TlsFault::Other,
            },
            Error::AlertReceived(alert) => match alert {
                Alert::CertificateExpired => TlsFault::OwnExpired,
                Alert::CertificateRequired => TlsFault::OwnMissing,
                // A bad signature, as above, is `DecryptError`.
                Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                | Alert::DecryptError => TlsFault::OwnRefused,
                // A node without a certificate of its own answers a handshake with this alert.
                Alert::HandshakeFailure => TlsFault::Missing,
                _ => TlsFault::Other,
            },
            _ => TlsFault::Other,
        }
    }

    /// The TLS error in an I/O error, into which rustls wraps its own. A peer may report one after the handshake, too.
    #[must_use]
    pub fn behind(error: &io::Error) -> Option<NotSecured> {
        let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(NotSecured::Tls(inner.clone()))
    }

    /// Whether the other end was too slow.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self, NotSecured::Io(error)
            if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock))
    }
}

fn text_of(fault: TlsFault, error: &rustls::Error) -> String {
    let text = match fault {
        TlsFault::OtherCa => "the peer's certificate was signed by another CA",
        TlsFault::OtherName => "the peer's certificate is for another name",
        TlsFault::OtherTime => "the peer's certificate is not valid now",
        TlsFault::OwnExpired => "the peer says that this side's certificate has expired",
        TlsFault::OwnMissing => "the peer requires a certificate, and this side has none",
        TlsFault::OwnRefused => "the peer does not accept this side's certificate",
        TlsFault::Missing => "the peer does not use TLS, or refuses how this side does",
        TlsFault::Other => "TLS failed",
    };
    format!("{text} ({error})")
}

/// Completes the handshake. Leaves timeouts set on the socket.
///
/// # Errors
/// [`NotSecured`]. If the cause is in TLS, the other end has been sent an alert.
pub fn complete(
    mut handshake: Handshake,
    socket: &TcpStream,
    deadline: Instant,
) -> Result<Arc<Records>, NotSecured> {
    let mut socket = Until { socket, deadline };
    if let Handshake::Client(_) = handshake {
        handshake.write_tls(&mut socket)?;
        socket.look_at_answer()?;
    }
    while handshake.is_handshaking() {
        handshake.complete_io(&mut socket)?;
    }
    while handshake.wants_write() {
        handshake.write_tls(&mut socket)?;
    }
    Ok(Records::new(handshake))
}

struct Until<'a> {
    socket: &'a TcpStream,
    deadline: Instant,
}

impl Until<'_> {
    // Checks that the answer is TLS, without consuming it. A server that refuses the connection may say
    // so unencrypted.
    fn look_at_answer(&self) -> Result<(), NotSecured> {
        let mut first = [0];
        loop {
            self.socket.set_read_timeout(Some(self.left()?))?;
            match self.socket.peek(&mut first) {
                Ok(0) => return Err(NotSecured::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) if RECORDS.contains(&first[0]) => return Ok(()),
                Ok(_) => return Err(NotSecured::InTheClear),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        // A timeout of zero would mean no timeout.
        if left < Duration::from_millis(1) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left)
    }
}

impl Read for Until<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(into)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
