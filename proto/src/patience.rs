//! How long a thread looks for something before it sleeps until it comes.
//!
//! Waking a sleeping core costs more than most answers of a near peer take, so a waiting thread may look first. Looking
//! takes processor time, which kernels on a CPU device want as well. So each place where threads wait keeps an
//! account: a look that finds something earns what a wake would have cost, and every look pays the time that it took.
//! An empty account ends the looking. Waits without a look earn a little, more if they were short, so that a place where
//! looking has become worth it finds that out.
//!
//! Invariants: all looks of a place together take no longer than they have gained, the opening credit, and a small
//! share of the waits that slept at once; no look takes longer than [`Patience::LIMIT`]; on one core nobody looks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How the threads that wait at one place look, and what that has cost and gained.
#[derive(Debug)]
pub struct Patience {
    // An `Account`. Two threads that settle at once may lose one settlement, which does no harm.
    account: AtomicU64,
    may_look: bool,
}

/// How a wait went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    // From the begin to the end.
    waited: Duration,
    // How much of that the thread looked. Zero when the first look found something, and when there was none.
    looked: Duration,
    // Whether a look ended the wait.
    found: bool,
}

impl Patience {
    /// The longest look.
    pub const LIMIT: Duration = Duration::from_micros(100);

    /// A core that was on offer for so long is wanted by another thread.
    const CROWDED: Duration = Duration::from_micros(50);

    /// Without experience.
    #[must_use]
    pub fn new() -> Patience {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Patience::on(cores)
    }

    fn on(cores: usize) -> Patience {
        Patience {
            account: AtomicU64::new(Account::opened().to_bits()),
            may_look: cores > 1,
        }
    }

    /// A wait begins. The caller has looked once.
    #[must_use]
    pub fn begin(&self) -> Look<'_> {
        Look {
            patience: self,
            begun: Instant::now(),
            budget: self.budget(),
            looked: Duration::ZERO,
        }
    }

    // How long a wait that begins now looks before it sleeps.
    fn budget(&self) -> Duration {
        if self.may_look {
            self.account().budget()
        } else {
            Duration::ZERO
        }
    }

    // Offers the core between two looks. False when another thread has used it for long: then the caller sleeps, and
    // so do the next waits, because the system puts a thread that offers its core behind all others.
    fn offer_core(&self) -> bool {
        let offered = Instant::now();
        std::thread::yield_now();
        let quiet = offered.elapsed() < Patience::CROWDED;
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

impl Default for Patience {
    fn default() -> Patience {
        Patience::new()
    }
}

/// A wait under way. One that is dropped counts for nothing.
#[derive(Debug)]
pub struct Look<'a> {
    patience: &'a Patience,
    begun: Instant,
    budget: Duration,
    looked: Duration,
}

impl Look<'_> {
    /// Whether the caller looks once more; if not, it sleeps. Offers the core to other threads before.
    #[must_use]
    pub fn goes_on(&mut self) -> bool {
        let elapsed = self.begun.elapsed();
        if elapsed >= self.budget {
            self.looked = self.budget;
            return false;
        }
        // Never zero once a look was made.
        self.looked = elapsed.max(Duration::from_nanos(1));
        self.patience.offer_core()
    }

    /// The wait is over: a look has `found` what it was for, or the thread slept.
    pub fn end(self, found: bool) {
        let waited = self.begun.elapsed();
        let looked = if found && !self.looked.is_zero() {
            waited.min(self.budget)
        } else {
            self.looked
        };
        self.patience.settle(Wait {
            waited,
            looked,
            found,
        });
    }
}

/// What looking at one place may still cost: pure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    // Nanoseconds.
    credit: u32,
    // So many waits sleep at once, whatever the credit is.
    pauses: u16,
    // Waits look, until the credit is used up.
    is_open: bool,
}

impl Account {
    /// What a look gains that finds something: the wake of a sleeping core, which takes 10 to 45 µs, and what a wake
    /// costs the thread that makes it.
    const GAIN: u32 = 50_000;
    /// The most that is kept, so that a place where looking no longer gains anything finds that out soon.
    const MOST: u32 = 20 * Account::GAIN;
    /// Looking begins again with so much, which is enough for several looks: often both ends have to look before
    /// either finds something.
    const ENOUGH: u32 = 8 * Account::GAIN;
    /// What a wait earns that slept at once and was so short that a look could have found something.
    const SHORT: u32 = Account::GAIN / 8;
    /// The same of a longer one.
    const LONG: u32 = Account::GAIN / 64;
    /// Waits that sleep at once after another thread has used the core on offer.
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
            Patience::LIMIT.min(Duration::from_nanos(self.credit.into()))
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
            // A sleep would have ended as soon.
            return self;
        }
        let slept_at_once = wait.looked.is_zero();
        let earned = match (wait.found, slept_at_once) {
            (true, _) => Account::GAIN,
            (false, false) => 0,
            (false, true) if wait.waited <= Patience::LIMIT => Account::SHORT,
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

    // A wait for what comes `after` its begin; a wake takes `wake` longer.
    fn wait(patience: &Patience, after: Duration, wake: Duration) -> Wait {
        let budget = patience.budget();
        let found = after <= budget;
        let wait = Wait {
            waited: if found { after } else { after + wake },
            looked: after.min(budget),
            found,
        };
        patience.settle(wait);
        wait
    }

    fn looks_of(patience: &Patience, after: Duration, waits: u32) -> (Duration, u32) {
        (0..waits).fold((Duration::ZERO, 0), |(looked, found), _| {
            let wait = wait(patience, after, 30 * MICRO);
            (looked + wait.looked, found + u32::from(wait.found))
        })
    }

    #[test]
    fn answers_that_come_quickly_are_looked_for_always() {
        let patience = Patience::on(2);
        let (_, found) = looks_of(&patience, 30 * MICRO, 1000);
        assert_eq!(found, 1000);
    }

    #[test]
    fn answers_that_come_late_cost_next_to_nothing() {
        let patience = Patience::on(2);
        looks_of(&patience, 150 * MICRO, 100);
        let (looked, _) = looks_of(&patience, 150 * MICRO, 10_000);
        assert!(looked < 10_000 * MICRO, "{looked:?} in 10,000 waits");
    }

    #[test]
    fn looking_begins_again_when_answers_come_quickly_again() {
        let patience = Patience::on(2);
        looks_of(&patience, 3000 * MICRO, 1000);
        looks_of(&patience, 30 * MICRO, 200);
        let (_, found) = looks_of(&patience, 30 * MICRO, 100);
        assert_eq!(found, 100);
    }

    #[test]
    fn a_crowded_core_is_left_alone_for_a_while() {
        let patience = Patience::on(2);
        patience.change(Account::pause);
        let (looked, _) = looks_of(&patience, 30 * MICRO, Account::PAUSES.into());
        assert_eq!(looked, Duration::ZERO);
        let (_, found) = looks_of(&patience, 30 * MICRO, 10);
        assert_eq!(found, 10);
    }

    #[test]
    fn one_core_is_left_to_the_thread_that_is_waited_for() {
        assert_eq!(Patience::on(1).budget(), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn looking_costs_no_more_than_it_gains(
            after in proptest::collection::vec(1u64..400_000, 1..3000),
            crowded in proptest::collection::vec(any::<bool>(), 1..50),
        ) {
            let patience = Patience::on(2);
            let (mut cost, mut income) = (0, u64::from(Account::MOST));
            for (number, after) in after.into_iter().enumerate() {
                let wait = wait(&patience, Duration::from_nanos(after), 30 * MICRO);
                prop_assert!(wait.looked <= Patience::LIMIT);
                cost += wait.looked.as_nanos() as u64;
                income += u64::from(match wait {
                    Wait { found: true, .. } => Account::GAIN,
                    Wait { looked: Duration::ZERO, .. } => Account::SHORT,
                    _ => 0,
                });
                prop_assert!(cost <= income, "{cost} against {income}");
                if crowded.get(number / 64) == Some(&true) && number % 64 == 0 {
                    patience.change(Account::pause);
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
