//! Which of a node's extensions the application sees: an allow-list with a reason for each row.
//!
//! An extension is on the list if it needs nothing of the host that Causeway lacks: language extensions,
//! and queries that are part of the inventory. Unknown extensions are dropped, because they might promise
//! host functions. Extensions that Causeway implements itself, on top of every driver, are reported for
//! every device.

use std::borrow::Cow;

use cl_headers::types::{cl_name_version, cl_version};

/// Extensions that are passed on, and the reasons.
pub(in crate::stub) const PASSED: &[(&str, &str)] = &[
    ("cl_khr_byte_addressable_store", "language only"),
    ("cl_khr_3d_image_writes", "language only"),
    ("cl_khr_depth_images", "language, and formats"),
    (
        "cl_khr_image2d_from_buffer",
        "created on the node as a part of its parent",
    ),
    ("cl_khr_global_int32_base_atomics", "language only"),
    ("cl_khr_global_int32_extended_atomics", "language only"),
    ("cl_khr_local_int32_base_atomics", "language only"),
    ("cl_khr_local_int32_extended_atomics", "language only"),
    ("cl_khr_int64_base_atomics", "language only"),
    ("cl_khr_int64_extended_atomics", "language only"),
    ("cl_khr_fp16", "language only"),
    ("cl_khr_fp64", "language only"),
    ("cl_khr_select_fprounding_mode", "language only"),
    ("cl_khr_extended_bit_ops", "language only"),
    ("cl_khr_expect_assume", "language only"),
    (
        "cl_khr_integer_dot_product",
        "language, and queries in the inventory",
    ),
    ("cl_khr_work_group_uniform_arithmetic", "language only"),
    (
        "cl_khr_kernel_clock",
        "language, and a query in the inventory",
    ),
    (
        "cl_ext_float_atomics",
        "language, and queries in the inventory",
    ),
    (
        "cl_ext_cxx_for_opencl",
        "language, and a query in the inventory",
    ),
    ("cl_khr_extended_versioning", "queries in the inventory"),
    ("cl_khr_device_uuid", "queries in the inventory"),
    (
        "cl_khr_pci_bus_info",
        "a query in the inventory; see pci.rs",
    ),
    (
        "cl_khr_suggested_local_work_size",
        "a query that the node answers",
    ),
    (
        "cl_khr_create_command_queue",
        "the function of OpenCL 2.0 under another name",
    ),
    ("cl_khr_priority_hints", "a property of the node's queue"),
    ("cl_khr_throttle_hints", "a property of the node's queue"),
    (
        "cl_khr_subgroup_named_barrier",
        "language, and a query in the inventory",
    ),
    ("cl_khr_subgroup_rotate", "language only"),
    (
        "cl_khr_spirv_extended_debug_info",
        "read by the node's compiler",
    ),
    ("cl_khr_device_enqueue_local_arg_types", "language only"),
    ("cl_khr_async_work_group_copy_fence", "language only"),
    ("cl_khr_extended_async_copies", "language only"),
    ("cl_khr_il_program", "modules travel like source"),
    (
        "cl_khr_subgroups",
        "language, and a query that the node answers",
    ),
    ("cl_khr_subgroup_extended_types", "language only"),
    ("cl_khr_subgroup_non_uniform_vote", "language only"),
    ("cl_khr_subgroup_ballot", "language only"),
    ("cl_khr_subgroup_non_uniform_arithmetic", "language only"),
    ("cl_khr_subgroup_shuffle", "language only"),
    ("cl_khr_subgroup_shuffle_relative", "language only"),
    ("cl_khr_subgroup_clustered_reduce", "language only"),
    (
        "cl_khr_spirv_no_integer_wrap_decoration",
        "read by the node's compiler",
    ),
    ("cl_khr_spirv_linkonce_odr", "read by the node's compiler"),
    ("cl_nv_pragma_unroll", "language only"),
    (
        "cl_nv_compiler_options",
        "build options, forwarded untouched",
    ),
    ("cl_nv_device_attribute_query", "queries in the inventory"),
    ("cl_amd_device_attribute_query", "queries in the inventory"),
    ("cl_nv_kernel_attribute", "language only"),
    ("cl_amd_fp64", "language only"),
    ("cl_amd_popcnt", "language only"),
    ("cl_amd_media_ops", "language only"),
    ("cl_amd_media_ops2", "language only"),
    ("cl_amd_printf", "language only"),
    ("cl_amd_vec3", "language only"),
    (
        "cl_intel_device_attribute_query",
        "queries in the inventory",
    ),
    (
        "cl_intel_subgroups",
        "language, and queries that the node answers",
    ),
    ("cl_intel_subgroups_char", "language only"),
    ("cl_intel_subgroups_short", "language only"),
    ("cl_intel_subgroups_long", "language only"),
    (
        "cl_intel_required_subgroup_size",
        "language, a query in the inventory, and queries that the node answers",
    ),
    ("cl_intel_spirv_subgroups", "read by the node's compiler"),
    (
        "cl_intel_spirv_media_block_io",
        "read by the node's compiler",
    ),
    ("cl_intel_split_work_group_barrier", "language only"),
    ("cl_intel_bfloat16_conversions", "language only"),
    ("cl_intel_media_block_io", "language only"),
    ("cl_intel_subgroup_2d_block_io", "language only"),
    ("cl_intel_subgroup_buffer_prefetch", "language only"),
    ("cl_intel_subgroup_local_block_io", "language only"),
    (
        "cl_intel_subgroup_split_matrix_multiply_accumulate",
        "language only",
    ),
    (
        "cl_intel_subgroup_matrix_multiply_accumulate",
        "language only",
    ),
    ("cl_arm_printf", "language only"),
    ("cl_arm_core_id", "language, and a query in the inventory"),
    ("cl_arm_integer_dot_product_int8", "language only"),
    (
        "cl_arm_integer_dot_product_accumulate_int8",
        "language only",
    ),
];

/// Reasons why other extensions are not passed on, by the beginnings of their names; [`UNKNOWN`] for all
/// others.
const WITHHELD: &[(&str, &str)] = &[
    ("cl_khr_gl_", GRAPHICS),
    ("cl_APPLE_gl_", GRAPHICS),
    ("cl_khr_d3d", GRAPHICS),
    ("cl_khr_dx9", GRAPHICS),
    ("cl_intel_d3d", GRAPHICS),
    ("cl_intel_dx9", GRAPHICS),
    ("cl_nv_d3d", GRAPHICS),
    ("cl_khr_egl_", GRAPHICS),
    ("cl_intel_va_api_", GRAPHICS),
    ("cl_intel_sharing_format_query", GRAPHICS),
    ("cl_khr_external_", HANDLES),
    ("cl_arm_import_memory", HANDLES),
    ("cl_img_use_gralloc_ptr", HANDLES),
    ("cl_intel_unified_shared_memory", ADDRESSES),
    ("cl_khr_unified_svm", ADDRESSES),
    ("cl_arm_shared_virtual_memory", ADDRESSES),
    ("cl_amd_svm", ADDRESSES),
    ("cl_ext_buffer_device_address", ADDRESSES),
    ("cl_khr_command_buffer_", NOT_YET),
    ("cl_khr_spir", NOT_YET),
    ("cl_ext_device_fission", "superseded by OpenCL 1.2's own"),
    ("cl_khr_terminate_context", "only the daemon ends a session"),
    ("cl_nv_create_buffer", "flags for memory of this host"),
    ("cl_nv_copy_opts", "not documented"),
    ("cl_khr_mipmap_image", "images have one level"),
    (
        "cl_intel_program_scope_host_pipe",
        "functions of the host for pipes",
    ),
];
const GRAPHICS: &str = "the other API's objects are on the client, the device is on the node";
const HANDLES: &str = "the handle is valid only on one host";
const ADDRESSES: &str = "client and node have different addresses";
const NOT_YET: &str = "not implemented";
const UNKNOWN: &str = "unknown extension, which may need host functions";

/// Logs which extensions of a device are not passed on, for users who miss one.
pub(in crate::stub) fn note_withheld(device: &str, list: &str) {
    for name in list.trim_end_matches('\0').split_whitespace() {
        if let Some(reason) = withheld(name) {
            tracing::debug!("device {device}: extension {name} is not reported: {reason}");
        }
    }
}

// The reason why an extension is not passed on; `None` for one that is.
fn withheld(name: &str) -> Option<&'static str> {
    if passes(name) || provided(name).is_some() {
        return None;
    }
    let row = WITHHELD.iter().find(|(begin, _)| name.starts_with(begin));
    Some(row.map_or(UNKNOWN, |(_, reason)| reason))
}

/// Extensions that Causeway implements for every device: name, version and how. They replace the driver's
/// own.
pub(in crate::stub) const PROVIDED: &[(&str, cl_version, &str)] = &[
    (
        "cl_khr_command_buffer",
        version(0, 9, 8),
        "kept and replayed by the worker; see command_buffer",
    ),
    (
        "cl_khr_command_buffer_mutable_dispatch",
        version(0, 9, 5),
        "replays carry the changes; see command_buffer",
    ),
    (
        "cl_khr_semaphore",
        version(1, 0, 0),
        "over the events of signals and waits; see semaphore",
    ),
];

/// `CL_MAKE_VERSION`.
const fn version(major: u32, minor: u32, patch: u32) -> cl_version {
    major << 22 | minor << 12 | patch
}

fn provided(name: &str) -> Option<cl_version> {
    let mut all = PROVIDED.iter();
    all.find_map(|(known, version, _)| (*known == name).then_some(*version))
}

/// Whether an extension of a driver is passed on.
#[must_use]
pub(in crate::stub) fn passes(name: &str) -> bool {
    PASSED.iter().any(|(known, _)| *known == name)
}

/// Returns the extension list that the application sees, with NUL. `bytes` is the driver's
/// `CL_DEVICE_EXTENSIONS`.
#[must_use]
pub(in crate::stub) fn shown_list(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let kept: Vec<&str> = text
        .trim_end_matches('\0')
        .split_whitespace()
        .filter(|name| passes(name))
        .chain(PROVIDED.iter().map(|(name, ..)| *name))
        .collect();
    let mut bytes = kept.join(" ").into_bytes();
    bytes.push(0);
    bytes
}

/// Like [`shown_list`], for `CL_DEVICE_EXTENSIONS_WITH_VERSION`.
#[must_use]
pub(in crate::stub) fn shown_versions(bytes: &[u8]) -> Vec<u8> {
    let mut shown = filter_versions(bytes, passes);
    for (name, version, _) in PROVIDED {
        let end = shown.len() + size_of::<cl_name_version>();
        shown.extend(version.to_ne_bytes());
        shown.extend(name.bytes());
        shown.resize(end, 0);
    }
    shown
}

/// Returns the entries of an array of `cl_name_version` whose names pass `keep`.
#[must_use]
pub(in crate::stub) fn filter_versions(bytes: &[u8], keep: impl Fn(&str) -> bool) -> Vec<u8> {
    bytes
        .chunks_exact(size_of::<cl_name_version>())
        .filter(|entry| keep(&name_of(entry)))
        .flatten()
        .copied()
        .collect()
}

/// Returns the names in an array of `cl_name_version`.
#[must_use]
pub(in crate::stub) fn names(bytes: &[u8]) -> Vec<String> {
    let entries = bytes.chunks_exact(size_of::<cl_name_version>());
    entries.map(|entry| name_of(entry).into_owned()).collect()
}

fn name_of(entry: &[u8]) -> Cow<'_, str> {
    let name = entry[size_of::<cl_version>()..].split(|&byte| byte == 0);
    String::from_utf8_lossy(name.into_iter().next().unwrap_or_default())
}

const FIRST: cl_version = version(1, 0, 0);

/// Returns the extensions that all devices have, in the order of the first device, each with the lowest
/// version. A device is given by its `CL_DEVICE_EXTENSIONS` and its `CL_DEVICE_EXTENSIONS_WITH_VERSION`
/// (empty if the device has no versions).
#[must_use]
pub(in crate::stub) fn common(devices: &[(&str, &[u8])]) -> Vec<(String, cl_version)> {
    let Some((first, _)) = devices.first() else {
        return Vec::new();
    };
    let mut all: Vec<(String, cl_version)> = Vec::new();
    for name in first.split_whitespace() {
        let versions = devices.iter().map(|(names, versions)| {
            let there = names.split_whitespace().any(|other| other == name);
            let told = || version_in(versions, name).or_else(|| provided(name));
            there.then(|| told().unwrap_or(FIRST))
        });
        let versions: Option<Vec<cl_version>> = versions.collect();
        let lowest = versions.and_then(|of| of.into_iter().min());
        if let Some(version) = lowest.filter(|_| all.iter().all(|(known, _)| known != name)) {
            all.push((name.to_owned(), version));
        }
    }
    all
}

fn version_in(versions: &[u8], name: &str) -> Option<cl_version> {
    let mut entries = versions.chunks_exact(size_of::<cl_name_version>());
    entries.find_map(|entry| {
        let (version, rest) = entry.split_first_chunk()?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        (&rest[..end] == name.as_bytes()).then(|| cl_version::from_ne_bytes(*version))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry_of(version: cl_version, name: &str) -> Vec<u8> {
        let mut bytes = version.to_ne_bytes().to_vec();
        bytes.extend(name.bytes());
        bytes.resize(size_of::<cl_name_version>(), 0);
        bytes
    }

    #[test]
    fn what_all_devices_have_is_common_in_the_lowest_version() {
        let newer = [entry_of(FIRST + 7, "a"), entry_of(FIRST + 1, "ab")].concat();
        let older = entry_of(FIRST + 3, "a");
        let told = common(&[("ab a c", &newer), ("c a  b", &older), ("a c", &newer)]);
        assert_eq!(told, [("a".to_owned(), FIRST + 3), ("c".to_owned(), FIRST)]);
        assert_eq!(common(&[]), []);
        assert_eq!(common(&[("a", &newer), ("", &[])]), []);
        assert_eq!(common(&[("a a", &[])]).len(), 1, "no repeats");
    }

    #[test]
    fn what_needs_the_host_is_dropped_and_the_order_kept() {
        let list = b"cl_khr_fp64 cl_khr_gl_sharing  cl_khr_fp16 cl_unknown_thing\0";
        let shown = b"cl_khr_fp64 cl_khr_fp16 cl_khr_command_buffer cl_khr_command_buffer_mutable_dispatch cl_khr_semaphore\0";
        assert_eq!(shown_list(list), shown);
        assert_eq!(shown_list(b"\0"), shown[24..]);
    }

    #[test]
    fn versions_follow_the_names() {
        let entry = |name: &str| {
            let mut bytes = vec![1, 0, 0, 0];
            bytes.extend(name.bytes());
            bytes.resize(size_of::<cl_name_version>(), 0);
            bytes
        };
        let both = [entry("cl_khr_fp64"), entry("cl_khr_gl_sharing")].concat();
        assert_eq!(filter_versions(&both, passes), entry("cl_khr_fp64"));
    }

    #[test]
    fn what_does_not_pass_has_a_reason() {
        assert_eq!(withheld("cl_khr_fp64"), None);
        assert_eq!(withheld("cl_khr_gl_sharing"), Some(GRAPHICS));
        assert_eq!(withheld("cl_khr_external_memory_dma_buf"), Some(HANDLES));
        assert_eq!(withheld("cl_new_thing"), Some(UNKNOWN));
        for (place, (begin, reason)) in WITHHELD.iter().enumerate() {
            assert!(!reason.is_empty());
            let before = &WITHHELD[..place];
            assert!(!before.iter().any(|(b, _)| begin.starts_with(b)), "{begin}");
        }
    }

    #[test]
    fn what_we_do_ourselves_is_in_our_version_even_where_the_driver_has_it() {
        let theirs = entry_of(FIRST, "cl_khr_command_buffer");
        let ours = entry_of(version(0, 9, 8), "cl_khr_command_buffer");
        let mutable = entry_of(version(0, 9, 5), "cl_khr_command_buffer_mutable_dispatch");
        let semaphore = entry_of(version(1, 0, 0), "cl_khr_semaphore");
        assert_eq!(shown_versions(&theirs), [ours, mutable, semaphore].concat());
        let told = common(&[("cl_khr_command_buffer", &[])]);
        assert_eq!(told[0].1, version(0, 9, 8));
    }

    #[test]
    fn no_name_stands_twice() {
        let provided = PROVIDED.iter().map(|(name, _, reason)| (*name, *reason));
        let all: Vec<_> = PASSED.iter().copied().chain(provided).collect();
        for (place, (name, reason)) in all.iter().enumerate() {
            assert!(!reason.is_empty());
            assert!(
                all[..place].iter().all(|(other, _)| other != name),
                "{name}"
            );
        }
    }
}
