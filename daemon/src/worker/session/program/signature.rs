//! Signatures of kernels, found on scratch kernels after a build.
//!
//! The client checks arguments without asking; so it must know each argument's kind and size. The
//! driver's argument info tells kinds and type names where it is to be had; sizes no query tells.
//! They are found by trial: setting an argument of zeros with a size that is wrong fails, with the right
//! one succeeds. A size counts as found only if another one fails, so a driver that checks nothing
//! leaves a type's known size, or 0 (not known).
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

/// No argument passed by value is larger (NVIDIA's parameter space is 32,764 bytes in all).
const MAX_VALUE: usize = 32_764;
const POINTER: usize = 8;

/// What is known of `kernel` on the devices it was built for.
///
/// # Errors
/// What the driver says to the first questions.
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
        // Trials damage the driver's memory as well. What is given will tell what it is.
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

/// What the driver's argument info tells.
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

/// The kind of an argument that the driver tells nothing about.
fn tried_kind(kernel: &mut Kernel, index: u32) -> ArgKind {
    // A null value with a size that no handle has is right for local memory alone.
    if kernel.set_local(index, 48).is_ok() {
        return ArgKind::Local;
    }
    // A null value with a handle's size is a null buffer, and wrong for a value.
    if kernel.set_buffer(index, None).is_ok() {
        return ArgKind::Memory;
    }
    ArgKind::Value
}

/// The size of a value, found by trial; `known` is what its type's name says.
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

/// The one size that fits; where a driver takes every smaller or every larger one too (PoCL does the
/// latter for structures), the last of them. `None` where a driver takes everything, or nothing.
fn searched(mut fits: impl FnMut(usize) -> bool) -> Option<usize> {
    let likely = [4, POINTER, 16, 1, 2, 12, 24, 32, 64];
    let all = (1..=256).chain((260..=MAX_VALUE).step_by(4));
    let found = likely.into_iter().chain(all).find(|size| fits(*size))?;
    if !fits(found + 1) {
        return Some(found);
    }
    // Never 0: PoCL does not survive it.
    match (fits(1), fits(MAX_VALUE + 1)) {
        (false, true) => Some(border(1, found, |size| !fits(size)) + 1),
        (_, false) => Some(border(found, MAX_VALUE + 1, fits)),
        (true, true) => None,
    }
}

/// The last of those from `low` on for which `below` holds; it does for `low` and not for `high`.
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

/// The size of OpenCL C's own types by name: scalars and vectors.
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
