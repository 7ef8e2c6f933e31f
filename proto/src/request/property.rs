//! Device properties that a request can use: the names of `clGetDeviceInfo`, and the kind of each answer.
//!
//! All code that parses or matches requests uses this one table. It omits handles (`PLATFORM`,
//! `PARENT_DEVICE`) and values that change while a device is used (`REFERENCE_COUNT`, free memory). A
//! manager that compared those would make promises it cannot keep.

use super::{Comparison, MAX_TEXT, RequestError, Value};

/// A row of the table.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Property {
    /// Name without `CL_DEVICE_`.
    pub name: &'static str,
    /// The `cl_device_info`.
    pub info: u32,
    /// Kind of the answer.
    pub kind: Kind,
    /// Whether the answer differs between devices of one model. Such answers are not worth an index by
    /// value.
    pub identity: bool,
}

/// The format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// An unsigned integer of 4 or 8 bytes.
    Number,
    /// A number of bytes of memory. Values may use KiB, MiB, GiB and TiB.
    Bytes,
    /// `cl_bool`.
    Bool,
    /// A bit field.
    Bits,
    /// `cl_device_type`. Equal means at least one common bit, as with `clGetDeviceIDs`.
    Type,
    /// Text.
    Text,
    /// Text with a list of words, separated by blanks or semicolons.
    Words,
    /// An array of `cl_name_version`.
    NamedVersions,
    /// `cl_version`.
    Version,
    /// Text with a version in it: `OpenCL 3.0 …`, `OpenCL C 1.2 …`.
    VersionText,
    /// An array of `size_t`.
    Numbers,
    /// 16 (or 8) bytes, written as hexadecimal digits.
    Digits,
}

impl Kind {
    /// The allowed comparisons, separated by blanks.
    fn allowed(self) -> &'static str {
        match self {
            Self::Number | Self::Bytes | Self::Version => "= != >= <=",
            Self::Bool | Self::Digits => "= !=",
            Self::Bits | Self::Type | Self::Text | Self::Words => "= != contains",
            Self::NamedVersions | Self::Numbers => "contains",
            Self::VersionText => "= != >= <= contains",
        }
    }

    /// A description of valid values, for people.
    pub(super) fn expected(self, comparison: Comparison) -> &'static str {
        match self {
            Self::Number | Self::Numbers => "a number",
            Self::Bytes => "a number of bytes such as 8GiB",
            Self::Bool => "true or false",
            Self::Bits => "a number such as 0x3",
            Self::Type => "CPU, GPU, ACCELERATOR, CUSTOM, DEFAULT or ALL, or several with '|'",
            Self::Version => "a version such as 3.0",
            Self::VersionText if comparison != Comparison::Contains => "a version such as 3.0",
            Self::Digits => "hexadecimal digits",
            Self::Text | Self::Words | Self::NamedVersions | Self::VersionText => {
                "a line of at most 1024 bytes"
            }
        }
    }

    /// Checks that a property of this kind allows the comparison and the value.
    pub(super) fn check(
        self,
        property: &'static str,
        comparison: Comparison,
        value: &Value,
    ) -> Result<(), RequestError> {
        let sign = comparison.sign();
        if !self.allowed().split(' ').any(|allowed| allowed == sign) {
            return Err(RequestError::Comparison {
                property,
                comparison: sign,
                allowed: self.allowed(),
            });
        }
        let fits = match (self, value) {
            (Self::Number | Self::Bytes | Self::Numbers | Self::Bits, Value::Number(_))
            | (Self::Bool, Value::Bool(_)) => true,
            (Self::Type, Value::Number(bits)) => *bits != 0,
            (Self::Version, Value::Version { .. }) => in_range(value),
            (Self::VersionText, Value::Version { .. }) => {
                comparison != Comparison::Contains && in_range(value)
            }
            (Self::VersionText, Value::Text(text)) => {
                comparison == Comparison::Contains && is_line(text)
            }
            (Self::Text | Self::Words | Self::NamedVersions, Value::Text(text)) => is_line(text),
            (Self::Digits, Value::Text(text)) => {
                !text.is_empty()
                    && text.len() <= 64
                    && text
                        .bytes()
                        .all(|of| matches!(of, b'0'..=b'9' | b'a'..=b'f'))
            }
            _ => false,
        };
        if fits {
            return Ok(());
        }
        Err(RequestError::Value {
            property,
            value: super::print::value_text(self, value),
            expected: self.expected(comparison),
        })
    }
}

/// Whether a text has no control characters, so that it fits into a request line, an error or a log.
fn is_line(text: &str) -> bool {
    text.len() <= MAX_TEXT && !text.chars().any(char::is_control)
}

/// Whether a version fits the widths of `cl_version`: 10, 10 and 12 bits.
fn in_range(version: &Value) -> bool {
    matches!(version, Value::Version { major, minor, patch }
        if *major < 1 << 10 && *minor < 1 << 10 && *patch < 1 << 12)
}

/// Finds a property by name, with or without `CL_DEVICE_`, ignoring case.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Property> {
    let mut name = name;
    for prefix in ["CL_DEVICE_", "CL_"] {
        if let Some(start) = name.get(..prefix.len())
            && start.eq_ignore_ascii_case(prefix)
        {
            name = &name[prefix.len()..];
            break;
        }
    }
    PROPERTIES
        .iter()
        .find(|property| property.name.eq_ignore_ascii_case(name))
}

/// Finds the property of a `cl_device_info`.
#[must_use]
pub fn by_info(info: u32) -> Option<&'static Property> {
    PROPERTIES.iter().find(|property| property.info == info)
}

/// Whether equal devices give the same answer to a `cl_device_info`: requests can name it, and it is no identity.
#[must_use]
pub fn is_common(info: u32) -> bool {
    by_info(info).is_some_and(|property| !property.identity)
}

/// The names of the bits of `CL_DEVICE_TYPE`.
pub const TYPES: [(&str, u64); 6] = [
    ("ALL", 0xFFFF_FFFF),
    ("DEFAULT", 1),
    ("CPU", 1 << 1),
    ("GPU", 1 << 2),
    ("ACCELERATOR", 1 << 3),
    ("CUSTOM", 1 << 4),
];

/// `CL_DEVICE_TYPE`.
pub const TYPE: u32 = 0x1000;

/// `CL_DEVICE_NAME`.
pub const NAME: u32 = 0x102B;

/// `CL_DEVICE_MAX_MEM_ALLOC_SIZE`.
pub const MAX_MEM_ALLOC_SIZE: u32 = 0x1010;

/// `CL_DEVICE_GLOBAL_MEM_SIZE`.
pub const GLOBAL_MEM_SIZE: u32 = 0x101F;

const fn row(name: &'static str, info: u32, kind: Kind) -> Property {
    Property {
        name,
        info,
        kind,
        identity: false,
    }
}

const fn identity(name: &'static str, info: u32, kind: Kind) -> Property {
    Property {
        name,
        info,
        kind,
        identity: true,
    }
}

/// The table of all properties.
pub static PROPERTIES: &[Property] = &[
    row("TYPE", 0x1000, Kind::Type),
    row("VENDOR_ID", 0x1001, Kind::Number),
    row("MAX_COMPUTE_UNITS", 0x1002, Kind::Number),
    row("MAX_WORK_ITEM_DIMENSIONS", 0x1003, Kind::Number),
    row("MAX_WORK_GROUP_SIZE", 0x1004, Kind::Number),
    row("MAX_WORK_ITEM_SIZES", 0x1005, Kind::Numbers),
    row("PREFERRED_VECTOR_WIDTH_CHAR", 0x1006, Kind::Number),
    row("PREFERRED_VECTOR_WIDTH_SHORT", 0x1007, Kind::Number),
    row("PREFERRED_VECTOR_WIDTH_INT", 0x1008, Kind::Number),
    row("PREFERRED_VECTOR_WIDTH_LONG", 0x1009, Kind::Number),
    row("PREFERRED_VECTOR_WIDTH_FLOAT", 0x100A, Kind::Number),
    row("PREFERRED_VECTOR_WIDTH_DOUBLE", 0x100B, Kind::Number),
    row("MAX_CLOCK_FREQUENCY", 0x100C, Kind::Number),
    row("ADDRESS_BITS", 0x100D, Kind::Number),
    row("MAX_READ_IMAGE_ARGS", 0x100E, Kind::Number),
    row("MAX_WRITE_IMAGE_ARGS", 0x100F, Kind::Number),
    row("MAX_MEM_ALLOC_SIZE", 0x1010, Kind::Bytes),
    row("IMAGE2D_MAX_WIDTH", 0x1011, Kind::Number),
    row("IMAGE2D_MAX_HEIGHT", 0x1012, Kind::Number),
    row("IMAGE3D_MAX_WIDTH", 0x1013, Kind::Number),
    row("IMAGE3D_MAX_HEIGHT", 0x1014, Kind::Number),
    row("IMAGE3D_MAX_DEPTH", 0x1015, Kind::Number),
    row("IMAGE_SUPPORT", 0x1016, Kind::Bool),
    row("MAX_PARAMETER_SIZE", 0x1017, Kind::Bytes),
    row("MAX_SAMPLERS", 0x1018, Kind::Number),
    row("MEM_BASE_ADDR_ALIGN", 0x1019, Kind::Number),
    row("MIN_DATA_TYPE_ALIGN_SIZE", 0x101A, Kind::Bytes),
    row("SINGLE_FP_CONFIG", 0x101B, Kind::Bits),
    row("GLOBAL_MEM_CACHE_TYPE", 0x101C, Kind::Number),
    row("GLOBAL_MEM_CACHELINE_SIZE", 0x101D, Kind::Bytes),
    row("GLOBAL_MEM_CACHE_SIZE", 0x101E, Kind::Bytes),
    row("GLOBAL_MEM_SIZE", 0x101F, Kind::Bytes),
    row("MAX_CONSTANT_BUFFER_SIZE", 0x1020, Kind::Bytes),
    row("MAX_CONSTANT_ARGS", 0x1021, Kind::Number),
    row("LOCAL_MEM_TYPE", 0x1022, Kind::Number),
    row("LOCAL_MEM_SIZE", 0x1023, Kind::Bytes),
    row("ERROR_CORRECTION_SUPPORT", 0x1024, Kind::Bool),
    row("PROFILING_TIMER_RESOLUTION", 0x1025, Kind::Number),
    row("ENDIAN_LITTLE", 0x1026, Kind::Bool),
    row("AVAILABLE", 0x1027, Kind::Bool),
    row("COMPILER_AVAILABLE", 0x1028, Kind::Bool),
    row("EXECUTION_CAPABILITIES", 0x1029, Kind::Bits),
    row("QUEUE_PROPERTIES", 0x102A, Kind::Bits),
    row("QUEUE_ON_HOST_PROPERTIES", 0x102A, Kind::Bits),
    row("NAME", 0x102B, Kind::Text),
    row("VENDOR", 0x102C, Kind::Text),
    row("DRIVER_VERSION", 0x102D, Kind::Text),
    row("PROFILE", 0x102E, Kind::Text),
    row("VERSION", 0x102F, Kind::VersionText),
    row("EXTENSIONS", 0x1030, Kind::Words),
    row("DOUBLE_FP_CONFIG", 0x1032, Kind::Bits),
    row("HALF_FP_CONFIG", 0x1033, Kind::Bits),
    row("PREFERRED_VECTOR_WIDTH_HALF", 0x1034, Kind::Number),
    row("HOST_UNIFIED_MEMORY", 0x1035, Kind::Bool),
    row("NATIVE_VECTOR_WIDTH_CHAR", 0x1036, Kind::Number),
    row("NATIVE_VECTOR_WIDTH_SHORT", 0x1037, Kind::Number),
    row("NATIVE_VECTOR_WIDTH_INT", 0x1038, Kind::Number),
    row("NATIVE_VECTOR_WIDTH_LONG", 0x1039, Kind::Number),
    row("NATIVE_VECTOR_WIDTH_FLOAT", 0x103A, Kind::Number),
    row("NATIVE_VECTOR_WIDTH_DOUBLE", 0x103B, Kind::Number),
    row("NATIVE_VECTOR_WIDTH_HALF", 0x103C, Kind::Number),
    row("OPENCL_C_VERSION", 0x103D, Kind::VersionText),
    row("LINKER_AVAILABLE", 0x103E, Kind::Bool),
    row("BUILT_IN_KERNELS", 0x103F, Kind::Words),
    row("IMAGE_MAX_BUFFER_SIZE", 0x1040, Kind::Number),
    row("IMAGE_MAX_ARRAY_SIZE", 0x1041, Kind::Number),
    row("PARTITION_MAX_SUB_DEVICES", 0x1043, Kind::Number),
    row("PARTITION_PROPERTIES", 0x1044, Kind::Numbers),
    row("PARTITION_AFFINITY_DOMAIN", 0x1045, Kind::Bits),
    row("PREFERRED_INTEROP_USER_SYNC", 0x1048, Kind::Bool),
    row("PRINTF_BUFFER_SIZE", 0x1049, Kind::Bytes),
    row("IMAGE_PITCH_ALIGNMENT", 0x104A, Kind::Number),
    row("IMAGE_BASE_ADDRESS_ALIGNMENT", 0x104B, Kind::Number),
    row("MAX_READ_WRITE_IMAGE_ARGS", 0x104C, Kind::Number),
    row("MAX_GLOBAL_VARIABLE_SIZE", 0x104D, Kind::Bytes),
    row("QUEUE_ON_DEVICE_PROPERTIES", 0x104E, Kind::Bits),
    row("QUEUE_ON_DEVICE_PREFERRED_SIZE", 0x104F, Kind::Bytes),
    row("QUEUE_ON_DEVICE_MAX_SIZE", 0x1050, Kind::Bytes),
    row("MAX_ON_DEVICE_QUEUES", 0x1051, Kind::Number),
    row("MAX_ON_DEVICE_EVENTS", 0x1052, Kind::Number),
    row("SVM_CAPABILITIES", 0x1053, Kind::Bits),
    row("GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE", 0x1054, Kind::Bytes),
    row("MAX_PIPE_ARGS", 0x1055, Kind::Number),
    row("PIPE_MAX_ACTIVE_RESERVATIONS", 0x1056, Kind::Number),
    row("PIPE_MAX_PACKET_SIZE", 0x1057, Kind::Bytes),
    row("PREFERRED_PLATFORM_ATOMIC_ALIGNMENT", 0x1058, Kind::Number),
    row("PREFERRED_GLOBAL_ATOMIC_ALIGNMENT", 0x1059, Kind::Number),
    row("PREFERRED_LOCAL_ATOMIC_ALIGNMENT", 0x105A, Kind::Number),
    row("IL_VERSION", 0x105B, Kind::Words),
    row("MAX_NUM_SUB_GROUPS", 0x105C, Kind::Number),
    row("SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS", 0x105D, Kind::Bool),
    row("NUMERIC_VERSION", 0x105E, Kind::Version),
    row("EXTENSIONS_WITH_VERSION", 0x1060, Kind::NamedVersions),
    row("ILS_WITH_VERSION", 0x1061, Kind::NamedVersions),
    row("BUILT_IN_KERNELS_WITH_VERSION", 0x1062, Kind::NamedVersions),
    row("ATOMIC_MEMORY_CAPABILITIES", 0x1063, Kind::Bits),
    row("ATOMIC_FENCE_CAPABILITIES", 0x1064, Kind::Bits),
    row("NON_UNIFORM_WORK_GROUP_SUPPORT", 0x1065, Kind::Bool),
    row("OPENCL_C_ALL_VERSIONS", 0x1066, Kind::NamedVersions),
    row("PREFERRED_WORK_GROUP_SIZE_MULTIPLE", 0x1067, Kind::Number),
    row(
        "WORK_GROUP_COLLECTIVE_FUNCTIONS_SUPPORT",
        0x1068,
        Kind::Bool,
    ),
    row("GENERIC_ADDRESS_SPACE_SUPPORT", 0x1069, Kind::Bool),
    row("OPENCL_C_FEATURES", 0x106F, Kind::NamedVersions),
    row("DEVICE_ENQUEUE_CAPABILITIES", 0x1070, Kind::Bits),
    row("PIPE_SUPPORT", 0x1071, Kind::Bool),
    row("LATEST_CONFORMANCE_VERSION_PASSED", 0x1072, Kind::Text),
    row("OPENCL_C_NUMERIC_VERSION_KHR", 0x105F, Kind::Version),
    row("SPIR_VERSIONS", 0x40E0, Kind::Words),
    row("TERMINATE_CAPABILITY_KHR", 0x2031, Kind::Bits),
    row("COMMAND_BUFFER_CAPABILITIES_KHR", 0x12A9, Kind::Bits),
    row("MUTABLE_DISPATCH_CAPABILITIES_KHR", 0x12B0, Kind::Bits),
    row("MAX_NAMED_BARRIER_COUNT_KHR", 0x2035, Kind::Number),
    identity("UUID_KHR", 0x106A, Kind::Digits),
    row("LUID_VALID_KHR", 0x106C, Kind::Bool),
    identity("LUID_KHR", 0x106D, Kind::Digits),
    row("COMPUTE_CAPABILITY_MAJOR_NV", 0x4000, Kind::Number),
    row("COMPUTE_CAPABILITY_MINOR_NV", 0x4001, Kind::Number),
    row("REGISTERS_PER_BLOCK_NV", 0x4002, Kind::Number),
    row("WARP_SIZE_NV", 0x4003, Kind::Number),
    row("GPU_OVERLAP_NV", 0x4004, Kind::Bool),
    row("KERNEL_EXEC_TIMEOUT_NV", 0x4005, Kind::Bool),
    row("INTEGRATED_MEMORY_NV", 0x4006, Kind::Bool),
    identity("PCI_BUS_ID_NV", 0x4008, Kind::Number),
    identity("PCI_SLOT_ID_NV", 0x4009, Kind::Number),
    identity("PCI_DOMAIN_ID_NV", 0x400A, Kind::Number),
    identity("PROFILING_TIMER_OFFSET_AMD", 0x4036, Kind::Number),
    row("BOARD_NAME_AMD", 0x4038, Kind::Text),
    row("SIMD_PER_COMPUTE_UNIT_AMD", 0x4040, Kind::Number),
    row("SIMD_WIDTH_AMD", 0x4041, Kind::Number),
    row("SIMD_INSTRUCTION_WIDTH_AMD", 0x4042, Kind::Number),
    row("WAVEFRONT_WIDTH_AMD", 0x4043, Kind::Number),
    row("GLOBAL_MEM_CHANNELS_AMD", 0x4044, Kind::Number),
    row("GLOBAL_MEM_CHANNEL_BANKS_AMD", 0x4045, Kind::Number),
    row("GLOBAL_MEM_CHANNEL_BANK_WIDTH_AMD", 0x4046, Kind::Number),
    row("LOCAL_MEM_SIZE_PER_COMPUTE_UNIT_AMD", 0x4047, Kind::Number),
    row("LOCAL_MEM_BANKS_AMD", 0x4048, Kind::Number),
    row("GFXIP_MAJOR_AMD", 0x404A, Kind::Number),
    row("GFXIP_MINOR_AMD", 0x404B, Kind::Number),
    row("AVAILABLE_ASYNC_QUEUES_AMD", 0x404C, Kind::Number),
    row("PREFERRED_WORK_GROUP_SIZE_AMD", 0x4030, Kind::Number),
    row("MAX_WORK_GROUP_SIZE_AMD", 0x4031, Kind::Number),
    row("PREFERRED_CONSTANT_BUFFER_SIZE_AMD", 0x4033, Kind::Number),
    row("PCIE_ID_AMD", 0x4034, Kind::Number),
    row("CXX_FOR_OPENCL_NUMERIC_VERSION_EXT", 0x4230, Kind::Version),
];
