//! The handshake on a blocking socket, with a deadline.
//!
//! Invariant: a peer that drips its bytes stretches no deadline; what it may make us keep is bounded (by
//! rustls: 64 KiB).

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Handshake;
use crate::records::Records;

/// The types of TLS' records.
const RECORDS: std::ops::RangeInclusive<u8> = 20..=23;

/// No connection came about.
#[derive(Debug, thiserror::Error)]
pub enum NotSecured {
    /// Something of the system's, a time limit included.
    #[error("{0}")]
    Io(io::Error),
    /// The other end does not speak TLS here. Nothing of what it says has been read.
    #[error("it answers in the clear where TLS was to be spoken")]
    InTheClear,
    /// What one end said of the other.
    #[error("TLS: {0}")]
    Tls(rustls::Error),
}

impl From<io::Error> for NotSecured {
    fn from(error: io::Error) -> NotSecured {
        // rustls' errors travel inside the system's.
        let inner = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(inner) => NotSecured::Tls(inner.clone()),
            None => NotSecured::Io(error),
        }
    }
}

impl NotSecured {
    /// What is wrong with the other end's certificate, if that is it.
    #[must_use]
    pub fn bad_certificate(&self) -> Option<BadCertificate> {
        use rustls::CertificateError as Wrong;
        let NotSecured::Tls(rustls::Error::InvalidCertificate(wrong)) = self else {
            return None;
        };
        match wrong {
            // The latter of a CA that has the same name.
            Wrong::UnknownIssuer | Wrong::BadSignature => Some(BadCertificate::OtherCa),
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                Some(BadCertificate::OtherName)
            }
            Wrong::Expired
            | Wrong::ExpiredContext { .. }
            | Wrong::NotValidYet
            | Wrong::NotValidYetContext { .. } => Some(BadCertificate::OtherTime),
            _ => None,
        }
    }

    /// The other end was too slow.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self, NotSecured::Io(error)
            if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock))
    }
}

/// What is wrong with the certificate of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCertificate {
    /// Another CA has signed it than the one that was named.
    OtherCa,
    /// It is of another name.
    OtherName,
    /// Its time is over, or has not begun.
    OtherTime,
}

/// Brings the handshake to its end. Leaves time limits set on the socket.
///
/// # Errors
/// [`NotSecured`]; the other end was told why, if it is TLS' fault.
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
    // Who cannot serve may say so in the clear.
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
        // Zero would mean no limit.
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
