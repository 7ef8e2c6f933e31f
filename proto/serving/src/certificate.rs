//! Warns before a server's own certificate expires, and after it has expired.
//!
//! This module renews nothing: a new certificate needs a restart of the server.

use std::time::{Duration, SystemTime};

use causeway_security::{OwnCertificate, Validity};

const DAY: Duration = Duration::from_secs(86_400);
const CURE: &str = "replace the certificate (causeway certs node NAME) and restart this server";

/// Logs the warning now and once a day, as long as the server runs.
pub async fn watch_certificate(certificate: OwnCertificate) {
    let file = certificate.file().display();
    while let Some(validity) = certificate.validity() {
        match validity {
            Validity::Until(_) => {}
            Validity::Soon(end) => {
                let left = end.duration_since(SystemTime::now()).unwrap_or_default();
                let days = left.as_secs() / DAY.as_secs();
                tracing::warn!(%file, ends = date(end), days, cure = CURE, "the server's certificate expires soon")
            }
            Validity::Over(end) => {
                tracing::error!(
                    %file,
                    ends = date(end),
                    cure = CURE,
                    "the server's certificate has expired; clients refuse to connect"
                )
            }
        }
        tokio::time::sleep(DAY).await;
    }
}

/// The date in UTC, as `2026-11-22`. The last possible year of a certificate is 9999, which this format can
/// express.
fn date(at: SystemTime) -> String {
    let moment = humantime::format_rfc3339_seconds(at).to_string();
    moment.split('T').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_795_305_600, "2026-11-22"),
            (4_102_444_799, "2099-12-31"),
        ] {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(date(at), expected);
        }
    }
}
