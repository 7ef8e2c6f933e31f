//! Warns before a server's own certificate is over, and when it is.
//!
//! What it is not: it renews nothing; a server is started anew with a new certificate.

use std::time::{Duration, SystemTime};

use causeway_security::OwnCertificate;

const DAY: Duration = Duration::from_secs(86_400);
/// From so long before its end.
const SOON: Duration = Duration::from_secs(30 * 86_400);
const CURE: &str =
    "make a new one (causeway certs node NAME) in its place, and start this server anew";

/// How a certificate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlook {
    Good,
    /// It ends in so many whole days.
    Soon(u64),
    Over,
}

/// Says so in the log now and once a day, for as long as the server runs.
pub async fn watch_certificate(certificate: OwnCertificate) {
    let Some(ends) = certificate.ends() else {
        return;
    };
    let (file, date) = (certificate.file().display(), date(ends));
    loop {
        match outlook(ends, SystemTime::now()) {
            Outlook::Good => {}
            Outlook::Soon(days) => {
                tracing::warn!(%file, ends = date, days, cure = CURE, "the certificate is soon over")
            }
            Outlook::Over => {
                tracing::error!(%file, ends = date, cure = CURE, "the certificate is over: clients refuse it")
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

/// The day, in UTC, as `2026-11-22`; a certificate's last year is 9999, which the form has.
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
