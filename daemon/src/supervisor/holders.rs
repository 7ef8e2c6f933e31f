//! Limits per address and per user: how many sessions they may have on the node at once, and how much
//! memory these may use.
//!
//! This module does not authenticate; its caller knows the user. Invariant: a session that was not opened,
//! or that has ended, counts for nothing.

use std::net::IpAddr;

use crate::config::HolderLimits;
use causeway_serving::admission::{CountedAmount, Full, Tally, household};

/// The party to which a session is charged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    /// Address from which the call came, if known.
    pub(super) address: Option<IpAddr>,
    /// The authenticated user, if the settings require authentication.
    pub(super) user: Option<String>,
}

/// The current usage of all addresses and users.
pub(super) struct Holdings {
    settings: HolderLimits,
    addresses: Tally<IpAddr>,
    users: Tally<String>,
    memory: Tally<Option<String>>,
    checkpoints: Tally<Option<String>>,
}

/// The share of one session in the usage; released when dropped.
#[derive(Default)]
pub(super) struct Holding {
    _address: Option<CountedAmount<IpAddr>>,
    _user: Option<CountedAmount<String>>,
    _memory: Option<CountedAmount<Option<String>>>,
}

/// A limit of the node, of an address or of a user is exhausted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum TooMuch {
    #[error(
        "your address has reached the node's limit of {0} sessions per address; close one of them"
    )]
    Address(u32),
    #[error("you have reached the node's limit of {0} sessions per user; close one of them")]
    User(u32),
    #[error("the node's memory for sessions is exhausted; try again later")]
    Memory,
    #[error("you have reached the node's memory limit per user; close a session")]
    UserMemory,
}

impl Holdings {
    pub(super) fn new(settings: HolderLimits) -> Holdings {
        let or_all = |limit: u64| if limit == 0 { u64::MAX } else { limit };
        Holdings {
            settings,
            addresses: Tally::new(u64::MAX, settings.per_address.into()),
            users: Tally::new(u64::MAX, settings.per_user.into()),
            memory: Tally::new(
                or_all(settings.host_memory_in_all),
                or_all(settings.host_memory_per_user),
            ),
            checkpoints: Tally::new(u64::MAX, or_all(settings.checkpoints_per_user)),
        }
    }

    /// Checks whether the holder's own limits leave room for one more session. Ignores memory that other
    /// holders' sessions use, because such sessions may end.
    ///
    /// # Errors
    /// [`TooMuch`] with the holder's limit.
    pub(super) fn may_take(&self, holder: &Holder, host_memory: u64) -> Result<(), TooMuch> {
        match self.take(holder, host_memory) {
            Ok(_) | Err(TooMuch::Memory) => Ok(()),
            Err(own) => Err(own),
        }
    }

    /// Charges a user for the checkpoints of one more session: the user of its lease, if it has one. All callers who are
    /// not authenticated count as one. Returns `None` if that is too much.
    pub(super) fn take_checkpoints(
        &self,
        user: Option<String>,
        bytes: u64,
    ) -> Option<CountedAmount<Option<String>>> {
        self.checkpoints.take(user, bytes).ok()
    }

    /// Charges one more session to the holder. Its process may use `host_memory` bytes; 0: no limit.
    ///
    /// # Errors
    /// [`TooMuch`]; nothing is charged then.
    pub(super) fn take(&self, holder: &Holder, host_memory: u64) -> Result<Holding, TooMuch> {
        // If a later limit refuses, the drop of `holding` releases the earlier charges.
        let mut holding = Holding::default();
        // Loopback has no limit: tunnels end on this machine, so all callers behind them share its address.
        if let Some(address) = holder.address.filter(|a| !a.to_canonical().is_loopback()) {
            let taken = self.addresses.take(household(address), 1);
            let limit = self.settings.per_address;
            holding._address = Some(taken.map_err(|_| TooMuch::Address(limit))?);
        }
        if let Some(user) = &holder.user {
            let taken = self.users.take(user.clone(), 1);
            let limit = self.settings.per_user;
            holding._user = Some(taken.map_err(|_| TooMuch::User(limit))?);
        }
        if self.settings.limits_memory() {
            let taken = self.memory.take(holder.user.clone(), host_memory);
            holding._memory = Some(taken.map_err(|full| match full {
                Full::InAll => TooMuch::Memory,
                Full::OfThisOne => TooMuch::UserMemory,
            })?);
        }
        Ok(holding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: HolderLimits = HolderLimits {
        per_address: 2,
        per_user: 1,
        host_memory_in_all: 0,
        host_memory_per_user: 0,
        checkpoints_per_user: 0,
    };

    fn from(address: &str) -> Holder {
        Holder {
            address: Some(address.parse().unwrap()),
            user: None,
        }
    }

    fn of(user: &str) -> Holder {
        Holder {
            address: None,
            user: Some(user.to_owned()),
        }
    }

    #[test]
    fn memory_that_others_have_may_become_free_and_ones_own_limits_count_now() {
        let holdings = Holdings::new(HolderLimits {
            host_memory_in_all: 10,
            ..SETTINGS
        });
        let _of_ann = holdings.take(&of("ann"), 10).unwrap();
        assert_eq!(holdings.may_take(&of("bob"), 10), Ok(()));
        assert_eq!(holdings.take(&of("bob"), 10).err(), Some(TooMuch::Memory));
        let refused = holdings.may_take(&of("ann"), 10);
        assert_eq!(refused, Err(TooMuch::User(1)));
    }

    #[test]
    fn an_address_has_so_many_and_this_machine_all() {
        let holdings = Holdings::new(SETTINGS);
        let first = holdings.take(&from("10.0.0.1"), 0).unwrap();
        let _second = holdings.take(&from("::ffff:10.0.0.1"), 0).unwrap();
        let refused = holdings.take(&from("10.0.0.1"), 0);
        assert_eq!(refused.err(), Some(TooMuch::Address(2)));
        let _other = holdings.take(&from("10.0.0.2"), 0).unwrap();
        drop(first);
        let _again = holdings.take(&from("10.0.0.1"), 0).unwrap();
        let local: Vec<_> = (0..9)
            .map(|_| holdings.take(&from("127.0.0.1"), 0))
            .collect();
        assert!(local.iter().all(Result::is_ok));
    }

    #[test]
    fn a_user_has_so_many_wherever_he_comes_from() {
        let holdings = Holdings::new(SETTINGS);
        let _one = holdings.take(&of("a"), 0).unwrap();
        let both = Holder {
            user: Some("a".to_owned()),
            ..from("10.0.0.1")
        };
        for _ in 0..3 {
            assert_eq!(holdings.take(&both, 0).err(), Some(TooMuch::User(1)));
        }
        // A refused session is not charged to the address either.
        let _two = [(), ()].map(|()| holdings.take(&from("10.0.0.1"), 0).unwrap());
        assert!(holdings.take(&of("b"), 0).is_ok());
    }

    #[test]
    fn memory_is_what_sessions_may_take() {
        let holdings = Holdings::new(HolderLimits {
            per_user: 9,
            host_memory_in_all: 100,
            host_memory_per_user: 60,
            ..SETTINGS
        });
        let first = holdings.take(&of("a"), 40).unwrap();
        let refused = holdings.take(&of("a"), 40).err();
        assert_eq!(refused, Some(TooMuch::UserMemory));
        let _second = holdings.take(&of("b"), 40).unwrap();
        assert_eq!(holdings.take(&of("c"), 40).err(), Some(TooMuch::Memory));
        drop(first);
        assert!(holdings.take(&of("c"), 40).is_ok());
    }

    #[test]
    fn checkpoints_are_what_sessions_may_take() {
        let holdings = Holdings::new(HolderLimits {
            checkpoints_per_user: 20,
            ..SETTINGS
        });
        let first = holdings.take_checkpoints(of("a").user, 15).unwrap();
        assert!(holdings.take_checkpoints(of("a").user, 15).is_none());
        assert!(holdings.take_checkpoints(of("b").user, 15).is_some());
        drop(first);
        assert!(holdings.take_checkpoints(of("a").user, 20).is_some());
    }
}
