//! `clGetPlatformIDs`, `clGetPlatformInfo`.

use cl_headers::server::CL_WWU_SERVER_EXTENSION_NAME;
use cl_headers::types::*;

use super::entry::entry_point;
use super::handle;
use super::info::{Answered, Info};
use super::{loader, semaphore, server};
use crate::error::{ClResult, fail};
use crate::stub::{Platform, device::timer};

#[entry_point]
pub(crate) fn clGetPlatformIDs(
    num_entries: cl_uint,
    platforms: *mut cl_platform_id,
    num_platforms: *mut cl_uint,
) -> ClResult {
    loader::platform_ids(num_entries, platforms, num_platforms)
}

/// Specification: "Querying Platform Info". The symbol is exported, because a loader calls it before it has
/// a table.
#[entry_point]
#[unsafe(no_mangle)]
pub(super) fn clGetPlatformInfo(
    platform: cl_platform_id,
    param_name: cl_platform_info,
    info: Info,
) -> ClResult {
    // clGetPlatformInfo: CL_INVALID_PLATFORM when platform is not valid; NULL is
    // implementation-defined, and means the only platform here.
    if !platform.is_null() || loader::platform_handle().is_none() {
        handle::resolve::<Platform>(platform)?;
    }
    answer(param_name, info).map(drop)
}

fn answer(name: cl_platform_info, info: Info) -> ClResult<Answered> {
    match name {
        CL_PLATFORM_PROFILE => info.give_str("FULL_PROFILE"),
        CL_PLATFORM_VERSION => {
            info.give_str(concat!("OpenCL 3.0 Causeway ", env!("CARGO_PKG_VERSION")))
        }
        CL_PLATFORM_NAME => info.give_str("Causeway"),
        CL_PLATFORM_VENDOR => info.give_str("Causeway"),
        CL_PLATFORM_EXTENSIONS => {
            let names: Vec<String> = extensions().into_iter().map(|(name, _)| name).collect();
            info.give_str(&names.join(" "))
        }
        CL_PLATFORM_ICD_SUFFIX_KHR => info.give_str("CSWY"),
        CL_PLATFORM_HOST_TIMER_RESOLUTION => info.give(timer::HOST_RESOLUTION),
        CL_PLATFORM_SEMAPHORE_TYPES_KHR => info.give_slice(&semaphore::TYPES),
        CL_PLATFORM_NUMERIC_VERSION => info.give(version(3, 0, 0)),
        CL_PLATFORM_EXTENSIONS_WITH_VERSION => {
            let entries = extensions();
            let entries = entries
                .iter()
                .map(|(name, version)| name_version(name, *version));
            info.give_bytes(&entries.collect::<Vec<_>>().concat())
        }
        // clGetPlatformInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}

/// The platform's own extensions, and those that all devices have: clGetPlatformInfo reports both.
fn extensions() -> Vec<(String, cl_version)> {
    let own = [
        ("cl_khr_icd", loader::icd_version()),
        (CL_WWU_SERVER_EXTENSION_NAME, server::VERSION),
    ];
    let own = own.map(|(name, version)| (name.to_owned(), version));
    let common = Platform::get().map(|platform| platform.common_extensions());
    own.into_iter()
        .chain(common.into_iter().flatten())
        .collect()
}

/// Packs a version as `CL_MAKE_VERSION` does.
pub(super) const fn version(major: u32, minor: u32, patch: u32) -> u32 {
    major << 22 | minor << 12 | patch
}

/// The bytes of a `cl_name_version`.
pub(super) fn name_version(name: &str, version: u32) -> Vec<u8> {
    let mut bytes = version.to_ne_bytes().to_vec();
    bytes.extend(name.bytes().take(63));
    bytes.resize(4 + 64, 0);
    bytes
}
