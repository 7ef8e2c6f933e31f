//! Warns before a server's own certificate expires, and after it has expired.
//!
//! This module renews nothing: a new certificate needs a restart of the server.

use std::time::{Duration, SystemTime};

use causeway_security::OwnCertificate;

const DAY: Duration = Duration::from_secs(86_400);
/// Warnings start this long before the end.
const SOON: Duration = Duration::from_secs(30 * 86_400);
const CURE: &str = "replace the certificate (causeway certs node NAME) and restart this server";

/// The state of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlook {
    Good,
    /// The certificate expires in this number of whole days.
    Soon(u64),
    Over,
}

/// Logs the warning now and once a day, as long as the server runs.
pub async fn watch_certificate(certificate: OwnCertificate) {
    let Some(ends) = certificate.ends() else {
        return;
    };
    let (file, date) = (certificate.file().display(), date(ends));
    loop {
        match outlook(ends, SystemTime::now()) {
            Outlook::Good => {}
            Outlook::Soon(days) => {
                tracing::warn!(%file, ends = date, days, cure = CURE, "the server's certificate expires soon")
            }
            Outlook::Over => {
                tracing::error!(
                    %file,
                    ends = date,
                    cure = CURE,
                    "the server's certificate has expired; clients refuse to connect"
                )
            }
        }
        tokio::time::sleep(DAY).await;
    }
}

fn outlook(ends: SystemTime, now: SystemTime) -> Outlook {
    match ends.duration_since(now) {
        Ok(left) if left > SOON => Outlook::Good,
        Ok(left) => Outlook::Soon(left.as_secs() / DAY.as_secs()),
        Err(_) => Outlook::Over,
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
    fn the_last_thirty_days_are_warned_of() {
        let ends = SystemTime::UNIX_EPOCH + 100 * DAY;
        let at = |left: Duration| outlook(ends, ends - left);
        assert_eq!(at(31 * DAY), Outlook::Good);
        assert_eq!(at(30 * DAY), Outlook::Soon(30));
        assert_eq!(at(DAY / 2), Outlook::Soon(0));
        assert_eq!(outlook(ends, ends + DAY), Outlook::Over);
    }

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
