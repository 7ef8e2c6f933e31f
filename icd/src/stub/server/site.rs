//! A site: one native context in one session.
//!
//! A native context cannot span platforms, so a site is a pair (node, native platform).
//! [`Context`](crate::stub::Context) combines the sites of an application's context. Invariant: the command that
//! creates the native context is sent before any command that uses it.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{self, ObjectKind, command::Kind};
use causeway_proto::id::ContextId;

use crate::error::ClResult;
use crate::stub::device::info::hidden_macros;
use crate::stub::{Device, SessionLink, next_id};
use crate::transport::Session;

/// One native context in one session; see the module.
#[derive(Debug)]
pub struct Site {
    index: usize,
    context: ContextId,
    devices: Vec<Arc<Device>>,
    link: Arc<SessionLink>,
    // Preprocessor text that is put before every source sent to this site.
    hidden_macros: String,
}

impl Site {
    /// Creates the native context for `devices`, which must all belong to one native platform of the link's
    /// node. `index` is the site's position in the application's context.
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
            hidden_macros: hidden_macros::prefix(&devices),
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

    /// Returns the site's position among the sites of the application's context.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the devices of the application's context that belong to this site, in the application's
    /// order.
    #[must_use]
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// Returns `source` as it is sent to this site: with a prefix that undefines the macros of features
    /// that the devices do not report. An empty source stays empty, because it stands for a source sent
    /// earlier.
    #[must_use]
    pub(in crate::stub) fn source(&self, source: &Bytes) -> Bytes {
        hidden_macros::without(&self.hidden_macros, source)
    }

    /// Whether `device` belongs to this site.
    #[must_use]
    pub fn has(&self, device: &Device) -> bool {
        self.devices.iter().any(|own| std::ptr::eq(&**own, device))
    }

    /// Returns the id of the native context.
    #[must_use]
    pub fn context(&self) -> ContextId {
        self.context
    }

    /// Returns the session that the site's commands are sent in.
    #[must_use]
    pub fn session(&self) -> &Arc<Session> {
        self.link.session()
    }

    /// Returns the link, which keeps the session's incomplete commands.
    #[must_use]
    pub fn link(&self) -> &Arc<SessionLink> {
        &self.link
    }

    /// Appends a command to the session's outbox, without waiting.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn send(&self, kind: Kind) -> ClResult {
        Ok(self
            .session()
            .send(&command::Command { kind: Some(kind) })?)
    }

    /// Tells the worker that the client will not name an object's id again. Errors are ignored, because a
    /// lost session has no objects to release.
    pub fn release(&self, object: ObjectKind, id: u64) {
        let _ = self.send(Kind::Release(command::Release {
            object: object.into(),
            id,
        }));
    }
}
