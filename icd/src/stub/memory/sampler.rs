//! A sampler: a compound stub, whose values only the client needs for queries.
//!
//! A sampler is created on a site with the first launch there that uses it; in a context of one site at
//! once.

use std::sync::Arc;

use causeway_proto::command::{CreateSampler, ObjectKind, command::Kind};
use causeway_proto::id::SamplerId;

use crate::error::ClResult;
use crate::stub::context::remote::Remotes;
use crate::stub::{Binding, Context, Site};

/// A sampler object; see the module.
#[derive(Debug)]
pub struct Sampler {
    pub(crate) binding: Binding,
    remotes: Remotes,
    context: Arc<Context>,
    spec: SamplerSpec,
}

/// The parameters that a sampler is made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplerSpec {
    /// `CL_SAMPLER_NORMALIZED_COORDS`.
    pub normalized_coords: bool,
    /// `CL_SAMPLER_ADDRESSING_MODE`.
    pub addressing_mode: u32,
    /// `CL_SAMPLER_FILTER_MODE`.
    pub filter_mode: u32,
    /// The list that `CL_SAMPLER_PROPERTIES` returns: with the terminating 0, or empty for none.
    pub properties: Vec<u64>,
}

impl Sampler {
    /// Makes a sampler, without waiting.
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

    /// Returns the sampler's id on the site, and creates the sampler there if necessary. Does not wait.
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

    /// Returns the sampler's context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns the parameters that the sampler was made with.
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
