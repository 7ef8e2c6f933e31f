//! Re-checks permissions after users or tokens change, and ends the requests, streams and leases of
//! callers who are no longer allowed.
//!
//! The check is part of the owner's next turn after the change is durable. It is not one of that
//! transaction's works, which keep their order. Invariant: whatever a caller began before the change is
//! covered by the check, or is refused when it arrives.

use std::mem::take;

use super::super::authentication::wall_now;
use super::super::input::{News, Watcher, WatcherId};
use super::Owner;
use crate::identity::{Caller, Directory, IdentityChange, NotKnown};
use crate::lease::{Event, LeaseId, LeaseState};
use crate::policy::UserName;

/// Changes that are not checked yet.
#[derive(Default)]
pub(super) struct Revalidation {
    /// Whether some caller may do less than before.
    is_due: bool,
    /// Users who were deleted.
    deleted: Vec<UserName>,
    /// Requests whose stream closed before it was registered.
    gone: Vec<(LeaseId, WatcherId)>,
}

impl Revalidation {
    /// Checks everything at the start, because the last process may have ended between a change and its
    /// consequences.
    pub(super) fn at_start(directory: &Directory) -> Revalidation {
        Revalidation {
            is_due: true,
            deleted: directory.removed().cloned().collect(),
            gone: Vec::new(),
        }
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Records a change that is now in effect.
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
    /// Looks up an authenticated caller again and returns their current identity.
    pub(super) fn again(&self, caller: &Caller) -> Result<Caller, NotKnown> {
        self.shared_directory.read().again(caller, wall_now())
    }

    pub(super) fn may(&self, caller: &Caller, what: impl Fn(&Caller) -> bool) -> bool {
        self.again(caller).is_ok_and(|caller| what(&caller))
    }

    /// Ends node connections, streams and leases of callers who are no longer allowed, if some caller may
    /// do less.
    pub(super) fn revalidate(&mut self) {
        for (lease, id) in take(&mut self.revalidation.gone) {
            self.request_lost(lease, id);
        }
        if !take(&mut self.revalidation.is_due) {
            return;
        }
        // Leases first, so that their ends are reported before the streams are closed.
        for user in take(&mut self.revalidation.deleted) {
            // The revocation is reported to the user's streams as well.
            for lease in self.of_user(&user) {
                self.handle(Event::Revoke { lease });
            }
        }
        let links = self.links.iter();
        let over = links.filter(|(_, link)| !self.may(&link.caller, Caller::may_join));
        let over: Vec<_> = over.map(|(node, link)| (link.connection, *node)).collect();
        for (connection, node) in over {
            tracing::warn!(?node, "a node is no longer allowed; disconnecting it");
            self.left(connection, node);
        }
        let unheard = self.watchers.iter().filter_map(|(lease, watcher)| {
            let not = self.again(&watcher.caller).err()?;
            // Streams of deleted users are told by the revocations above.
            (self.directory.user(&watcher.caller.user).is_some()).then_some((*lease, not))
        });
        for (lease, not) in unheard.collect::<Vec<_>>() {
            if let Some(watcher) = self.watchers.remove(&lease) {
                watcher.tell(News::NotKnown(not));
                self.handle(Event::RequestLost { lease });
            }
        }
    }

    /// Schedules a check for a stream that is registered now, in two cases. Its caller's permissions have
    /// changed meanwhile, or the stream has closed and will not report that again.
    pub(super) fn expect(&mut self, lease: LeaseId, watcher: &Watcher) {
        if watcher.is_gone() {
            self.revalidation.gone.push((lease, watcher.id));
        }
        self.revalidation.is_due |= self.again(&watcher.caller).is_err();
    }

    /// All leases and requests of a user, including offers that no client knows of yet.
    fn of_user(&self, user: &UserName) -> Vec<LeaseId> {
        let is_over = |state| matches!(state, LeaseState::Ending(_));
        let leases = self.manager.leases();
        let leases = leases.filter(|of| of.user == user && !is_over(of.state));
        let waiting = self.manager.waiting().filter(|(_, of)| *of == user);
        let waiting = waiting.map(|(lease, _)| lease);
        leases.map(|of| of.lease).chain(waiting).collect()
    }
}
