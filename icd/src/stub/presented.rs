//! How a node's device answers are presented to the application.
//!
//! Everything passes as the node said it but for the rows below: features that cannot be reached from
//! another machine (or not yet) are reported absent, as OpenCL 3.0 defines absence, so that programs
//! skip them. Handles and what changes while the program runs are answered by `api::device`.
//!
//! Invariant: a row changes an answer that the node gave; it never invents one for an older device.

use bytes::Bytes;
use cl_headers::types::*;

use super::device::Answers;
use super::extensions;

/// What stands in an answer's place.
enum Shown {
    /// All bytes 0, as many as the node gave: `CL_FALSE`, 0, no bits, NULL.
    Zero,
    /// No element.
    Empty,
    /// The empty string.
    NoText,
    /// Some bits less.
    Without(u64),
    /// Not answered: `CL_INVALID_VALUE`.
    Nothing,
    /// Computed from the node's answer.
    By(fn(&[u8]) -> Vec<u8>),
}

// Names of extensions that the crates have no constants for.
const CL_DEVICE_PCI_BUS_INFO_KHR: u32 = 0x410F;
const CL_DEVICE_PCI_BUS_ID_NV: u32 = 0x4008;
const CL_DEVICE_PCI_SLOT_ID_NV: u32 = 0x4009;
const CL_DEVICE_PCI_DOMAIN_ID_NV: u32 = 0x400A;
const CL_DEVICE_TOPOLOGY_AMD: u32 = 0x4037;

/// Name, what is shown, why.
const ROWS: &[(u32, Shown, &str)] = &[
    (
        CL_DEVICE_EXTENSIONS,
        Shown::By(extensions::filter_list),
        "see extensions.rs",
    ),
    (
        CL_DEVICE_EXTENSIONS_WITH_VERSION,
        Shown::By(passed_versions),
        "see extensions.rs",
    ),
    (
        CL_DEVICE_OPENCL_C_FEATURES,
        Shown::By(shown_features),
        "see extensions.rs",
    ),
    (
        CL_DEVICE_VERSION,
        Shown::By(present_version),
        "2.x obliges to coarse-grain SVM",
    ),
    (
        CL_DEVICE_OPENCL_C_VERSION,
        Shown::By(present_c_version),
        "not above the device's version",
    ),
    (
        CL_DEVICE_HOST_UNIFIED_MEMORY,
        Shown::Zero,
        "the host is another machine: mapping is a copy",
    ),
    (
        CL_DEVICE_EXECUTION_CAPABILITIES,
        Shown::Without(CL_EXEC_NATIVE_KERNEL),
        "host functions stay here",
    ),
    (
        CL_DEVICE_SVM_CAPABILITIES,
        Shown::Zero,
        "no common addresses yet",
    ),
    (CL_DEVICE_IMAGE_SUPPORT, Shown::Zero, "no images yet"),
    (CL_DEVICE_MAX_READ_IMAGE_ARGS, Shown::Zero, "no images yet"),
    (CL_DEVICE_MAX_WRITE_IMAGE_ARGS, Shown::Zero, "no images yet"),
    (
        CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS,
        Shown::Zero,
        "no images yet",
    ),
    (CL_DEVICE_IMAGE2D_MAX_WIDTH, Shown::Zero, "no images yet"),
    (CL_DEVICE_IMAGE2D_MAX_HEIGHT, Shown::Zero, "no images yet"),
    (CL_DEVICE_IMAGE3D_MAX_WIDTH, Shown::Zero, "no images yet"),
    (CL_DEVICE_IMAGE3D_MAX_HEIGHT, Shown::Zero, "no images yet"),
    (CL_DEVICE_IMAGE3D_MAX_DEPTH, Shown::Zero, "no images yet"),
    (
        CL_DEVICE_IMAGE_MAX_BUFFER_SIZE,
        Shown::Zero,
        "no images yet",
    ),
    (CL_DEVICE_IMAGE_MAX_ARRAY_SIZE, Shown::Zero, "no images yet"),
    (
        CL_DEVICE_IMAGE_PITCH_ALIGNMENT,
        Shown::Zero,
        "no images yet",
    ),
    (
        CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT,
        Shown::Zero,
        "no images yet",
    ),
    (CL_DEVICE_MAX_SAMPLERS, Shown::Zero, "no images yet"),
    (CL_DEVICE_PIPE_SUPPORT, Shown::Zero, "no pipes"),
    (CL_DEVICE_MAX_PIPE_ARGS, Shown::Zero, "no pipes"),
    (
        CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS,
        Shown::Zero,
        "no pipes",
    ),
    (CL_DEVICE_PIPE_MAX_PACKET_SIZE, Shown::Zero, "no pipes"),
    (
        CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES,
        Shown::Zero,
        "no device queues",
    ),
    (
        CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE,
        Shown::Zero,
        "no device queues",
    ),
    (
        CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE,
        Shown::Zero,
        "no device queues",
    ),
    (
        CL_DEVICE_MAX_ON_DEVICE_QUEUES,
        Shown::Zero,
        "no device queues",
    ),
    (
        CL_DEVICE_MAX_ON_DEVICE_EVENTS,
        Shown::Zero,
        "no device queues",
    ),
    (
        CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES,
        Shown::Zero,
        "no device queues",
    ),
    (
        CL_DEVICE_MAX_NUM_SUB_GROUPS,
        Shown::Zero,
        "no sub-group queries yet",
    ),
    (
        CL_DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS,
        Shown::Zero,
        "no sub-group queries yet",
    ),
    (
        CL_DEVICE_IL_VERSION,
        Shown::NoText,
        "no intermediate languages yet",
    ),
    (
        CL_DEVICE_ILS_WITH_VERSION,
        Shown::Empty,
        "no intermediate languages yet",
    ),
    (
        CL_DEVICE_PARTITION_MAX_SUB_DEVICES,
        Shown::Zero,
        "no sub-devices yet",
    ),
    (
        CL_DEVICE_PARTITION_PROPERTIES,
        Shown::By(one_zero),
        "no sub-devices yet",
    ),
    (
        CL_DEVICE_PARTITION_AFFINITY_DOMAIN,
        Shown::Zero,
        "no sub-devices yet",
    ),
    (CL_DEVICE_PARTITION_TYPE, Shown::Empty, "a root device"),
    (
        CL_DEVICE_LUID_VALID_KHR,
        Shown::Zero,
        "the identifier is local to the node",
    ),
    (
        CL_DEVICE_PCI_BUS_INFO_KHR,
        Shown::Nothing,
        "a bus of another host",
    ),
    (
        CL_DEVICE_PCI_BUS_ID_NV,
        Shown::Nothing,
        "a bus of another host",
    ),
    (
        CL_DEVICE_PCI_SLOT_ID_NV,
        Shown::Nothing,
        "a bus of another host",
    ),
    (
        CL_DEVICE_PCI_DOMAIN_ID_NV,
        Shown::Nothing,
        "a bus of another host",
    ),
    (
        CL_DEVICE_TOPOLOGY_AMD,
        Shown::Nothing,
        "a bus of another host",
    ),
];

/// Rewrites a device's answers for the application.
#[must_use]
pub(super) fn present(mut answers: Answers) -> Answers {
    for (name, shown, _reason) in ROWS {
        if let Some(Ok(native)) = answers.get(name) {
            let bytes: Bytes = match shown {
                Shown::Zero => vec![0; native.len()].into(),
                Shown::Empty => Bytes::new(),
                Shown::NoText => Bytes::from_static(b"\0"),
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

fn one_zero(_native: &[u8]) -> Vec<u8> {
    vec![0; size_of::<cl_device_partition_property>()]
}

fn passed_versions(native: &[u8]) -> Vec<u8> {
    extensions::filter_versions(native, extensions::passes)
}

fn shown_features(native: &[u8]) -> Vec<u8> {
    let hidden = |name: &str| {
        extensions::FEATURES_HIDDEN
            .iter()
            .any(|(known, _)| *known == name)
    };
    extensions::filter_versions(native, |name| !hidden(name))
}

fn present_version(native: &[u8]) -> Vec<u8> {
    lower_2_to_1_2(native, "OpenCL ")
}

fn present_c_version(native: &[u8]) -> Vec<u8> {
    lower_2_to_1_2(native, "OpenCL C ")
}

fn lower_2_to_1_2(native: &[u8], prefix: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(native);
    match text.strip_prefix(prefix) {
        Some(rest) if rest.starts_with("2.") => format!("{prefix}1.2{}", &rest[3..]).into_bytes(),
        _ => native.to_vec(),
    }
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
        let shown = present(answers(&[
            (CL_DEVICE_IMAGE_SUPPORT, &[1, 0, 0, 0]),
            (CL_DEVICE_EXECUTION_CAPABILITIES, &[3, 0, 0, 0, 0, 0, 0, 0]),
            (CL_DEVICE_NAME, b"GPU\0"),
        ]));
        assert_eq!(
            shown[&CL_DEVICE_IMAGE_SUPPORT],
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
    fn a_device_of_2_x_is_shown_as_1_2() {
        assert_eq!(
            present_version(b"OpenCL 2.0 AMD-APP (3590.0)\0"),
            b"OpenCL 1.2 AMD-APP (3590.0)\0"
        );
        assert_eq!(present_c_version(b"OpenCL C 2.0 \0"), b"OpenCL C 1.2 \0");
        assert_eq!(present_version(b"OpenCL 3.0 CUDA\0"), b"OpenCL 3.0 CUDA\0");
    }
}
