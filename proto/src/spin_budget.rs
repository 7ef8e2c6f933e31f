//! Decides how long a waiting thread polls before it sleeps.
//!
//! Waking a sleeping core takes longer than most answers of a nearby peer, so a waiting thread may poll
//! first. Polling takes CPU time, which kernels on a CPU device need as well. So each place where threads
//! wait keeps an account. A poll that finds something earns the cost of a wake-up, and every poll pays
//! for the time it took. An empty account stops the polling. Waits without polling earn a little, more if
//! they were short. So a place where polling has become worthwhile resumes it.
//!
//! Invariants: all polls of a place together take no longer than they have earned, plus the opening
//! credit and the earnings of waits without polling. No poll takes longer than [`SpinBudget::LIMIT`]. On a
//! single core no thread polls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The polling policy of one place where threads wait, with its account.
#[derive(Debug)]
pub struct SpinBudget {
    // An `Account`. Two threads that settle at the same time may lose one settlement, which is harmless.
    account: AtomicU64,
    may_look: bool,
}

/// Result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    // Time from begin to end.
    waited: Duration,
    // Polling time within it. Zero when the first check succeeded, and when the thread did not poll.
    looked: Duration,
    // Whether polling ended the wait.
    found: bool,
}

impl SpinBudget {
    /// Longest polling time of one wait.
    pub const LIMIT: Duration = Duration::from_micros(100);

    /// If yielding the core takes this long, another thread needs the core.
    const CROWDED: Duration = Duration::from_micros(50);

    /// A policy with the opening credit.
    #[must_use]
    pub fn new() -> SpinBudget {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        SpinBudget::on(cores)
    }

    fn on(cores: usize) -> SpinBudget {
        SpinBudget {
            account: AtomicU64::new(Account::opened().to_bits()),
            may_look: cores > 1,
        }
    }

    /// Begins a wait. The caller has checked its condition once.
    #[must_use]
    pub fn begin(&self) -> Look<'_> {
        Look {
            spin_budget: self,
            begun: Instant::now(),
            budget: self.budget(),
            looked: Duration::ZERO,
        }
    }

    // How long a wait that begins now polls before it sleeps.
    fn budget(&self) -> Duration {
        if self.may_look {
            self.account().budget()
        } else {
            Duration::ZERO
        }
    }

    // Yields the core between two polls. Returns false when another thread has used it for long. Then the
    // caller sleeps, and so do the next waits, because the scheduler puts a thread that yields behind all
    // others.
    fn offer_core(&self) -> bool {
        let offered = Instant::now();
        std::thread::yield_now();
        let quiet = offered.elapsed() < SpinBudget::CROWDED;
        if !quiet {
            self.change(Account::pause);
        }
        quiet
    }

    fn settle(&self, wait: Wait) {
        self.change(|account| account.settle(wait));
    }

    fn account(&self) -> Account {
        Account::from_bits(self.account.load(Ordering::Relaxed))
    }

    fn change(&self, change: impl FnOnce(Account) -> Account) {
        let changed = change(self.account());
        self.account.store(changed.to_bits(), Ordering::Relaxed);
    }
}

impl Default for SpinBudget {
    fn default() -> SpinBudget {
        SpinBudget::new()
    }
}

/// A wait in progress. If it is dropped without [`Look::end`], it does not count.
#[derive(Debug)]
pub struct Look<'a> {
    spin_budget: &'a SpinBudget,
    begun: Instant,
    budget: Duration,
    looked: Duration,
}

impl Look<'_> {
    /// Whether the caller should poll once more. If not, it sleeps. Yields the core to other threads
    /// first.
    #[must_use]
    pub fn goes_on(&mut self) -> bool {
        let elapsed = self.begun.elapsed();
        if elapsed >= self.budget {
            self.looked = self.budget;
            return false;
        }
        // Not zero once a poll was made.
        self.looked = elapsed.max(Duration::from_nanos(1));
        self.spin_budget.offer_core()
    }

    /// Ends the wait. `found` means that polling found the result; otherwise the thread slept.
    pub fn end(self, found: bool) {
        let waited = self.begun.elapsed();
        let looked = if found && !self.looked.is_zero() {
            waited.min(self.budget)
        } else {
            self.looked
        };
        self.spin_budget.settle(Wait {
            waited,
            looked,
            found,
        });
    }
}

/// The account of one place. Pure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    // Credit in nanoseconds.
    credit: u32,
    // Number of further waits that sleep at once, whatever the credit is.
    pauses: u16,
    // Whether waits poll. True until the credit is used up.
    is_open: bool,
}

impl Account {
    /// Earnings of a successful poll in nanoseconds: waking a sleeping core takes 10 to 45 µs, and the
    /// wake-up also costs the waking thread time.
    const GAIN: u32 = 50_000;
    /// Maximum credit. A place where polling no longer pays off stops soon.
    const MOST: u32 = 20 * Account::GAIN;
    /// Credit at which polling resumes. It is enough for several polls, because often both ends have to
    /// poll before either finds something.
    const ENOUGH: u32 = 8 * Account::GAIN;
    /// Earnings of a wait that slept at once and was so short that polling could have succeeded.
    const SHORT: u32 = Account::GAIN / 8;
    /// Earnings of a longer wait that slept at once.
    const LONG: u32 = Account::GAIN / 64;
    /// Number of waits that sleep at once after another thread has used the yielded core.
    const PAUSES: u16 = 16;

    fn opened() -> Account {
        Account {
            credit: Account::MOST,
            pauses: 0,
            is_open: true,
        }
    }

    fn budget(self) -> Duration {
        if self.is_open && self.pauses == 0 {
            SpinBudget::LIMIT.min(Duration::from_nanos(self.credit.into()))
        } else {
            Duration::ZERO
        }
    }

    fn pause(self) -> Account {
        let pauses = Account::PAUSES;
        Account { pauses, ..self }
    }

    fn settle(self, wait: Wait) -> Account {
        if wait.found && wait.looked.is_zero() {
            // The first check after the wait began succeeded, so a sleep would have ended as soon.
            return self;
        }
        let slept_at_once = wait.looked.is_zero();
        let earned = match (wait.found, slept_at_once) {
            (true, _) => Account::GAIN,
            (false, false) => 0,
            (false, true) if wait.waited <= SpinBudget::LIMIT => Account::SHORT,
            (false, true) => Account::LONG,
        };
        let cost = u32::try_from(wait.looked.as_nanos()).unwrap_or(u32::MAX);
        let credit = self.credit.saturating_add(earned).saturating_sub(cost);
        let least = if self.is_open { 1 } else { Account::ENOUGH };
        Account {
            credit: credit.min(Account::MOST),
            pauses: self.pauses.saturating_sub(u16::from(slept_at_once)),
            is_open: credit >= least,
        }
    }

    fn to_bits(self) -> u64 {
        u64::from(self.credit) | u64::from(self.pauses) << 32 | u64::from(self.is_open) << 48
    }

    fn from_bits(bits: u64) -> Account {
        Account {
            credit: bits as u32,
            pauses: (bits >> 32) as u16,
            is_open: bits >> 48 != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MICRO: Duration = Duration::from_micros(1);

    // A wait for a result that comes `after` its begin. Waking up takes `wake` longer.
    fn wait(spin_budget: &SpinBudget, after: Duration, wake: Duration) -> Wait {
        let budget = spin_budget.budget();
        let found = after <= budget;
        let wait = Wait {
            waited: if found { after } else { after + wake },
            looked: after.min(budget),
            found,
        };
        spin_budget.settle(wait);
        wait
    }

    fn looks_of(spin_budget: &SpinBudget, after: Duration, waits: u32) -> (Duration, u32) {
        (0..waits).fold((Duration::ZERO, 0), |(looked, found), _| {
            let wait = wait(spin_budget, after, 30 * MICRO);
            (looked + wait.looked, found + u32::from(wait.found))
        })
    }

    #[test]
    fn answers_that_come_quickly_are_looked_for_always() {
        let spin_budget = SpinBudget::on(2);
        let (_, found) = looks_of(&spin_budget, 30 * MICRO, 1000);
        assert_eq!(found, 1000);
    }

    #[test]
    fn answers_that_come_late_cost_next_to_nothing() {
        let spin_budget = SpinBudget::on(2);
        looks_of(&spin_budget, 150 * MICRO, 100);
        let (looked, _) = looks_of(&spin_budget, 150 * MICRO, 10_000);
        assert!(looked < 10_000 * MICRO, "{looked:?} in 10,000 waits");
    }

    #[test]
    fn looking_begins_again_when_answers_come_quickly_again() {
        let spin_budget = SpinBudget::on(2);
        looks_of(&spin_budget, 3000 * MICRO, 1000);
        looks_of(&spin_budget, 30 * MICRO, 200);
        let (_, found) = looks_of(&spin_budget, 30 * MICRO, 100);
        assert_eq!(found, 100);
    }

    #[test]
    fn a_crowded_core_is_left_alone_for_a_while() {
        let spin_budget = SpinBudget::on(2);
        spin_budget.change(Account::pause);
        let (looked, _) = looks_of(&spin_budget, 30 * MICRO, Account::PAUSES.into());
        assert_eq!(looked, Duration::ZERO);
        let (_, found) = looks_of(&spin_budget, 30 * MICRO, 10);
        assert_eq!(found, 10);
    }

    #[test]
    fn one_core_is_left_to_the_thread_that_is_waited_for() {
        assert_eq!(SpinBudget::on(1).budget(), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn looking_costs_no_more_than_it_gains(
            after in proptest::collection::vec(1u64..400_000, 1..3000),
            crowded in proptest::collection::vec(any::<bool>(), 1..50),
        ) {
            let spin_budget = SpinBudget::on(2);
            let (mut cost, mut income) = (0, u64::from(Account::MOST));
            for (number, after) in after.into_iter().enumerate() {
                let wait = wait(&spin_budget, Duration::from_nanos(after), 30 * MICRO);
                prop_assert!(wait.looked <= SpinBudget::LIMIT);
                cost += wait.looked.as_nanos() as u64;
                income += u64::from(match wait {
                    Wait { found: true, .. } => Account::GAIN,
                    Wait { looked: Duration::ZERO, .. } => Account::SHORT,
                    _ => 0,
                });
                prop_assert!(cost <= income, "{cost} against {income}");
                if crowded.get(number / 64) == Some(&true) && number % 64 == 0 {
                    spin_budget.change(Account::pause);
                }
            }
        }

        #[test]
        fn an_account_survives_its_bits(credit: u32, pauses: u16, is_open: bool) {
            let account = Account { credit, pauses, is_open };
            prop_assert_eq!(Account::from_bits(account.to_bits()), account);
        }
    }
}
