//! When who is who has changed: what runs of those who may not any more ends.
//!
//! It comes with the next turn of the owner after the change is durable, not among the works of that transaction,
//! which keep their order. Invariant: what was begun by somebody who was let in before the change is seen by it, or is
//! refused when it comes.

use std::mem::take;

use super::super::gate::wall_now;
use super::super::input::{News, Watcher, WatcherId};
use super::Owner;
use crate::identity::{Caller, Directory, IdentityChange, NotKnown};
use crate::lease::{Event, LeaseId, LeaseState};
use crate::policy::UserName;

/// What has changed since it was looked at.
#[derive(Default)]
pub(super) struct Judging {
    /// Somebody may do less than before.
    is_due: bool,
    /// Users who are no more.
    deleted: Vec<UserName>,
    /// Who has hung up before he was listened for.
    gone: Vec<(LeaseId, WatcherId)>,
}

impl Judging {
    /// A manager that has ended between a change and what it leads to looks at it when it is started again.
    pub(super) fn at_start(directory: &Directory) -> Judging {
        Judging {
            is_due: true,
            deleted: directory.removed().cloned().collect(),
            gone: Vec::new(),
        }
    }

    /// Whether there is something to look at.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// A change counts.
    pub(super) fn note(&mut self, change: &IdentityChange) {
        match change {
            IdentityChange::PutToken(_) | IdentityChange::DeleteRemoved(_) => return,
            IdentityChange::DeleteUser(name) => self.deleted.push(name.clone()),
            IdentityChange::PutUser(_)
            | IdentityChange::DeleteToken(_)
            | IdentityChange::PutRemoved(_) => {}
        }
        self.is_due = true;
    }
}

impl Owner {
    /// Who somebody is by now who was let in.
    pub(super) fn again(&self, caller: &Caller) -> Result<Caller, NotKnown> {
        self.shared_directory.read().again(caller, wall_now())
    }

    pub(super) fn may(&self, caller: &Caller, what: impl Fn(&Caller) -> bool) -> bool {
        self.again(caller).is_ok_and(|caller| what(&caller))
    }

    /// Ends connections of nodes, streams and leases of those who may not have them any more, if somebody may less.
    pub(super) fn judge_again(&mut self) {
        for (lease, id) in take(&mut self.judging.gone) {
            self.request_lost(lease, id);
        }
        if !take(&mut self.judging.is_due) {
            return;
        }
        for user in take(&mut self.judging.deleted) {
            // Their streams are told so.
            for lease in self.of_user(&user) {
                self.handle(Event::Revoke { lease });
            }
        }
        let links = self.links.iter();
        let over = links.filter(|(_, link)| !self.may(&link.caller, Caller::may_join));
        let over: Vec<_> = over.map(|(node, link)| (link.connection, *node)).collect();
        for (connection, node) in over {
            tracing::warn!(?node, "a node may join no more, and is cut off");
            self.left(connection, node);
        }
        let unheard = self.watchers.iter().filter_map(|(lease, watcher)| {
            let not = self.again(&watcher.caller).err()?;
            (self.directory.user(&watcher.caller.user).is_some()).then_some((*lease, not))
        });
        for (lease, not) in unheard.collect::<Vec<_>>() {
            if let Some(watcher) = self.watchers.remove(&lease) {
                watcher.tell(News::NotKnown(not));
                self.handle(Event::RequestLost { lease });
            }
        }
    }

    /// A stream that begins now, and was on its way while who is who has changed, is looked at again; so is one
    /// that has ended meanwhile, of which nothing more will come.
    pub(super) fn expect(&mut self, lease: LeaseId, watcher: &Watcher) {
        if watcher.is_gone() {
            self.judging.gone.push((lease, watcher.id));
        }
        self.judging.is_due |= self.again(&watcher.caller).is_err();
    }

    /// All that a user has or waits for, offers that nobody was told of yet included.
    fn of_user(&self, user: &UserName) -> Vec<LeaseId> {
        let is_over = |state| matches!(state, LeaseState::Ending(_));
        let leases = self.manager.leases();
        let leases = leases.filter(|of| of.user == user && !is_over(of.state));
        let waiting = self.manager.waiting().filter(|of| of.user == user);
        let waiting = waiting.map(|of| of.lease);
        leases.map(|of| of.lease).chain(waiting).collect()
    }
}
