//! A sampler: a compound stub, whose values are the client's alone to tell.
//!
//! It comes to be on a site with the first launch there that it is an argument of; in a context of one site at once.

use std::sync::Arc;

use causeway_proto::command::{CreateSampler, ObjectKind, command::Kind};
use causeway_proto::id::SamplerId;

use super::remote::Remotes;
use super::{Binding, Context, Site};
use crate::error::ClResult;

/// See the module.
#[derive(Debug)]
pub struct Sampler {
    pub(crate) binding: Binding,
    remotes: Remotes,
    context: Arc<Context>,
    spec: SamplerSpec,
}

/// What a sampler is made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplerSpec {
    /// `CL_SAMPLER_NORMALIZED_COORDS`.
    pub normalized_coords: bool,
    /// `CL_SAMPLER_ADDRESSING_MODE`.
    pub addressing_mode: u32,
    /// `CL_SAMPLER_FILTER_MODE`.
    pub filter_mode: u32,
    /// What `CL_SAMPLER_PROPERTIES` echoes: with its 0, empty for none.
    pub properties: Vec<u64>,
}

impl Sampler {
    /// Makes one; waits for nothing.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session of the only site is lost.
    pub fn new(context: Arc<Context>, spec: SamplerSpec) -> ClResult<Arc<Sampler>> {
        let sampler = Arc::new(Sampler {
            binding: Binding::default(),
            remotes: Remotes::new(&context),
            context,
            spec,
        });
        if !sampler.context.is_distributed() {
            sampler.id_on(sampler.context.site())?;
        }
        Ok(sampler)
    }

    /// Its name on the site, where it is made if it is not there yet; waits for nothing.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site's session is lost.
    pub fn id_on(&self, site: &Site) -> ClResult<SamplerId> {
        let created = self.remotes.on(site, |id| {
            site.send(Kind::CreateSampler(CreateSampler {
                sampler: id,
                context: site.context().0,
                normalized_coords: self.spec.normalized_coords,
                addressing_mode: self.spec.addressing_mode,
                filter_mode: self.spec.filter_mode,
            }))
        });
        created.map(SamplerId)
    }

    /// Its context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What it was made with.
    #[must_use]
    pub fn spec(&self) -> &SamplerSpec {
        &self.spec
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.remotes.release(&self.context, ObjectKind::Sampler);
    }
}
