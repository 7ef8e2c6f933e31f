//! How a node's device answers are presented to the application.
//!
//! All answers are passed on unchanged, except those in the rows below. Features that do not work from
//! another machine, or not yet, are reported as absent, in the way that OpenCL 3.0 defines. `api::device`
//! answers queries for handles and for values that change while the program runs.
//!
//! Invariant: a row changes an answer of the node; it never adds one that an older device lacks.

use std::ops::RangeInclusive;

use bytes::Bytes;
use cl_headers::types::*;

use super::extensions;
use crate::stub::device::Answers;

/// The replacement for an answer.
enum Shown {
    /// Zeros, as many bytes as the node's answer: `CL_FALSE`, 0, no bits, or NULL.
    Zero,
    /// The node's answer without these bits.
    Without(u64),
    /// No answer: `CL_INVALID_VALUE`.
    Nothing,
    /// The result of a function of the node's answer.
    By(fn(&[u8]) -> Vec<u8>),
}

// Names that the crates have no constants for.
const CL_DEVICE_OPENCL_C_NUMERIC_VERSION_KHR: u32 = 0x105F;
const CL_DEVICE_INTEGRATED_MEMORY_NV: u32 = 0x4006;
const CL_DEVICE_TOPOLOGY_AMD: u32 = 0x4037;

/// Query, replacement and reason.
const ROWS: &[(u32, Shown, &str)] = &[
    (
        CL_DEVICE_EXTENSIONS,
        Shown::By(extensions::shown_list),
        "see extensions.rs",
    ),
    (
        CL_DEVICE_EXTENSIONS_WITH_VERSION,
        Shown::By(extensions::shown_versions),
        "see extensions.rs",
    ),
    (
        CL_DEVICE_VERSION,
        Shown::By(present_version),
        "no device reports a higher version than the platform",
    ),
    (
        CL_DEVICE_NUMERIC_VERSION,
        Shown::By(present_numeric_version),
        "as CL_DEVICE_VERSION",
    ),
    (
        CL_DEVICE_OPENCL_C_VERSION,
        Shown::By(present_c_version),
        "not above the device's version",
    ),
    (
        CL_DEVICE_OPENCL_C_NUMERIC_VERSION_KHR,
        Shown::By(present_numeric_version),
        "as CL_DEVICE_OPENCL_C_VERSION",
    ),
    (
        CL_DEVICE_HOST_UNIFIED_MEMORY,
        Shown::Zero,
        "the host is another machine: mapping is a copy",
    ),
    (
        CL_DEVICE_EXECUTION_CAPABILITIES,
        Shown::Without(CL_EXEC_NATIVE_KERNEL),
        "host functions run on the client only",
    ),
    (
        CL_DEVICE_SVM_CAPABILITIES,
        Shown::By(coarse_svm),
        "fine-grain sharing needs one host's memory",
    ),
    (
        CL_DEVICE_LUID_VALID_KHR,
        Shown::Zero,
        "the identifier is local to the node",
    ),
    (
        CL_DEVICE_INTEGRATED_MEMORY_NV,
        Shown::Zero,
        "the host is another machine",
    ),
    (
        CL_DEVICE_TOPOLOGY_AMD,
        Shown::Nothing,
        "the bus belongs to another host, and the answer has no field for that",
    ),
];

/// Queries of extensions that are not passed on (`extensions.rs`). They are not answered, as on a device
/// without the extension.
const WITHHELD: &[(RangeInclusive<u32>, &str)] = &[
    (0x1077..=0x1077, "cl_khr_unified_svm"),
    (0x129A..=0x129A, "cl_khr_command_buffer"),
    (0x12A9..=0x12B1, "cl_khr_command_buffer and its kin"),
    (0x2031..=0x2031, "cl_khr_terminate_context"),
    (
        0x204C..=0x2053,
        "drivers' own semaphores, memory of other drivers",
    ),
    (
        0x4050..=0x405F,
        "cl_ext_device_fission, cl_khr_terminate_context",
    ),
    (0x40B6..=0x40B6, "cl_arm_shared_virtual_memory"),
    (0x40E0..=0x40E0, "cl_khr_spir"),
    (0x418B..=0x418B, "cl_intel_command_queue_families"),
    (0x4190..=0x4194, "cl_intel_unified_shared_memory"),
];

/// Rewrites a device's answers for the application. `has_images` is false for a device without image
/// formats, because it has none or could not be queried; such a device is presented without image support.
#[must_use]
pub(in crate::stub) fn present(mut answers: Answers, has_images: bool) -> Answers {
    if !has_images && let Some(Ok(support)) = answers.get(&CL_DEVICE_IMAGE_SUPPORT) {
        let none = vec![0; support.len()];
        answers.insert(CL_DEVICE_IMAGE_SUPPORT, Ok(none.into()));
        if let Some(Ok(features)) = answers.get(&CL_DEVICE_OPENCL_C_FEATURES) {
            let rest = extensions::filter_versions(features, |name| !name.contains("image"));
            answers.insert(CL_DEVICE_OPENCL_C_FEATURES, Ok(rest.into()));
        }
    }
    answers.retain(|name, _| !WITHHELD.iter().any(|(range, _)| range.contains(name)));
    for (name, shown, _reason) in ROWS {
        if let Some(Ok(native)) = answers.get(name) {
            let bytes: Bytes = match shown {
                Shown::Zero => vec![0; native.len()].into(),
                Shown::Without(bits) => without(native, *bits).into(),
                Shown::By(rewrite) => rewrite(native).into(),
                Shown::Nothing => {
                    answers.insert(*name, Err(CL_INVALID_VALUE));
                    continue;
                }
            };
            answers.insert(*name, Ok(bytes));
        }
    }
    answers
}

fn without(native: &[u8], bits: u64) -> Vec<u8> {
    native
        .iter()
        .zip(bits.to_le_bytes())
        .map(|(byte, drop)| byte & !drop)
        .collect()
}

fn coarse_svm(native: &[u8]) -> Vec<u8> {
    without(native, !CL_DEVICE_SVM_COARSE_GRAIN_BUFFER)
}

/// The highest version that a device is presented with: the platform's.
const HIGHEST: (u32, u32) = (3, 0);

// The version that a device of `version` is presented with.
fn shown_version(version: (u32, u32)) -> (u32, u32) {
    version.min(HIGHEST)
}

fn present_version(native: &[u8]) -> Vec<u8> {
    lowered(native, "OpenCL ")
}

fn present_c_version(native: &[u8]) -> Vec<u8> {
    lowered(native, "OpenCL C ")
}

fn lowered(native: &[u8], prefix: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(native);
    let lower = || {
        let rest = text.strip_prefix(prefix)?;
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (major, minor) = rest[..end].split_once('.')?;
        let version = (major.parse().ok()?, minor.parse().ok()?);
        let (major, minor) = shown_version(version);
        Some(format!("{prefix}{major}.{minor}{}", &rest[end..]))
    };
    lower().map_or_else(|| native.to_vec(), String::into_bytes)
}

fn present_numeric_version(native: &[u8]) -> Vec<u8> {
    let Ok(bytes) = <[u8; 4]>::try_from(native) else {
        return native.to_vec();
    };
    let version = cl_version::from_le_bytes(bytes);
    let own = (version >> 22, version >> 12 & 0x3FF);
    let shown = shown_version(own);
    if shown == own {
        return native.to_vec();
    }
    (shown.0 << 22 | shown.1 << 12).to_le_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(list: &[(u32, &[u8])]) -> Answers {
        list.iter()
            .map(|(name, bytes)| (*name, Ok(Bytes::copy_from_slice(bytes))))
            .collect()
    }

    #[test]
    fn absent_features_are_zero_in_the_nodes_own_width_and_nothing_is_invented() {
        let native = answers(&[
            (CL_DEVICE_HOST_UNIFIED_MEMORY, &[1, 0, 0, 0]),
            (CL_DEVICE_EXECUTION_CAPABILITIES, &[3, 0, 0, 0, 0, 0, 0, 0]),
            (CL_DEVICE_NAME, b"GPU\0"),
        ]);
        let shown = present(native, true);
        assert_eq!(
            shown[&CL_DEVICE_HOST_UNIFIED_MEMORY],
            Ok(Bytes::from_static(&[0; 4]))
        );
        assert_eq!(
            shown[&CL_DEVICE_EXECUTION_CAPABILITIES].as_ref().unwrap()[0],
            1
        );
        assert_eq!(shown[&CL_DEVICE_NAME], Ok(Bytes::from_static(b"GPU\0")));
        assert_eq!(shown.len(), 3);
    }

    #[test]
    fn images_are_there_with_a_format() {
        for (has_images, shown) in [(true, 1), (false, 0)] {
            let native = answers(&[(CL_DEVICE_IMAGE_SUPPORT, &[1, 0, 0, 0])]);
            let told = present(native, has_images);
            let support = told[&CL_DEVICE_IMAGE_SUPPORT].as_ref().unwrap();
            assert_eq!(support[..], [shown, 0, 0, 0]);
        }
    }

    #[test]
    fn queries_of_withheld_extensions_are_not_answered() {
        let native = answers(&[(0x4190, &[1; 8]), (0x12A9, &[1; 8]), (0x4000, &[9; 4])]);
        let shown = present(native, true);
        assert_eq!(shown.keys().collect::<Vec<_>>(), [&0x4000]);
    }

    #[test]
    fn numbers_and_texts_of_versions_agree() {
        let number = |major: u32, minor: u32| (major << 22 | minor << 12 | 7).to_le_bytes();
        for (own, shown) in [((3, 1), (3u32, 0u32)), ((4, 2), (3, 0))] {
            let numeric = present_numeric_version(&number(own.0, own.1));
            assert_eq!(numeric, (shown.0 << 22 | shown.1 << 12).to_le_bytes());
            let text = format!("OpenCL {}.{} x\0", own.0, own.1);
            let lower = format!("OpenCL {}.{} x\0", shown.0, shown.1);
            assert_eq!(present_version(text.as_bytes()), lower.as_bytes());
        }
        for same in [(1, 2), (2, 0), (2, 2), (3, 0)] {
            let numeric = number(same.0, same.1);
            assert_eq!(present_numeric_version(&numeric), numeric);
        }
        assert_eq!(present_version(b"what\0"), b"what\0");
    }

    #[test]
    fn versions_up_to_the_platforms_stay() {
        for text in [&b"OpenCL 2.0 AMD-APP (3590.0)\0"[..], b"OpenCL 3.0 CUDA\0"] {
            assert_eq!(present_version(text), text);
        }
        assert_eq!(present_c_version(b"OpenCL C 2.0 \0"), b"OpenCL C 2.0 \0");
        assert_eq!(present_c_version(b"OpenCL C 3.1 \0"), b"OpenCL C 3.0 \0");
    }
}
