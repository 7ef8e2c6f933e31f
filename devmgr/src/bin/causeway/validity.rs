//! What the tool says of certificates that have expired.
//!
//! This module verifies nothing; TLS does. Invariant: no failure blames a certificate that cannot be read.

use std::path::Path;

use causeway_security::{CertificateOf, Validity};
use humantime::format_rfc3339_seconds;

use crate::failure::Failure;

/// The failure for a client certificate that the manager refuses as expired.
pub(crate) fn refused(path: &Path) -> Failure {
    let when = match Validity::of_file(path, CertificateOf::Owner) {
        Some(Validity::Over(at)) => format!("has expired on {}", format_rfc3339_seconds(at)),
        // The certificate has expired by the manager's clock only.
        _ => "has expired according to the manager: check the clocks of both machines".to_owned(),
    };
    let failure = Failure::new(format!("your certificate ({}) {when}", path.display()));
    failure.cure(RENEW)
}

/// Whether the first certificate of a file has expired.
pub(crate) fn is_over(path: &Path) -> bool {
    matches!(
        Validity::of_file(path, CertificateOf::Owner),
        Some(Validity::Over(_))
    )
}

/// The cure for an expired certificate.
pub(crate) const RENEW: &str = "ask the CA's administrator for a new one: causeway certs client NAME (causeway certs \
                                node NAME for a node)";
