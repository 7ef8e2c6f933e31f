//! Until when certificates hold: those of files that the configuration names.
//!
//! What it is not: it believes nothing; whether a certificate is the right one, TLS says. Invariant: a file that cannot be
//! read says nothing here, for those who use it say what is wrong with it.

use std::path::Path;
use std::time::{Duration, SystemTime};

use x509_parser::pem::Pem;

use crate::failure::Failure;
use crate::text::moment;

/// Which certificate of a file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// The first: whose file it is.
    Owner,
    /// The one that holds for longest: others may be there until all have the new one.
    Authorities,
}

/// How long one is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    /// Until then, in milliseconds since 1970.
    Until(u64),
    /// For less than [`SOON`].
    Soon(u64),
    /// It was until then.
    Over(u64),
}

/// In time to get another.
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

/// Of a certificate that the other side refuses, because it is too old.
pub(crate) fn refused(path: &Path) -> Failure {
    let when = match of_file(path, Of::Owner) {
        Some(Validity::Over(at)) => format!("has expired on {}", moment(at)),
        // By the other side's clock.
        _ => {
            "has expired, the other side says: see whether the clocks of both are right".to_owned()
        }
    };
    let failure = Failure::new(format!("your certificate ({}) {when}", path.display()));
    failure.cure(RENEW)
}

/// Whether one's own is.
pub(crate) fn is_over(path: &Path) -> bool {
    matches!(of_file(path, Of::Owner), Some(Validity::Over(_)))
}

/// What to do about one that is over.
pub(crate) const RENEW: &str = "get a new one of whom keeps the CA: causeway certs client NAME (causeway certs node NAME for a node)";

/// What the file's certificates say; `None` if nothing can be read of them.
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
