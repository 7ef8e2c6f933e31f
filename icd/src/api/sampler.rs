//! Samplers: without images none can be made (`CL_INVALID_OPERATION`), so no handle is one.

use cl_headers::types::*;

use super::entry::entry_points;
use super::handle;
use crate::error::fail;
use crate::stub::{Context, Sampler};

entry_points! {
    fn clCreateSampler(context: cl_context, _normalized_coords: cl_bool, _addressing_mode: cl_addressing_mode, _filter_mode: cl_filter_mode; errcode_ret) -> cl_sampler {
        handle::resolve::<Context>(context)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clCreateSamplerWithProperties(context: cl_context, _sampler_properties: *const cl_sampler_properties; errcode_ret) -> cl_sampler {
        handle::resolve::<Context>(context)?;
        fail(CL_INVALID_OPERATION)
    }

    fn clRetainSampler(sampler: cl_sampler) {
        handle::retain::<Sampler>(sampler)
    }

    fn clReleaseSampler(sampler: cl_sampler) {
        handle::release::<Sampler>(sampler)
    }

    fn clGetSamplerInfo(sampler: cl_sampler, _param_name: cl_sampler_info, _param_value_size: size_t, _param_value: *mut c_void, _param_value_size_ret: *mut size_t) {
        handle::resolve::<Sampler>(sampler)?;
        fail(CL_INVALID_OPERATION)
    }
}
