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

/// The day, in UTC, as `2026-11-22`. Counted by eras of 400 years.
fn date(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    // Days since 0000-03-01, after which a leap day ends a year.
    let days = since.unwrap_or_default().as_secs() / DAY.as_secs() + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
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
