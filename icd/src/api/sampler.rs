//! Samplers: creation, reference counts and info.

use std::sync::Arc;

use cl_headers::types::*;

use super::entry::entry_point;
use super::handle;
use super::info::{Answered, Info};
use super::properties::PropertyList;
use crate::error::{ClResult, fail, require};
use crate::stub::memory::image::has_images;
use crate::stub::{Context, Sampler, SamplerSpec};

/// Checks the three properties of a sampler.
fn check(spec: &SamplerSpec) -> ClResult {
    let modes = CL_ADDRESS_NONE..=CL_ADDRESS_MIRRORED_REPEAT;
    let filters = CL_FILTER_NEAREST..=CL_FILTER_LINEAR;
    let known = modes.contains(&spec.addressing_mode) && filters.contains(&spec.filter_mode);
    // Both repeat modes need normalised coordinates.
    let repeats = matches!(
        spec.addressing_mode,
        CL_ADDRESS_REPEAT | CL_ADDRESS_MIRRORED_REPEAT
    );
    // clCreateSampler: CL_INVALID_VALUE when a mode or filter is unknown, or the combination is not valid.
    require(
        known && (spec.normalized_coords || !repeats),
        CL_INVALID_VALUE,
    )
}

fn create(context: cl_context, spec: SamplerSpec) -> ClResult<cl_sampler> {
    let context = handle::resolve::<Context>(context)?;
    // clCreateSampler: CL_INVALID_OPERATION when no device of the context supports images.
    let images = context.devices().iter().any(|device| has_images(device));
    require(images, CL_INVALID_OPERATION)?;
    check(&spec)?;
    Ok(handle::publish(Sampler::new(context, spec)?))
}

/// Reads a property list. Properties that it does not name have the specification's defaults.
///
/// # Safety
/// `properties` is NULL or points to pairs that a name of 0 ends.
unsafe fn read_properties(properties: *const cl_sampler_properties) -> ClResult<SamplerSpec> {
    let mut spec = SamplerSpec {
        normalized_coords: true,
        addressing_mode: CL_ADDRESS_CLAMP,
        filter_mode: CL_FILTER_NEAREST,
        properties: Vec::new(),
    };
    // SAFETY: by the caller's promise there are pairs before the 0 that ends the list.
    let mut list = unsafe { PropertyList::new(properties) };
    while let Some(name) = list.name() {
        let value = list.value();
        // clCreateSamplerWithProperties: CL_INVALID_VALUE when a name appears twice.
        require(!list.is_repeated(), CL_INVALID_VALUE)?;
        // clCreateSamplerWithProperties: CL_INVALID_VALUE when the value of a property is not valid.
        let number = u32::try_from(value).or(fail(CL_INVALID_VALUE))?;
        match u32::try_from(name) {
            Ok(CL_SAMPLER_NORMALIZED_COORDS) => {
                // clCreateSamplerWithProperties: CL_INVALID_VALUE when the value is not a cl_bool.
                require(number <= 1, CL_INVALID_VALUE)?;
                spec.normalized_coords = number == 1;
            }
            Ok(CL_SAMPLER_ADDRESSING_MODE) => spec.addressing_mode = number,
            Ok(CL_SAMPLER_FILTER_MODE) => spec.filter_mode = number,
            // clCreateSamplerWithProperties: CL_INVALID_VALUE when a name is not supported.
            _ => return fail(CL_INVALID_VALUE),
        }
    }
    spec.properties = list.read();
    Ok(spec)
}

#[entry_point]
pub(crate) fn clCreateSampler(
    context: cl_context,
    normalized_coords: cl_bool,
    addressing_mode: cl_addressing_mode,
    filter_mode: cl_filter_mode,
) -> ClResult<cl_sampler> {
    let spec = SamplerSpec {
        normalized_coords: normalized_coords != CL_FALSE,
        addressing_mode,
        filter_mode,
        properties: Vec::new(),
    };
    create(context, spec)
}

#[entry_point]
pub(crate) fn clCreateSamplerWithProperties(
    context: cl_context,
    sampler_properties: *const cl_sampler_properties,
) -> ClResult<cl_sampler> {
    // The context comes before the list, as the order of checks demands. `create` resolves it again.
    handle::resolve::<Context>(context)?;
    // SAFETY: the specification demands NULL or a list of pairs that a name of 0 ends.
    create(context, unsafe { read_properties(sampler_properties)? })
}

#[entry_point]
pub(crate) fn clRetainSampler(sampler: cl_sampler) -> ClResult {
    handle::retain::<Sampler>(sampler)
}

#[entry_point]
pub(crate) fn clReleaseSampler(sampler: cl_sampler) -> ClResult {
    handle::release::<Sampler>(sampler)
}

#[entry_point]
pub(crate) fn clGetSamplerInfo(
    sampler: cl_sampler,
    param_name: cl_sampler_info,
    info: Info,
) -> ClResult {
    let stub = handle::resolve::<Sampler>(sampler)?;
    answer(sampler, &stub, param_name, info).map(drop)
}

fn answer(
    raw: cl_sampler,
    sampler: &Arc<Sampler>,
    name: cl_sampler_info,
    info: Info,
) -> ClResult<Answered> {
    let spec = sampler.spec();
    match name {
        CL_SAMPLER_REFERENCE_COUNT => info.give(handle::reference_count::<Sampler>(raw)?),
        CL_SAMPLER_CONTEXT => info.give(handle::raw_of(sampler.context())),
        CL_SAMPLER_NORMALIZED_COORDS => info.give_bool(spec.normalized_coords),
        CL_SAMPLER_ADDRESSING_MODE => info.give(spec.addressing_mode),
        CL_SAMPLER_FILTER_MODE => info.give(spec.filter_mode),
        CL_SAMPLER_PROPERTIES => info.give_slice(&spec.properties),
        // clGetSamplerInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: &[u64]) -> ClResult<SamplerSpec> {
        // SAFETY: the lists below end in 0.
        unsafe { read_properties(list.as_ptr()) }
    }

    #[test]
    fn properties_are_echoed_and_what_they_leave_out_is_as_specified() {
        let (filter, linear) = (CL_SAMPLER_FILTER_MODE.into(), CL_FILTER_LINEAR.into());
        let spec = read(&[filter, linear, 0]).unwrap();
        assert_eq!(spec.properties, [filter, linear, 0]);
        assert_eq!(
            (spec.normalized_coords, spec.filter_mode),
            (true, CL_FILTER_LINEAR)
        );
        assert_eq!(spec.addressing_mode, CL_ADDRESS_CLAMP);
        assert_eq!(read(&[0]).unwrap().properties, [0]);
        // SAFETY: NULL is allowed.
        let none = unsafe { read_properties(std::ptr::null()) };
        assert!(none.unwrap().properties.is_empty());
        for wrong in [
            &[filter, linear, filter, linear, 0][..],
            &[0x9999, 1, 0],
            &[CL_SAMPLER_NORMALIZED_COORDS.into(), 2, 0],
            &[filter, 1 << 40, 0],
        ] {
            assert_eq!(read(wrong).unwrap_err().0, CL_INVALID_VALUE);
        }
    }

    #[test]
    fn repeating_needs_normalised_coordinates() {
        let spec = |normalized_coords, addressing_mode| SamplerSpec {
            normalized_coords,
            addressing_mode,
            filter_mode: CL_FILTER_NEAREST,
            properties: Vec::new(),
        };
        assert!(check(&spec(true, CL_ADDRESS_REPEAT)).is_ok());
        assert!(check(&spec(false, CL_ADDRESS_REPEAT)).is_err());
        assert!(check(&spec(false, CL_ADDRESS_CLAMP)).is_ok());
        assert!(check(&spec(true, 0x9999)).is_err());
    }
}
