//! Signatures of kernels, found with scratch kernels after a build.
//!
//! The client checks arguments without a round trip, so it must know each argument's kind and size. The
//! driver's argument info, where available, gives kinds and type names. No query gives sizes; they are
//! found by trial. To set an argument of zeros fails with a wrong size and succeeds with the right one. A
//! size counts as found only if another size fails. With a driver that checks nothing, the size is that
//! of a known type, or 0 for unknown.
#![forbid(unsafe_code)]

use crate::runtime::names::{
    CL_KERNEL_ARG_ACCESS_QUALIFIER, CL_KERNEL_ARG_ADDRESS_CONSTANT, CL_KERNEL_ARG_ADDRESS_GLOBAL,
    CL_KERNEL_ARG_ADDRESS_LOCAL, CL_KERNEL_ARG_ADDRESS_PRIVATE, CL_KERNEL_ARG_ADDRESS_QUALIFIER,
    CL_KERNEL_ARG_NAME, CL_KERNEL_ARG_TYPE_NAME, CL_KERNEL_ARG_TYPE_PIPE,
    CL_KERNEL_ARG_TYPE_QUALIFIER, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, CL_KERNEL_LOCAL_MEM_SIZE,
    CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, CL_KERNEL_PRIVATE_MEM_SIZE,
    CL_KERNEL_WORK_GROUP_SIZE,
};
use causeway_proto::command::{ArgKind, ArgSignature, KernelOnDevice, KernelSignature};
use causeway_proto::id::DeviceIndex;
use causeway_proto::status::Status;

use crate::runtime::kernel::Kernel;
use crate::runtime::node::Device;

/// The largest argument by value. NVIDIA's parameter space has 32,764 bytes in all.
const MAX_VALUE: usize = 32_764;
const POINTER: usize = 8;

/// Returns the signature of `kernel`, with its properties on the devices that it was built for.
///
/// # Errors
/// The driver's error for the first queries.
pub(crate) fn of(
    mut kernel: Kernel,
    devices: &[(DeviceIndex, Device)],
) -> Result<KernelSignature, Status> {
    let name = kernel.name()?;
    let attributes = kernel.attributes();
    let args = (0..kernel.arguments()?)
        .map(|index| argument(&mut kernel, index))
        .collect();
    let devices = devices
        .iter()
        .map(|(index, device)| on_device(&kernel, *index, *device))
        .filter(|on| on.work_group_size > 0)
        .collect();
    Ok(KernelSignature {
        name,
        attributes,
        args,
        devices,
    })
}

fn on_device(kernel: &Kernel, index: DeviceIndex, device: Device) -> KernelOnDevice {
    let number = |name| kernel.work_group_number(device, name);
    KernelOnDevice {
        device: index.0,
        work_group_size: number(CL_KERNEL_WORK_GROUP_SIZE),
        compile_work_group_size: kernel.work_group_sizes(device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE),
        local_mem_size: number(CL_KERNEL_LOCAL_MEM_SIZE),
        preferred_work_group_size_multiple: number(CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE),
        private_mem_size: number(CL_KERNEL_PRIVATE_MEM_SIZE),
    }
}

fn argument(kernel: &mut Kernel, index: u32) -> ArgSignature {
    if !kernel.is_askable() {
        // Trials would corrupt this driver's memory as well. The kind remains unknown until an argument is set.
        return ArgSignature::default();
    }
    let mut found = described(kernel, index).unwrap_or_default();
    if !found.has_info {
        found.kind = tried_kind(kernel, index).into();
    }
    if found.kind == i32::from(ArgKind::Value) {
        let known = size_of_type(&found.type_name);
        found.size = tried_size(kernel, index, known).unwrap_or(0) as u32;
    }
    found
}

/// Returns what the driver's argument info gives.
fn described(kernel: &Kernel, index: u32) -> Result<ArgSignature, Status> {
    let address = kernel.argument_number(index, CL_KERNEL_ARG_ADDRESS_QUALIFIER)? as u32;
    let qualifiers = kernel.argument_number(index, CL_KERNEL_ARG_TYPE_QUALIFIER)?;
    let type_name = kernel.argument_text(index, CL_KERNEL_ARG_TYPE_NAME)?;
    Ok(ArgSignature {
        kind: kind_of(address, qualifiers, &type_name).into(),
        size: 0,
        address_qualifier: address,
        access_qualifier: kernel.argument_number(index, CL_KERNEL_ARG_ACCESS_QUALIFIER)? as u32,
        type_qualifier: qualifiers,
        name: kernel.argument_text(index, CL_KERNEL_ARG_NAME)?,
        type_name,
        has_info: true,
    })
}

fn kind_of(address: u32, qualifiers: u64, type_name: &str) -> ArgKind {
    let pointer = type_name.ends_with('*');
    if qualifiers & u64::from(CL_KERNEL_ARG_TYPE_PIPE) != 0 {
        return ArgKind::Pipe;
    }
    match type_name {
        "sampler_t" => return ArgKind::Sampler,
        "queue_t" => return ArgKind::Queue,
        _ => {}
    }
    let image = ["image1d_", "image2d_", "image3d_"];
    if image.iter().any(|prefix| type_name.starts_with(prefix)) {
        return ArgKind::Image;
    }
    match address {
        CL_KERNEL_ARG_ADDRESS_LOCAL => ArgKind::Local,
        CL_KERNEL_ARG_ADDRESS_GLOBAL | CL_KERNEL_ARG_ADDRESS_CONSTANT => ArgKind::Memory,
        CL_KERNEL_ARG_ADDRESS_PRIVATE if !pointer => ArgKind::Value,
        _ => ArgKind::Memory,
    }
}

/// Finds the kind of an argument for which the driver gives no info.
fn tried_kind(kernel: &mut Kernel, index: u32) -> ArgKind {
    // A null value with a size that no handle has is valid only for local memory.
    if kernel.set_local(index, 48).is_ok() {
        return ArgKind::Local;
    }
    // A null value with the size of a handle is a null buffer, and invalid for a value.
    if kernel.set_buffer(index, None).is_ok() {
        return ArgKind::Memory;
    }
    ArgKind::Value
}

/// Finds the size of a value by trial. `known` is the size that its type name suggests.
fn tried_size(kernel: &mut Kernel, index: u32, known: Option<usize>) -> Option<usize> {
    let zeros = [0u8; MAX_VALUE + 1];
    let mut fits = |size: usize| kernel.set_value(index, &zeros[..size]).is_ok();
    if let Some(known) = known
        && fits(known)
    {
        return Some(known);
    }
    searched(fits)
}

/// Finds the one size that fits. Some drivers also accept every smaller or every larger size (PoCL
/// accepts larger ones for structures); then returns the last size before the change. `None` if a driver
/// accepts everything or nothing.
fn searched(mut fits: impl FnMut(usize) -> bool) -> Option<usize> {
    let likely = [4, POINTER, 16, 1, 2, 12, 24, 32, 64];
    let all = (1..=256).chain((260..=MAX_VALUE).step_by(4));
    let found = likely.into_iter().chain(all).find(|size| fits(*size))?;
    if !fits(found + 1) {
        return Some(found);
    }
    // Never try 0: PoCL crashes on it.
    match (fits(1), fits(MAX_VALUE + 1)) {
        (false, true) => Some(border(1, found, |size| !fits(size)) + 1),
        (_, false) => Some(border(found, MAX_VALUE + 1, fits)),
        (true, true) => None,
    }
}

/// Binary search: the last value from `low` on for which `below` holds. `below` must hold for
/// `low` and not for `high`.
fn border(mut low: usize, mut high: usize, mut below: impl FnMut(usize) -> bool) -> usize {
    while high - low > 1 {
        let middle = low.midpoint(high);
        if below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The size of OpenCL C's own scalar and vector types, by name.
fn size_of_type(name: &str) -> Option<usize> {
    let name = name.trim();
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let lanes = match &name[base.len()..] {
        "" => 1,
        "2" => 2,
        "3" | "4" => 4,
        "8" => 8,
        "16" => 16,
        _ => return None,
    };
    let size = match base {
        "char" | "uchar" | "unsigned char" | "signed char" => 1,
        "short" | "ushort" | "unsigned short" | "half" => 2,
        "int" | "uint" | "unsigned int" | "float" => 4,
        "long" | "ulong" | "unsigned long" | "double" => 8,
        _ => return None,
    };
    Some(size * lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_their_sizes() {
        assert_eq!(size_of_type("float"), Some(4));
        assert_eq!(size_of_type("float3"), Some(16));
        assert_eq!(size_of_type("uchar16"), Some(16));
        assert_eq!(size_of_type("unsigned int"), Some(4));
        assert_eq!(size_of_type("struct params"), None);
        assert_eq!(size_of_type("float5"), None);
    }

    #[test]
    fn a_size_is_found_with_strict_and_with_lenient_drivers() {
        for real in [1, 3, 4, 17, 20, 24, 100, 256, 260, 1000, MAX_VALUE] {
            assert_eq!(searched(|size| size == real), Some(real));
            assert_eq!(searched(|size| size <= real), Some(real));
            assert_eq!(searched(|size| size >= real), (real > 1).then_some(real));
        }
        assert_eq!(searched(|_| true), None);
        assert_eq!(searched(|_| false), None);
    }

    #[test]
    fn kinds_follow_from_the_drivers_words() {
        let kind = |address, name| kind_of(address, 0, name);
        assert_eq!(
            kind(CL_KERNEL_ARG_ADDRESS_GLOBAL, "float*"),
            ArgKind::Memory
        );
        assert_eq!(
            kind(CL_KERNEL_ARG_ADDRESS_CONSTANT, "int*"),
            ArgKind::Memory
        );
        assert_eq!(kind(CL_KERNEL_ARG_ADDRESS_LOCAL, "float*"), ArgKind::Local);
        assert_eq!(
            kind(CL_KERNEL_ARG_ADDRESS_PRIVATE, "float4"),
            ArgKind::Value
        );
        assert_eq!(
            kind(CL_KERNEL_ARG_ADDRESS_PRIVATE, "sampler_t"),
            ArgKind::Sampler
        );
        assert_eq!(
            kind(CL_KERNEL_ARG_ADDRESS_GLOBAL, "image2d_t"),
            ArgKind::Image
        );
    }
}
