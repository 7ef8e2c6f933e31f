//! A site: one native context, on one session.
//!
//! A native context cannot span platforms, so a site is a pair (node, native platform); what an
//! application's context spans is the business of [`Context`](super::Context). Invariant: the
//! site's native context is told to the worker before anything that belongs to it.

use std::sync::Arc;

use causeway_proto::command::{self, ObjectKind, command::Kind};
use causeway_proto::id::{ContextId, PlatformIndex};

use super::{Device, SessionLink};
use crate::error::ClResult;
use crate::transport::Session;

/// See the module.
#[derive(Debug)]
pub struct Site {
    context: ContextId,
    link: Arc<SessionLink>,
}

impl Site {
    /// Opens the session, if the node has none yet, and makes the native context for `devices`,
    /// all of one native platform of one node.
    ///
    /// # Errors
    /// What the wire says when no session can be had.
    pub fn open(
        context: ContextId,
        platform: PlatformIndex,
        devices: &[Arc<Device>],
    ) -> ClResult<Arc<Site>> {
        let link = SessionLink::open(devices[0].node())?;
        let site = Arc::new(Site { context, link });
        site.send(Kind::CreateContext(command::CreateContext {
            context: context.0,
            platform: platform.0,
            devices: devices.iter().map(|device| device.index().0).collect(),
        }))?;
        Ok(site)
    }

    /// The context's id.
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
