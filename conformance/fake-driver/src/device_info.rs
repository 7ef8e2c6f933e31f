//! The table of `clGetDeviceInfo`.
//!
//! Invariant: queries for absent features get the answers that OpenCL 3.0 defines. A query of a version
//! later than the device's is unknown.

use std::ffi::c_void;

use cl_headers::types::*;

use crate::device::{
    BASE_ALIGNMENT, Device, LOCAL_MEMORY, MAX_ARGUMENTS, MAX_GROUP, MAX_GROUP_SIZES, version,
};
use crate::error::{ClResult, fail};
use crate::info::Info;
use crate::object::Object;
use crate::{nvml, on_device, pipe, source};

/// `CL_DEVICE_UUID_KHR` of `cl_khr_device_uuid`.
const UUID: cl_device_info = 0x106A;

/// Returns the answer to a query.
pub(crate) fn answer(device: &Object<Device>, name: cl_device_info) -> ClResult<Info> {
    let found = identity(device, name)
        .or_else(|| compute(device, name))
        .or_else(|| memory(device, name))
        .or_else(|| images(device, name))
        .or_else(|| bus(device, name))
        .or_else(|| {
            if device.at_least(2, 0) {
                since_2_0(device, name)
            } else {
                None
            }
        })
        .or_else(|| {
            if device.at_least(3, 0) {
                since_3_0(device, name)
            } else {
                None
            }
        });
    found.map_or_else(|| fail(CL_INVALID_VALUE), Ok)
}

fn built_in_kernels() -> Vec<String> {
    let kernels = source::kernels(crate::device::BUILT_IN_SOURCE);
    kernels.into_iter().map(|kernel| kernel.name).collect()
}

/// Returns a device's extensions.
pub(crate) fn extensions(device: &Device) -> Vec<(&str, u32)> {
    let mut list = vec![
        ("cl_khr_byte_addressable_store", version(1, 0)),
        ("cl_khr_global_int32_base_atomics", version(1, 0)),
        ("cl_khr_local_int32_base_atomics", version(1, 0)),
    ];
    if device.settings.fp64 {
        list.push(("cl_khr_fp64", version(1, 0)));
    }
    let more = device.settings.extensions.iter();
    list.extend(more.map(|name| (name.as_str(), version(1, 0))));
    list
}

fn identity(device: &Object<Device>, name: cl_device_info) -> Option<Info> {
    let settings = &device.settings;
    let shown = format!("{}.{}", settings.version.major, settings.version.minor);
    let names: Vec<_> = extensions(device)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    Some(match name {
        CL_DEVICE_TYPE => Info::ulong(device.kind()),
        CL_DEVICE_VENDOR_ID => Info::uint(settings.vendor_id),
        CL_DEVICE_NAME => Info::text(&settings.name),
        CL_DEVICE_VENDOR => Info::text("Causeway"),
        CL_DRIVER_VERSION => Info::text(env!("CARGO_PKG_VERSION")),
        CL_DEVICE_PROFILE => Info::text("FULL_PROFILE"),
        CL_DEVICE_VERSION => Info::text(&format!("OpenCL {shown} fake")),
        CL_DEVICE_OPENCL_C_VERSION => Info::text(if device.at_least(3, 0) {
            "OpenCL C 1.2 fake"
        } else if device.at_least(2, 0) {
            "OpenCL C 2.0 fake"
        } else {
            "OpenCL C 1.2 fake"
        }),
        CL_DEVICE_EXTENSIONS => Info::text(&names.join(" ")),
        CL_DEVICE_PLATFORM => Info::handle(device.platform.handle()),
        CL_DEVICE_COMPILER_AVAILABLE | CL_DEVICE_LINKER_AVAILABLE => {
            Info::bool(device.settings.compiler)
        }
        CL_DEVICE_AVAILABLE | CL_DEVICE_ENDIAN_LITTLE | CL_DEVICE_PREFERRED_INTEROP_USER_SYNC => {
            Info::bool(true)
        }
        CL_DEVICE_ERROR_CORRECTION_SUPPORT => Info::bool(false),
        CL_DEVICE_EXECUTION_CAPABILITIES => Info::ulong(CL_EXEC_KERNEL),
        CL_DEVICE_QUEUE_ON_HOST_PROPERTIES => Info::ulong(device.queue_properties()),
        CL_DEVICE_PROFILING_TIMER_RESOLUTION => Info::size(1),
        CL_DEVICE_BUILT_IN_KERNELS => Info::text(&built_in_kernels().join(";")),
        CL_DEVICE_PRINTF_BUFFER_SIZE => Info::size(1 << 20),
        CL_DEVICE_PARENT_DEVICE => Info::handle(std::ptr::null_mut::<c_void>()),
        CL_DEVICE_PARTITION_MAX_SUB_DEVICES => Info::uint(0),
        CL_DEVICE_PARTITION_PROPERTIES => Info::ulongs(&[0]),
        CL_DEVICE_PARTITION_TYPE => Info::ulongs(&[]),
        CL_DEVICE_PARTITION_AFFINITY_DOMAIN => Info::ulong(0),
        CL_DEVICE_REFERENCE_COUNT => Info::uint(1),
        UUID if settings.vendor_id == nvml::VENDOR_NVIDIA => Info::bytes(nvml::uuid(device.index)),
        _ => return None,
    })
}

fn compute(device: &Object<Device>, name: cl_device_info) -> Option<Info> {
    let settings = &device.settings;
    let doubles = cl_uint::from(settings.fp64);
    let single = CL_FP_INF_NAN | CL_FP_ROUND_TO_NEAREST | CL_FP_FMA;
    let double = single | CL_FP_DENORM | CL_FP_ROUND_TO_ZERO | CL_FP_ROUND_TO_INF;
    Some(match name {
        CL_DEVICE_MAX_COMPUTE_UNITS => Info::uint(settings.compute_units),
        CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS => Info::uint(3),
        CL_DEVICE_MAX_WORK_GROUP_SIZE => Info::size(MAX_GROUP),
        CL_DEVICE_MAX_WORK_ITEM_SIZES => Info::sizes(MAX_GROUP_SIZES),
        CL_DEVICE_MAX_CLOCK_FREQUENCY => Info::uint(1000),
        CL_DEVICE_ADDRESS_BITS => Info::uint(64),
        CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR | CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR => {
            Info::uint(16)
        }
        CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT | CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT => {
            Info::uint(8)
        }
        CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_INT
        | CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT
        | CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT => Info::uint(4),
        CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG | CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG => Info::uint(2),
        CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE | CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE => {
            Info::uint(2 * doubles)
        }
        CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF | CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF => Info::uint(0),
        CL_DEVICE_SINGLE_FP_CONFIG => Info::ulong(single),
        CL_DEVICE_DOUBLE_FP_CONFIG => Info::ulong(if settings.fp64 { double } else { 0 }),
        _ => return None,
    })
}

fn memory(device: &Object<Device>, name: cl_device_info) -> Option<Info> {
    let settings = &device.settings;
    Some(match name {
        CL_DEVICE_MAX_MEM_ALLOC_SIZE => Info::ulong(device.max_allocation()),
        CL_DEVICE_GLOBAL_MEM_SIZE => Info::ulong(settings.memory),
        CL_DEVICE_GLOBAL_MEM_CACHE_TYPE => Info::uint(CL_READ_WRITE_CACHE),
        CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE => Info::uint(64),
        CL_DEVICE_GLOBAL_MEM_CACHE_SIZE => Info::ulong(1 << 20),
        CL_DEVICE_MAX_PARAMETER_SIZE => Info::size(MAX_ARGUMENTS),
        CL_DEVICE_MEM_BASE_ADDR_ALIGN => Info::uint(8 * BASE_ALIGNMENT as cl_uint),
        CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE => Info::uint(BASE_ALIGNMENT as cl_uint),
        CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE => Info::ulong(64 << 10),
        CL_DEVICE_MAX_CONSTANT_ARGS => Info::uint(8),
        CL_DEVICE_LOCAL_MEM_TYPE => Info::uint(CL_LOCAL),
        CL_DEVICE_LOCAL_MEM_SIZE => Info::ulong(LOCAL_MEMORY),
        CL_DEVICE_HOST_UNIFIED_MEMORY => Info::bool(settings.unified_memory),
        _ => return None,
    })
}

fn images(device: &Object<Device>, name: cl_device_info) -> Option<Info> {
    let images = device.settings.images;
    let if_images = |value: usize| if images { value } else { 0 };
    Some(match name {
        CL_DEVICE_IMAGE_SUPPORT => Info::bool(images),
        CL_DEVICE_MAX_READ_IMAGE_ARGS => Info::uint(if_images(128) as cl_uint),
        CL_DEVICE_MAX_WRITE_IMAGE_ARGS => Info::uint(if_images(64) as cl_uint),
        CL_DEVICE_IMAGE2D_MAX_WIDTH | CL_DEVICE_IMAGE2D_MAX_HEIGHT => Info::size(if_images(16384)),
        CL_DEVICE_IMAGE3D_MAX_WIDTH
        | CL_DEVICE_IMAGE3D_MAX_HEIGHT
        | CL_DEVICE_IMAGE3D_MAX_DEPTH
        | CL_DEVICE_IMAGE_MAX_ARRAY_SIZE => Info::size(if_images(2048)),
        CL_DEVICE_IMAGE_MAX_BUFFER_SIZE => Info::size(if_images(65536)),
        CL_DEVICE_MAX_SAMPLERS => Info::uint(if_images(16) as cl_uint),
        _ => return None,
    })
}

/// Returns the device's bus address, which is different for each device.
fn bus(device: &Object<Device>, name: cl_device_info) -> Option<Info> {
    const CL_DEVICE_PCI_BUS_ID_NV: cl_device_info = 0x4008;
    const BUS: u8 = 0x18;
    let own = device.index as u8;
    match name {
        CL_DEVICE_PCI_BUS_INFO_KHR if device.has_extension("cl_khr_pci_bus_info") => {
            Some(Info::bytes([
                0, 0, 0, 0, BUS, 0, 0, 0, own, 0, 0, 0, 0, 0, 0, 0,
            ]))
        }
        CL_DEVICE_PCI_BUS_ID_NV if device.has_extension("cl_nv_device_attribute_query") => {
            Some(Info::uint(u32::from(BUS)))
        }
        _ => None,
    }
}

fn since_2_0(device: &Object<Device>, name: cl_device_info) -> Option<Info> {
    let settings = &device.settings;
    let if_queues = |value: cl_uint| if settings.device_queues > 0 { value } else { 0 };
    let if_pipes = |value: cl_uint| if settings.pipes { value } else { 0 };
    Some(match name {
        CL_DEVICE_IL_VERSION => Info::text(if device.settings.il { "SPIR-V_1.0" } else { "" }),
        CL_DEVICE_SVM_CAPABILITIES => Info::ulong(0),
        CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES => Info::ulong(device.on_device_properties()),
        CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE => {
            Info::uint(if_queues(on_device::PREFERRED_SIZE))
        }
        CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE => Info::uint(if_queues(on_device::MAX_SIZE)),
        CL_DEVICE_MAX_ON_DEVICE_QUEUES => Info::uint(settings.device_queues),
        CL_DEVICE_MAX_ON_DEVICE_EVENTS => Info::uint(if_queues(on_device::MAX_EVENTS)),
        CL_DEVICE_MAX_PIPE_ARGS => Info::uint(if_pipes(pipe::MAX_ARGUMENTS)),
        CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS => Info::uint(if_pipes(1)),
        CL_DEVICE_PIPE_MAX_PACKET_SIZE => Info::uint(if_pipes(pipe::MAX_PACKET as cl_uint)),
        CL_DEVICE_IMAGE_PITCH_ALIGNMENT
        | CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT
        | CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS
        | CL_DEVICE_PREFERRED_PLATFORM_ATOMIC_ALIGNMENT
        | CL_DEVICE_PREFERRED_GLOBAL_ATOMIC_ALIGNMENT
        | CL_DEVICE_PREFERRED_LOCAL_ATOMIC_ALIGNMENT => Info::uint(0),
        CL_DEVICE_MAX_NUM_SUB_GROUPS => Info::uint(device.settings.sub_groups),
        CL_DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS => Info::bool(false),
        CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE | CL_DEVICE_GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE => {
            Info::size(0)
        }
        _ => return None,
    })
}

fn since_3_0(device: &Object<Device>, name: cl_device_info) -> Option<Info> {
    let atomics = CL_DEVICE_ATOMIC_ORDER_RELAXED | CL_DEVICE_ATOMIC_SCOPE_WORK_GROUP;
    let languages = [(1, 0), (1, 1), (1, 2), (3, 0)];
    let kernels = built_in_kernels();
    let has_queues = device.settings.device_queues > 0;
    Some(match name {
        CL_DEVICE_NUMERIC_VERSION => {
            let own = device.settings.version;
            Info::uint(version(own.major, own.minor))
        }
        CL_DEVICE_EXTENSIONS_WITH_VERSION => Info::named_versions(extensions(device)),
        CL_DEVICE_ILS_WITH_VERSION => {
            let ils = device.settings.il.then_some(("SPIR-V", version(1, 0)));
            Info::named_versions(ils)
        }
        CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION => {
            Info::named_versions(kernels.iter().map(|name| (name.as_str(), version(1, 0))))
        }
        CL_DEVICE_OPENCL_C_ALL_VERSIONS => {
            let versions = languages.map(|(major, minor)| ("OpenCL C", version(major, minor)));
            Info::named_versions(versions)
        }
        CL_DEVICE_OPENCL_C_FEATURES => {
            let has = [
                ("__opencl_c_fp64", device.settings.fp64),
                ("__opencl_c_pipes", device.settings.pipes),
                ("__opencl_c_device_enqueue", has_queues),
            ];
            let has = has.iter().filter(|(_, has)| *has);
            Info::named_versions(has.map(|(name, _)| (*name, version(3, 0))))
        }
        CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES => Info::ulong(atomics),
        CL_DEVICE_ATOMIC_FENCE_CAPABILITIES => {
            Info::ulong(atomics | CL_DEVICE_ATOMIC_ORDER_ACQ_REL)
        }
        CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES => Info::ulong(if has_queues {
            CL_DEVICE_QUEUE_SUPPORTED | CL_DEVICE_QUEUE_REPLACEABLE_DEFAULT
        } else {
            0
        }),
        CL_DEVICE_PIPE_SUPPORT => Info::bool(device.settings.pipes),
        CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT
        | CL_DEVICE_WORK_GROUP_COLLECTIVE_FUNCTIONS_SUPPORT
        | CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT => Info::bool(false),
        CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE => Info::size(32),
        CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED => Info::text(""),
        _ => return None,
    })
}
