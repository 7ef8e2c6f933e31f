//! The facts about a kernel function that the client knows since the build: arguments, attributes, and
//! limits for each device.
//!
//! The worker determines it at build time, by queries and, where a driver offers none, by trial calls. All
//! argument checks and most kernel queries use it. What several sites, or several builds on one site,
//! report about a function is merged into one signature ([`united`]). Invariant: a signature never changes;
//! a new build makes new ones.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use causeway_proto::command::{ArgKind, ArgSignature, KernelOnDevice, KernelSignature};
use causeway_proto::id::DeviceIndex;
use cl_headers::types::{
    CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE1D_BUFFER,
    CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_MEM_OBJECT_IMAGE3D,
};
use rustc_hash::FxHasher;

use crate::stub::Device;

/// A kernel function.
#[derive(Clone, Debug)]
pub struct Signature {
    /// `CL_KERNEL_FUNCTION_NAME`.
    pub name: String,
    /// `CL_KERNEL_ATTRIBUTES`.
    pub attributes: String,
    /// The arguments of the function.
    pub args: Vec<Arg>,
    /// The devices that the function was built for.
    pub devices: Vec<OnDevice>,
    /// Whether devices disagree about the arguments, so that creating a kernel fails with
    /// `CL_INVALID_KERNEL_DEFINITION`.
    pub conflicting: bool,
}

/// An argument of a kernel function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arg {
    /// The kind of value that the argument takes.
    pub kind: ArgKind,
    /// Size of a value in bytes; 0 if unknown, and then the node checks it.
    pub size: usize,
    /// How the argument was declared; `None` if some node does not report that.
    pub declared: Option<Declared>,
    /// The answers of `clGetKernelArgInfo`, if there are any.
    pub info: Option<ArgInfo>,
}

/// How an argument was declared. This determines what a launch may do with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    /// `CL_KERNEL_ARG_ADDRESS_QUALIFIER`.
    pub address_qualifier: u32,
    /// `CL_KERNEL_ARG_ACCESS_QUALIFIER`.
    pub access_qualifier: u32,
    /// `CL_KERNEL_ARG_TYPE_QUALIFIER`: the bits that all nodes report.
    pub type_qualifier: u64,
    /// `CL_MEM_OBJECT_IMAGE*` of an image argument, derived from the type's name.
    pub image_type: Option<u32>,
}

/// Returns the image type that an argument of this type takes; `None` if the type is no image.
fn image_type(type_name: &str) -> Option<u32> {
    let names = [
        ("image1d_buffer_", CL_MEM_OBJECT_IMAGE1D_BUFFER),
        ("image1d_array_", CL_MEM_OBJECT_IMAGE1D_ARRAY),
        ("image1d_", CL_MEM_OBJECT_IMAGE1D),
        ("image2d_array_", CL_MEM_OBJECT_IMAGE2D_ARRAY),
        ("image2d_", CL_MEM_OBJECT_IMAGE2D),
        ("image3d_", CL_MEM_OBJECT_IMAGE3D),
    ];
    let named = names.iter().find(|(name, _)| type_name.contains(name));
    named.map(|(_, image)| *image)
}

/// The answers of `clGetKernelArgInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgInfo {
    /// `CL_KERNEL_ARG_ADDRESS_QUALIFIER`.
    pub address_qualifier: u32,
    /// `CL_KERNEL_ARG_ACCESS_QUALIFIER`.
    pub access_qualifier: u32,
    /// `CL_KERNEL_ARG_TYPE_QUALIFIER`.
    pub type_qualifier: u64,
    /// `CL_KERNEL_ARG_TYPE_NAME`.
    pub type_name: String,
    /// `CL_KERNEL_ARG_NAME`.
    pub name: String,
}

/// The kernel on one device: the answers of `clGetKernelWorkGroupInfo`.
#[derive(Clone, Debug)]
pub struct OnDevice {
    /// The device.
    pub device: Arc<Device>,
    /// Whether the function was built for the device's parent, not for the device itself.
    pub is_inherited: bool,
    /// `CL_KERNEL_WORK_GROUP_SIZE`.
    pub work_group_size: u64,
    /// `CL_KERNEL_COMPILE_WORK_GROUP_SIZE`; zeros for none.
    pub compile_work_group_size: [u64; 3],
    /// `CL_KERNEL_LOCAL_MEM_SIZE` without local arguments, bytes.
    pub local_mem_size: u64,
    /// `CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE`.
    pub preferred_work_group_size_multiple: u64,
    /// `CL_KERNEL_PRIVATE_MEM_SIZE`, bytes.
    pub private_mem_size: u64,
}

impl Signature {
    /// Decodes a signature from the wire. `show_info` says whether the application may see argument info.
    /// `device` looks up the program's devices on the reporting site; unknown devices are dropped.
    #[must_use]
    pub fn new(
        wire: KernelSignature,
        show_info: bool,
        device: impl Fn(DeviceIndex) -> Option<Arc<Device>>,
    ) -> Signature {
        let on_device = |on: &KernelOnDevice| {
            device(DeviceIndex(on.device)).map(|device| OnDevice::new(device, on))
        };
        Signature {
            name: wire.name,
            attributes: wire.attributes,
            args: wire
                .args
                .into_iter()
                .map(|arg| Arg::new(arg, show_info))
                .collect(),
            devices: wire.devices.iter().filter_map(on_device).collect(),
            conflicting: false,
        }
    }

    /// Returns the kernel on one device, if the kernel was built for it.
    #[must_use]
    pub fn on_device(&self, device: &Device) -> Option<&OnDevice> {
        self.devices
            .iter()
            .find(|on| std::ptr::eq(&*on.device, device))
    }

    /// Returns the signature without the devices that `rebuilt` names; `None` if no device is left.
    #[must_use]
    pub fn without(self: &Arc<Self>, rebuilt: impl Fn(&Device) -> bool) -> Option<Arc<Signature>> {
        let stays = |on: &&OnDevice| !rebuilt(&on.device);
        match self.devices.iter().filter(stays).count() {
            0 => None,
            all if all == self.devices.len() => Some(self.clone()),
            _ => Some(Arc::new(Signature {
                devices: self.devices.iter().filter(stays).cloned().collect(),
                ..Signature::clone(self)
            })),
        }
    }
}

/// Merges what was reported about a program's functions: one signature for each name, in the order of the
/// first reports.
#[must_use]
pub fn united<'a>(told: impl Iterator<Item = &'a Arc<Signature>>) -> Vec<Arc<Signature>> {
    let mut groups: Vec<Vec<&Arc<Signature>>> = Vec::new();
    let mut places: HashMap<&str, usize, BuildHasherDefault<FxHasher>> = HashMap::default();
    for signature in told {
        let place = *places.entry(&signature.name).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(signature);
    }
    let united = groups.iter().map(|group| unite(group[0], &group[1..]));
    united.collect()
}

fn unite(first: &Arc<Signature>, others: &[&Arc<Signature>]) -> Arc<Signature> {
    if others.is_empty() {
        return Arc::clone(first);
    }
    let mut all = Signature::clone(first);
    // `joined` below may fill in unknown parts, so the reports are compared with each other, not with the
    // merged one.
    for (place, other) in others.iter().enumerate() {
        all.conflicting |= !agree(first, other);
        all.conflicting |= others[..place].iter().any(|one| !agree(one, other));
        let args = all.args.into_iter().zip(&other.args);
        all.args = args.map(|(one, other)| one.joined(other)).collect();
        all.devices.extend(other.devices.iter().cloned());
        if all.attributes.is_empty() {
            all.attributes.clone_from(&other.attributes);
        }
    }
    Arc::new(all)
}

// Ignores names, the spelling of types, and other type qualifiers, which depend on the driver.
fn agree(one: &Signature, other: &Signature) -> bool {
    one.args.len() == other.args.len()
        && one
            .args
            .iter()
            .zip(&other.args)
            .all(|(one, other)| one.agrees(other))
}

impl Arg {
    fn new(wire: ArgSignature, show_info: bool) -> Arg {
        Arg {
            kind: wire.kind(),
            size: wire.size as usize,
            declared: wire.has_info.then_some(Declared {
                address_qualifier: wire.address_qualifier,
                access_qualifier: wire.access_qualifier,
                type_qualifier: wire.type_qualifier,
                image_type: image_type(&wire.type_name),
            }),
            info: (wire.has_info && show_info).then_some(ArgInfo {
                address_qualifier: wire.address_qualifier,
                access_qualifier: wire.access_qualifier,
                type_qualifier: wire.type_qualifier,
                type_name: wire.type_name,
                name: wire.name,
            }),
        }
    }

    // If a driver reports nothing, the kind was found by trial calls, which cannot tell an image from a
    // buffer, for example. Such a kind contradicts no other.
    fn agrees(&self, other: &Arg) -> bool {
        let sizes = self.kind != ArgKind::Value
            || other.kind != ArgKind::Value
            || [self.size, other.size].contains(&0)
            || self.size == other.size;
        let declared = match (&self.declared, &other.declared) {
            (Some(one), Some(another)) => {
                self.kind == other.kind
                    && one.address_qualifier == another.address_qualifier
                    && one.access_qualifier == another.access_qualifier
            }
            _ => true,
        };
        sizes && declared
    }

    // Merges this argument with another report about it.
    fn joined(self, other: &Arg) -> Arg {
        let knows_less = match self.kind {
            ArgKind::Unspecified => true,
            _ => self.declared.is_none() && other.declared.is_some(),
        };
        let kind = if knows_less { other.kind } else { self.kind };
        let size_of = |arg: &Arg| if arg.kind == kind { arg.size } else { 0 };
        let both = self.declared.zip(other.declared);
        Arg {
            kind,
            size: match size_of(&self) {
                0 => size_of(other),
                known => known,
            },
            declared: both.map(|(one, another)| Declared {
                type_qualifier: one.type_qualifier & another.type_qualifier,
                ..one
            }),
            info: self.info.or_else(|| other.info.clone()),
        }
    }
}

impl OnDevice {
    /// Returns the entry for a sub-device, which uses the same build.
    #[must_use]
    pub fn for_part(&self, part: &Arc<Device>) -> OnDevice {
        OnDevice {
            device: Arc::clone(part),
            is_inherited: true,
            ..self.clone()
        }
    }

    fn new(device: Arc<Device>, wire: &KernelOnDevice) -> OnDevice {
        let compile = &wire.compile_work_group_size;
        OnDevice {
            device,
            is_inherited: false,
            work_group_size: wire.work_group_size,
            compile_work_group_size: std::array::from_fn(|i| compile.get(i).copied().unwrap_or(0)),
            local_mem_size: wire.local_mem_size,
            preferred_work_group_size_multiple: wire.preferred_work_group_size_multiple,
            private_mem_size: wire.private_mem_size,
        }
    }
}

#[cfg(test)]
mod tests {
    use cl_headers::types::{
        CL_KERNEL_ARG_ADDRESS_CONSTANT, CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_TYPE_CONST,
        CL_KERNEL_ARG_TYPE_RESTRICT,
    };

    use super::*;

    fn value(size: u32) -> ArgSignature {
        ArgSignature {
            kind: ArgKind::Value.into(),
            size,
            has_info: true,
            name: "n".into(),
            ..ArgSignature::default()
        }
    }

    fn pointer(address_qualifier: u32, type_qualifier: u64) -> ArgSignature {
        ArgSignature {
            kind: ArgKind::Memory.into(),
            address_qualifier,
            type_qualifier,
            has_info: true,
            ..ArgSignature::default()
        }
    }

    // As reported for a driver that answers no queries about arguments.
    fn tried(kind: ArgKind, size: u32) -> ArgSignature {
        ArgSignature {
            kind: kind.into(),
            size,
            ..ArgSignature::default()
        }
    }

    fn signature(name: &str, args: &[ArgSignature]) -> Arc<Signature> {
        let wire = KernelSignature {
            name: name.into(),
            args: args.to_vec(),
            ..KernelSignature::default()
        };
        Arc::new(Signature::new(wire, false, |_| None))
    }

    fn one_of(told: &[&[ArgSignature]]) -> Arc<Signature> {
        let told: Vec<_> = told.iter().map(|args| signature("k", args)).collect();
        let [one] = &united(told.iter())[..] else {
            panic!("one name, one signature")
        };
        one.clone()
    }

    #[test]
    fn argument_info_is_hidden_unless_asked_for_but_how_it_was_declared_is_known() {
        let one = signature("k", &[value(4)]);
        assert_eq!(one.args[0].info, None);
        assert!(one.args[0].declared.is_some());
    }

    #[test]
    fn the_types_names_tell_images_apart() {
        let of = |name: &str| {
            let wire = ArgSignature {
                type_name: name.into(),
                ..value(0)
            };
            let declared = signature("k", &[wire]).args[0].declared;
            declared.and_then(|of| of.image_type)
        };
        assert_eq!(of("image2d_t"), Some(CL_MEM_OBJECT_IMAGE2D));
        assert_eq!(
            of("image2d_array_depth_t"),
            Some(CL_MEM_OBJECT_IMAGE2D_ARRAY)
        );
        assert_eq!(of("__read_only image1d_t"), Some(CL_MEM_OBJECT_IMAGE1D));
        assert_eq!(of("image1d_buffer_t"), Some(CL_MEM_OBJECT_IMAGE1D_BUFFER));
        assert_eq!(of("float4"), None);
    }

    #[test]
    fn names_are_united_in_the_order_in_which_they_were_told() {
        let told = [("b", 4), ("a", 4), ("c", 4), ("b", 8)];
        let told: Vec<_> = told
            .iter()
            .map(|(name, size)| signature(name, &[value(*size)]))
            .collect();
        let all = united(told.iter());
        let names: Vec<_> = all
            .iter()
            .map(|of| (&of.name[..], of.conflicting))
            .collect();
        assert_eq!(names, [("b", true), ("a", false), ("c", false)]);
        assert!(
            Arc::ptr_eq(&all[1], &told[1]),
            "a single report is taken unchanged"
        );
    }

    #[test]
    fn numbers_sizes_kinds_and_address_spaces_are_compared() {
        const GLOBAL: u32 = CL_KERNEL_ARG_ADDRESS_GLOBAL;
        let differ = |one: &[ArgSignature], other: &[ArgSignature]| {
            let (there, back) = (one_of(&[one, other]), one_of(&[other, one]));
            assert_eq!(there.conflicting, back.conflicting);
            there.conflicting
        };
        assert!(differ(&[value(4)], &[value(8)]));
        assert!(differ(&[value(4)], &[value(4), value(4)]));
        assert!(differ(&[value(8)], &[pointer(GLOBAL, 0)]));
        let constant = pointer(CL_KERNEL_ARG_ADDRESS_CONSTANT, 0);
        assert!(differ(&[pointer(GLOBAL, 0)], &[constant]));
        let mut renamed = value(4);
        renamed.type_name = "unsigned int".into();
        assert!(!differ(&[value(4)], &[renamed]));
        // The first and the third differ, although the second, which has no size, agrees with both.
        assert!(one_of(&[&[value(4)], &[value(0)], &[value(8)]]).conflicting);
    }

    #[test]
    fn a_node_that_tells_nothing_contradicts_nobody_and_learns() {
        let mut sampler = value(0);
        sampler.kind = ArgKind::Sampler.into();
        for order in [[0, 1], [1, 0]] {
            let told = [&[sampler.clone()][..], &[tried(ArgKind::Value, 8)]];
            let one = one_of(&order.map(|at| told[at]));
            assert!(!one.conflicting);
            assert_eq!((one.args[0].kind, one.args[0].size), (ArgKind::Sampler, 0));
            let told = [&[value(0)][..], &[tried(ArgKind::Value, 12)]];
            let one = one_of(&order.map(|at| told[at]));
            assert_eq!((one.args[0].size, one.args[0].declared), (12, None));
        }
    }

    #[test]
    fn an_argument_is_const_where_all_nodes_say_so() {
        let (constant, restrict) = (
            u64::from(CL_KERNEL_ARG_TYPE_CONST),
            u64::from(CL_KERNEL_ARG_TYPE_RESTRICT),
        );
        let pointer = |bits| [pointer(CL_KERNEL_ARG_ADDRESS_GLOBAL, bits)];
        let bits = |one: u64, other: u64| {
            let all = one_of(&[&pointer(one), &pointer(other)]);
            assert!(!all.conflicting);
            all.args[0].declared.map(|of| of.type_qualifier)
        };
        assert_eq!(bits(constant | restrict, constant), Some(constant));
        assert_eq!(bits(constant, 0), Some(0));
        let one = one_of(&[&pointer(constant), &[tried(ArgKind::Memory, 0)]]);
        assert_eq!(one.args[0].declared, None);
    }
}
