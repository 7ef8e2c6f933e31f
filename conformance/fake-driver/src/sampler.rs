//! Samplers. The driver keeps and reports them, but never uses them.
//!
//! Invariant: a context has no sampler unless one of its devices has images.

use std::ffi::c_void;

use cl_headers::types::*;

use crate::context::Context;
use crate::error::{ClResult, ensure, fail};
use crate::object::{Object, Ref, body};
use crate::{arg, tag};

/// The body of a sampler.
pub(crate) struct Sampler {
    pub(crate) context: Ref<Context>,
    normalized: cl_bool,
    addressing: cl_addressing_mode,
    filter: cl_filter_mode,
    properties: Vec<u64>,
}

body!(Sampler, tag::SAMPLER, CL_INVALID_SAMPLER);

fn create(
    context: &Object<Context>,
    normalized: cl_bool,
    addressing: cl_addressing_mode,
    filter: cl_filter_mode,
    properties: Vec<u64>,
) -> ClResult<cl_sampler> {
    let images = context.devices.iter().any(|device| device.settings.images);
    ensure(images, CL_INVALID_OPERATION)?;
    let known = (CL_ADDRESS_NONE..=CL_ADDRESS_MIRRORED_REPEAT).contains(&addressing)
        && [CL_FILTER_NEAREST, CL_FILTER_LINEAR].contains(&filter)
        && normalized <= CL_TRUE;
    ensure(known, CL_INVALID_VALUE)?;
    let sampler = Ref::new(Sampler {
        context: context.hold(),
        normalized,
        addressing,
        filter,
        properties,
    });
    Ok(sampler.publish())
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    use super::*;
    use crate::info::{Info, reply};

    pub(crate) unsafe fn clCreateSampler(
        context: cl_context,
        normalized: cl_bool,
        addressing: cl_addressing_mode,
        filter: cl_filter_mode,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_sampler> {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        create(context, normalized, addressing, filter, Vec::new())
    }

    pub(crate) unsafe fn clCreateSamplerWithProperties(
        context: cl_context,
        properties: *const cl_sampler_properties,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_sampler> {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        // SAFETY: the application passes a list as OpenCL requires.
        let list = unsafe { arg::properties(properties) };
        let (mut normalized, mut addressing, mut filter) =
            (CL_TRUE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST);
        let mut seen = Vec::new();
        for pair in list.chunks_exact(2) {
            ensure(!seen.contains(&pair[0]), CL_INVALID_VALUE)?;
            seen.push(pair[0]);
            match cl_uint::try_from(pair[0]) {
                Ok(CL_SAMPLER_NORMALIZED_COORDS) => normalized = pair[1] as cl_bool,
                Ok(CL_SAMPLER_ADDRESSING_MODE) => addressing = pair[1] as cl_addressing_mode,
                Ok(CL_SAMPLER_FILTER_MODE) => filter = pair[1] as cl_filter_mode,
                _ => return fail(CL_INVALID_VALUE),
            }
        }
        create(context, normalized, addressing, filter, list)
    }

    pub(crate) unsafe fn clRetainSampler(sampler: cl_sampler) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Sampler>::borrow(sampler) }?.retain();
        Ok(())
    }

    pub(crate) unsafe fn clReleaseSampler(sampler: cl_sampler) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Sampler>::borrow(sampler) }?.release()
    }

    pub(crate) unsafe fn clGetSamplerInfo(
        sampler: cl_sampler,
        name: cl_sampler_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let sampler = unsafe { Object::<Sampler>::borrow(sampler) }?;
        let answer = match name {
            CL_SAMPLER_REFERENCE_COUNT => Info::uint(sampler.references()),
            CL_SAMPLER_CONTEXT => Info::handle(sampler.context.handle()),
            CL_SAMPLER_NORMALIZED_COORDS => Info::uint(sampler.normalized),
            CL_SAMPLER_ADDRESSING_MODE => Info::uint(sampler.addressing),
            CL_SAMPLER_FILTER_MODE => Info::uint(sampler.filter),
            CL_SAMPLER_PROPERTIES => Info::ulongs(&sampler.properties),
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }
}
