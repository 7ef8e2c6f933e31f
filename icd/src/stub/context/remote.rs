//! The ids of a compound stub on the sites of its context.
//!
//! An object is created on a site when the site first needs it. Each site has its own id for it, because
//! two sites may be in the same worker. Invariant: an id is returned only after the command that creates
//! the object was appended to the site's session. So any command that names the object comes later.

use std::sync::OnceLock;

use causeway_proto::command::ObjectKind;
use parking_lot::Mutex;

use crate::stub::{Context, Site, next_id};

/// Part of every compound stub; see the module.
#[derive(Debug)]
pub(in crate::stub) struct Remotes {
    // By the site's index.
    ids: Box<[OnceLock<u64>]>,
    // Locked while the object is being created on a site.
    making: Mutex<()>,
}

impl Remotes {
    /// Makes the ids of an object of `context` that exists on no site yet.
    pub(in crate::stub) fn new(context: &Context) -> Remotes {
        Remotes {
            ids: context.sites().iter().map(|_| OnceLock::new()).collect(),
            making: Mutex::new(()),
        }
    }

    /// Returns the object's id on the site. If the object does not exist there, calls `create` with a new
    /// id.
    ///
    /// # Errors
    /// Those of `create`; the object does not exist there then.
    pub(in crate::stub) fn on<E>(
        &self,
        site: &Site,
        create: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<u64, E> {
        let slot = &self.ids[site.index()];
        if let Some(id) = slot.get() {
            return Ok(*id);
        }
        let _making = self.making.lock();
        // Another thread may have created the object while this one waited for the lock.
        if let Some(id) = slot.get() {
            return Ok(*id);
        }
        let id = next_id();
        create(id)?;
        Ok(*slot.get_or_init(|| id))
    }

    /// Records an object that was created on the site under this id before it had a stub.
    pub(in crate::stub) fn adopt(&self, site: &Site, id: u64) {
        // No other thread knows the object yet, so the id cannot be set already.
        let _ = self.ids[site.index()].set(id);
    }

    /// Returns the object's id on the site, if it exists there.
    pub(in crate::stub) fn known(&self, site: &Site) -> Option<u64> {
        self.ids[site.index()].get().copied()
    }

    /// Releases the object on all sites where it exists.
    pub(in crate::stub) fn release(&self, context: &Context, object: ObjectKind) {
        for site in context.sites() {
            if let Some(id) = self.known(site) {
                site.release(object, id);
            }
        }
    }
}
