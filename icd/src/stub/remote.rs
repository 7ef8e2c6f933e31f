//! What a compound stub is called on each site of its context.
//!
//! An object comes to be on a site when that site first needs it, under an id of its own there: two sites
//! may be of one worker. Invariant: nobody is given an id before the command that makes the object has
//! been appended to the site's session, so whatever names it comes later on the wire.

use std::sync::OnceLock;

use causeway_proto::command::ObjectKind;
use parking_lot::Mutex;

use super::{Context, Site, next_id};

/// See the module. Part of every compound stub.
#[derive(Debug)]
pub(super) struct Remotes {
    // By the site's index.
    ids: Box<[OnceLock<u64>]>,
    // Held while the object is being made somewhere.
    making: Mutex<()>,
}

impl Remotes {
    /// An object of `context` that is nowhere yet.
    pub(super) fn new(context: &Context) -> Remotes {
        Remotes {
            ids: context.sites().iter().map(|_| OnceLock::new()).collect(),
            making: Mutex::new(()),
        }
    }

    /// Its id on the site, where `create` makes it under a new id if it is not there yet.
    ///
    /// # Errors
    /// What `create` says; the object is then not there.
    pub(super) fn on<E>(
        &self,
        site: &Site,
        create: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<u64, E> {
        let slot = &self.ids[site.index()];
        if let Some(id) = slot.get() {
            return Ok(*id);
        }
        let _making = self.making.lock();
        if let Some(id) = slot.get() {
            return Ok(*id);
        }
        let id = next_id();
        create(id)?;
        Ok(*slot.get_or_init(|| id))
    }

    /// It has been made on the site under this id, before there was a stub.
    pub(super) fn adopt(&self, site: &Site, id: u64) {
        // Nobody else knows the object yet.
        let _ = self.ids[site.index()].set(id);
    }

    /// Its id on the site, if it is there.
    pub(super) fn known(&self, site: &Site) -> Option<u64> {
        self.ids[site.index()].get().copied()
    }

    /// Releases it wherever it is.
    pub(super) fn release(&self, context: &Context, object: ObjectKind) {
        for site in context.sites() {
            if let Some(id) = self.known(site) {
                site.release(object, id);
            }
        }
    }
}
