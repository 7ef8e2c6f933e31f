//! How often each user may ask something that costs him nothing: some times at once, and then at a pace.
//!
//! What it is not: it knows no clock. Invariant: who has not asked for long enough has nothing kept of him.

use std::collections::HashMap;
use std::time::Duration;

use crate::policy::UserName;

/// Times that a user may ask at once.
pub(super) const AT_ONCE: u32 = 60;
/// Between two more.
pub(super) const EACH: Duration = Duration::from_secs(1);

/// See the module. Times are since a moment that is always the same one.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When each has all his times again.
    whole_at: HashMap<UserName, Duration>,
    /// From so many on those are looked for who have.
    many: usize,
}

impl Pace {
    /// Whether the user may ask now; if so he has asked.
    pub(super) fn may(&mut self, user: &UserName, now: Duration) -> bool {
        let whole_at = self.whole_at.get(user).copied().unwrap_or_default();
        let next = whole_at.max(now) + EACH;
        if next > now + EACH * AT_ONCE {
            return false;
        }
        if self.whole_at.len() >= self.many {
            self.whole_at.retain(|_, whole_at| *whole_at > now);
            self.many = 2 * self.whole_at.len() + 64;
        }
        self.whole_at.insert(user.clone(), next);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(number: u64) -> UserName {
        format!("u{number}").as_str().into()
    }

    #[test]
    fn each_has_his_times_and_gets_them_back() {
        let (mut pace, now) = (Pace::default(), Duration::from_secs(1000));
        let times = |pace: &mut Pace, user: &UserName, now| {
            (0..2 * AT_ONCE).filter(|_| pace.may(user, now)).count() as u32
        };
        assert_eq!(times(&mut pace, &user(1), now), AT_ONCE);
        assert_eq!(times(&mut pace, &user(1), now + EACH / 2), 0);
        assert_eq!(times(&mut pace, &user(1), now + EACH), 1);
        assert_eq!(times(&mut pace, &user(2), now), AT_ONCE, "another's");
        assert_eq!(times(&mut pace, &user(1), now + EACH * 5), 4);
        let later = now + EACH * 10 * AT_ONCE;
        assert_eq!(times(&mut pace, &user(1), later), AT_ONCE);
    }

    #[test]
    fn who_asks_now_and_then_is_not_remembered() {
        let mut pace = Pace::default();
        for number in 0..10_000 {
            assert!(pace.may(&user(number), EACH * number as u32));
        }
        assert!(pace.whole_at.len() <= 128, "{}", pace.whole_at.len());
    }
}
