//! The validity of the certificates in files that the configuration names.
//!
//! This module verifies nothing; TLS does. Invariant: a file that cannot be read has no validity here.
//! Its users report the error.

use std::path::Path;
use std::time::{Duration, SystemTime};

use x509_parser::pem::Pem;

use crate::failure::Failure;
use crate::text::moment;

/// The certificate of a file that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// The first one: the owner's own.
    Owner,
    /// The one that is valid for longest: a file of CAs may contain old ones until all nodes have the new
    /// one.
    Authorities,
}

/// The validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    /// Valid until this time, in milliseconds since 1970.
    Until(u64),
    /// Valid for less than [`SOON`], until this time.
    Soon(u64),
    /// Expired at this time.
    Over(u64),
}

/// Remaining validity below which a certificate should be renewed.
pub(crate) const SOON: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl Validity {
    fn at(end: SystemTime, now: SystemTime) -> Validity {
        let since = end
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let until = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        match end.duration_since(now) {
            Err(_) => Validity::Over(until),
            Ok(left) if left < SOON => Validity::Soon(until),
            Ok(_) => Validity::Until(until),
        }
    }
}

/// The failure for a client certificate that the manager refuses as expired.
pub(crate) fn refused(path: &Path) -> Failure {
    let when = match of_file(path, Of::Owner) {
        Some(Validity::Over(at)) => format!("has expired on {}", moment(at)),
        // The certificate has expired by the manager's clock only.
        _ => "has expired according to the manager: check the clocks of both machines".to_owned(),
    };
    let failure = Failure::new(format!("your certificate ({}) {when}", path.display()));
    failure.cure(RENEW)
}

/// Whether the first certificate of a file has expired.
pub(crate) fn is_over(path: &Path) -> bool {
    matches!(of_file(path, Of::Owner), Some(Validity::Over(_)))
}

/// The cure for an expired certificate.
pub(crate) const RENEW: &str = "ask the CA's administrator for a new one: causeway certs client NAME (causeway certs \
                                node NAME for a node)";

/// The validity of a file's certificates. `None`: the file has no readable certificate.
pub(crate) fn of_file(path: &Path, of: Of) -> Option<Validity> {
    let text = std::fs::read(path).ok()?;
    let mut ends = Pem::iter_from_buffer(&text)
        .map_while(Result::ok)
        .filter(|pem| pem.label == "CERTIFICATE")
        .filter_map(|pem| {
            let end = pem.parse_x509().ok()?.validity().not_after.timestamp();
            let since = Duration::from_secs(u64::try_from(end).unwrap_or(0));
            SystemTime::UNIX_EPOCH.checked_add(since)
        });
    let end = match of {
        Of::Owner => ends.next(),
        Of::Authorities => ends.max(),
    };
    Some(Validity::at(end?, SystemTime::now()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_security::Authority;

    #[test]
    fn the_end_is_seen_before_and_after_it() {
        let now = SystemTime::now();
        let day = Duration::from_secs(86_400);
        let (past, soon, late) = (now - day, now + 29 * day, now + 31 * day);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pem");
        let pem = |end| {
            Authority::generate("CA", now - 9 * day..end)
                .unwrap()
                .1
                .certificate
        };
        let read = |text: &str, of| {
            std::fs::write(&path, text).unwrap();
            of_file(&path, of)
        };
        assert!(matches!(
            read(&pem(past), Of::Owner),
            Some(Validity::Over(_))
        ));
        assert!(matches!(
            read(&pem(soon), Of::Owner),
            Some(Validity::Soon(_))
        ));
        let both = pem(past) + &pem(late);
        assert!(matches!(read(&both, Of::Owner), Some(Validity::Over(_))));
        assert!(matches!(
            read(&both, Of::Authorities),
            Some(Validity::Until(_))
        ));
        assert_eq!(read("hello", Of::Owner), None);
    }
}
