//! How long a client waits for the answers to its question.
//!
//! Pure: the caller passes the times.

use std::time::{Duration, Instant};

/// How long to wait; see [`Patience::until`].
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The wait for the first answer.
    pub first: Duration,
    /// The wait after the last new answer.
    pub after: Duration,
    /// The longest wait in all.
    pub most: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            first: Duration::from_millis(600),
            after: Duration::from_millis(150),
            most: Duration::from_millis(800),
        }
    }
}

impl Patience {
    /// Returns when the wait for a question that was asked at `asked` ends, if no other answer comes.
    #[must_use]
    pub fn until(&self, asked: Instant, last_new: Option<Instant>) -> Instant {
        let end = match last_new {
            None => asked + self.first,
            Some(last) => last + self.after,
        };
        end.min(asked + self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_soon_after_the_last_answer_and_in_any_case() {
        let (asked, wait) = (Instant::now(), Patience::default());
        let ms = Duration::from_millis;
        assert_eq!(wait.until(asked, None), asked + ms(600));
        assert_eq!(wait.until(asked, Some(asked + ms(20))), asked + ms(170));
        assert_eq!(wait.until(asked, Some(asked + ms(790))), asked + ms(800));
    }
}
