//! Samplers.

use causeway_proto::status::Status;
use opencl_sys::cl_sampler;

use super::context::Context;
use super::library::{check, cl};

/// A native sampler; released when dropped.
#[derive(Debug)]
pub struct Sampler {
    pub(super) raw: cl_sampler,
}

// SAFETY: samplers may be used from any thread.
unsafe impl Send for Sampler {}
// SAFETY: as above.
unsafe impl Sync for Sampler {}

impl Sampler {
    /// `clCreateSampler`, which every version of OpenCL has.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(
        context: &Context,
        normalized_coords: bool,
        addressing_mode: u32,
        filter_mode: u32,
    ) -> Result<Sampler, Status> {
        let mut status = 0;
        // SAFETY: a live context; the values are the driver's to judge.
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

    fn release(&self) -> Result<(), Status> {
        // SAFETY: we own one reference and give it up here.
        check(unsafe { cl!(clReleaseSampler(self.raw)) })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        let _ = self.release();
    }
}
