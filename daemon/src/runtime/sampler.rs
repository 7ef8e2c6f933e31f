//! Samplers.

use causeway_proto::status::Status;
use opencl_sys::cl_sampler;

use super::context::Context;
use super::library::{check, cl, release_on_drop};

/// A native sampler; released when dropped.
#[derive(Debug)]
pub struct Sampler {
    pub(super) raw: cl_sampler,
}

// SAFETY: samplers may be used from any thread.
unsafe impl Send for Sampler {}
// SAFETY: as for `Send`.
unsafe impl Sync for Sampler {}

impl Sampler {
    /// `clCreateSampler`, which exists in every version of OpenCL.
    pub fn new(
        context: &Context,
        normalized_coords: bool,
        addressing_mode: u32,
        filter_mode: u32,
    ) -> Result<Sampler, Status> {
        let mut status = 0;
        // SAFETY: the context is live; the driver validates the values.
        let raw = unsafe {
            cl!(clCreateSampler(
                context.raw,
                u32::from(normalized_coords),
                addressing_mode,
                filter_mode,
                &raw mut status
            ))
        };
        check(status)?;
        Ok(Sampler { raw })
    }
}

release_on_drop!(Sampler, clReleaseSampler);
