//! A site: one native context, on one session.
//!
//! A native context cannot span platforms, so a site is a pair (node, native platform); what an
//! application's context spans is the business of [`Context`](super::Context). Invariant: the
//! site's native context is told to the worker before anything that belongs to it.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{self, ObjectKind, command::Kind};
use causeway_proto::id::ContextId;

use super::{Device, SessionLink, next_id, undefined};
use crate::error::ClResult;
use crate::transport::Session;

/// See the module.
#[derive(Debug)]
pub struct Site {
    index: usize,
    context: ContextId,
    devices: Vec<Arc<Device>>,
    link: Arc<SessionLink>,
    // What sources begin with here.
    undefined: String,
}

impl Site {
    /// Makes the native context for `devices`, all of one native platform of the link's node; `index`:
    /// its place in the application's context.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn open(
        index: usize,
        link: Arc<SessionLink>,
        devices: Vec<Arc<Device>>,
    ) -> ClResult<Arc<Site>> {
        for device in &devices {
            device.ensure_on(&link)?;
        }
        let site = Arc::new(Site {
            index,
            context: ContextId(next_id()),
            undefined: undefined::prefix(&devices),
            devices,
            link,
        });
        site.send(Kind::CreateContext(command::CreateContext {
            context: site.context.0,
            platform: site.devices[0].platform().0,
            devices: site.devices.iter().map(|of| of.index().0).collect(),
        }))?;
        Ok(site)
    }

    /// Its place among the sites of the application's context.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Those of the application's context that are here, in its order.
    #[must_use]
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// A source as it is sent here: without the macros of what its devices are not shown to have. One without text
    /// stands for another, and stays.
    #[must_use]
    pub(super) fn source(&self, source: &Bytes) -> Bytes {
        undefined::without(&self.undefined, source)
    }

    /// Whether the device is of this site.
    #[must_use]
    pub fn has(&self, device: &Device) -> bool {
        self.devices.iter().any(|own| std::ptr::eq(&**own, device))
    }

    /// The native context's id.
    #[must_use]
    pub fn context(&self) -> ContextId {
        self.context
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> &Arc<Session> {
        self.link.session()
    }

    /// Who keeps the session's running commands.
    #[must_use]
    pub fn link(&self) -> &Arc<SessionLink> {
        &self.link
    }

    /// Queues a command; waits for nothing.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn send(&self, kind: Kind) -> ClResult {
        Ok(self
            .session()
            .send(&command::Command { kind: Some(kind) })?)
    }

    /// Tells the worker that an object's id will not be named again. A lost session has forgotten it.
    pub fn release(&self, object: ObjectKind, id: u64) {
        let _ = self.send(Kind::Release(command::Release {
            object: object.into(),
            id,
        }));
    }
}
