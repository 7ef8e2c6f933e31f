//! Until when certificates are valid, for those who should renew them.
//!
//! This module verifies nothing; TLS does. Invariant: a certificate that cannot be read has no validity
//! here. Its users report the error.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Remaining validity below which a certificate should be renewed.
const SOON: Duration = Duration::from_secs(30 * 86_400);

/// The validity of a certificate, as of a certain moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Valid until this time.
    Until(SystemTime),
    /// Valid until this time, for 30 days at most. The certificate should be renewed.
    Soon(SystemTime),
    /// Expired at this time.
    Over(SystemTime),
}

/// The certificate of a file that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateOf {
    /// The first one: the owner's own.
    Owner,
    /// The one that is valid for longest: a file of CAs may contain old ones until all nodes have the new
    /// one.
    Authorities,
}

impl Validity {
    /// The present validity of a file's certificates. `None`: the file has no readable certificate.
    #[must_use]
    pub fn of_file(path: &Path, of: CertificateOf) -> Option<Validity> {
        let text = std::fs::read(path).ok()?;
        let mut readable = CertificateDer::pem_slice_iter(&text).map_while(Result::ok);
        let end = match of {
            // The first certificate is the owner's; the others are those of authorities.
            CertificateOf::Owner => end(&readable.next()?),
            CertificateOf::Authorities => readable.filter_map(|authority| end(&authority)).max(),
        };
        Some(Validity::at(end?, SystemTime::now()))
    }

    /// The validity at `now` of a certificate that expires at `end`.
    pub(crate) fn at(end: SystemTime, now: SystemTime) -> Validity {
        match end.duration_since(now) {
            Err(_) => Validity::Over(end),
            Ok(left) if left <= SOON => Validity::Soon(end),
            Ok(_) => Validity::Until(end),
        }
    }
}

/// When the certificate expires. `None` if that cannot be read.
pub(crate) fn end(certificate: &[u8]) -> Option<SystemTime> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let since = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Authority;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn the_last_thirty_days_are_soon() {
        let end = SystemTime::UNIX_EPOCH + 100 * DAY;
        let at = |left: Duration| Validity::at(end, end - left);
        assert_eq!(at(31 * DAY), Validity::Until(end));
        assert_eq!(at(30 * DAY), Validity::Soon(end));
        assert_eq!(at(DAY / 2), Validity::Soon(end));
        assert_eq!(Validity::at(end, end + DAY), Validity::Over(end));
    }

    #[test]
    fn the_end_is_seen_before_and_after_it() {
        let now = SystemTime::now();
        let (past, soon, late) = (now - DAY, now + 29 * DAY, now + 31 * DAY);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pem");
        let pem = |end| {
            let (_, issued) = Authority::generate("CA", now - 9 * DAY..end).unwrap();
            issued.certificate
        };
        let read = |text: &str, of| {
            std::fs::write(&path, text).unwrap();
            Validity::of_file(&path, of)
        };
        assert!(matches!(
            read(&pem(past), CertificateOf::Owner),
            Some(Validity::Over(_))
        ));
        assert!(matches!(
            read(&pem(soon), CertificateOf::Owner),
            Some(Validity::Soon(_))
        ));
        let both = pem(past) + &pem(late);
        assert!(matches!(
            read(&both, CertificateOf::Owner),
            Some(Validity::Over(_))
        ));
        assert!(matches!(
            read(&both, CertificateOf::Authorities),
            Some(Validity::Until(_))
        ));
        assert_eq!(read("hello", CertificateOf::Owner), None);
    }
}
