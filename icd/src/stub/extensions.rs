//! Which of a node's extensions pass: an allow-list, one reason a row.
//!
//! An extension passes when it needs nothing of the host that Causeway does not do: language
//! extensions, and queries that travel with the inventory. An unknown name is dropped, because it might
//! promise host functions.

use cl_headers::types::{cl_name_version, cl_version};

/// Names that pass, and why.
pub(super) const PASSED: &[(&str, &str)] = &[
    ("cl_khr_byte_addressable_store", "language only"),
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
    ("cl_khr_async_work_group_copy_fence", "language only"),
    ("cl_khr_extended_async_copies", "language only"),
    ("cl_nv_pragma_unroll", "language only"),
    (
        "cl_nv_compiler_options",
        "build options, forwarded untouched",
    ),
    ("cl_nv_device_attribute_query", "queries in the inventory"),
    ("cl_amd_device_attribute_query", "queries in the inventory"),
    ("cl_amd_fp64", "language only"),
    ("cl_amd_media_ops", "language only"),
    ("cl_amd_media_ops2", "language only"),
    ("cl_amd_printf", "language only"),
    ("cl_amd_vec3", "language only"),
    (
        "cl_intel_device_attribute_query",
        "queries in the inventory",
    ),
    ("cl_intel_split_work_group_barrier", "language only"),
    ("cl_intel_bfloat16_conversions", "language only"),
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

/// Language features (`CL_DEVICE_OPENCL_C_FEATURES`) that do not pass, and why.
pub(super) const FEATURES_HIDDEN: &[(&str, &str)] = &[
    ("__opencl_c_images", "no images yet"),
    ("__opencl_c_3d_image_writes", "no images yet"),
    ("__opencl_c_read_write_images", "no images yet"),
    ("__opencl_c_pipes", "no pipes"),
    ("__opencl_c_device_enqueue", "no device queues"),
];

/// Whether an extension passes.
#[must_use]
pub(super) fn passes(name: &str) -> bool {
    PASSED.iter().any(|(known, _)| *known == name)
}

/// Filters `CL_DEVICE_EXTENSIONS`, NUL included.
#[must_use]
pub(super) fn filter_list(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let kept: Vec<&str> = text
        .trim_end_matches('\0')
        .split_whitespace()
        .filter(|name| passes(name))
        .collect();
    let mut bytes = kept.join(" ").into_bytes();
    bytes.push(0);
    bytes
}

/// Filters an array of `cl_name_version` by name.
#[must_use]
pub(super) fn filter_versions(bytes: &[u8], keep: impl Fn(&str) -> bool) -> Vec<u8> {
    const VERSION: usize = size_of::<cl_version>();
    bytes
        .chunks_exact(size_of::<cl_name_version>())
        .filter(|entry| {
            let name = entry[VERSION..]
                .split(|&byte| byte == 0)
                .next()
                .unwrap_or_default();
            keep(&String::from_utf8_lossy(name))
        })
        .flatten()
        .copied()
        .collect()
}

/// `CL_MAKE_VERSION(1, 0, 0)`.
const FIRST: cl_version = 1 << 22;

/// What all of some devices have, each told by its `CL_DEVICE_EXTENSIONS` and
/// `CL_DEVICE_EXTENSIONS_WITH_VERSION` (empty for devices that do not tell versions): in the order of the
/// first, each in the lowest version.
#[must_use]
pub(super) fn common(devices: &[(&str, &[u8])]) -> Vec<(String, cl_version)> {
    let Some((first, _)) = devices.first() else {
        return Vec::new();
    };
    let mut all: Vec<(String, cl_version)> = Vec::new();
    for name in first.split_whitespace() {
        let versions = devices.iter().map(|(names, versions)| {
            let there = names.split_whitespace().any(|other| other == name);
            there.then(|| version_in(versions, name).unwrap_or(FIRST))
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
        assert_eq!(filter_list(list), b"cl_khr_fp64 cl_khr_fp16\0");
        assert_eq!(filter_list(b"\0"), b"\0");
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
    fn no_name_stands_twice() {
        for (place, (name, reason)) in PASSED.iter().enumerate() {
            assert!(!reason.is_empty());
            assert!(
                PASSED[..place].iter().all(|(other, _)| other != name),
                "{name}"
            );
        }
    }
}
