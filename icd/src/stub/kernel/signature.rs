//! What the client knows of a kernel function since the build: arguments, attributes, and its limits on
//! each device.
//!
//! The worker establishes it when it builds (by queries, and by trial calls for what no query tells).
//! All argument checks and most kernel queries are answered from it. Invariant: a signature does not
//! change; a new build makes new ones.

use causeway_proto::command::{ArgKind, ArgSignature, KernelOnDevice, KernelSignature};
use causeway_proto::id::DeviceIndex;

/// A kernel function.
#[derive(Clone, Debug)]
pub struct Signature {
    /// `CL_KERNEL_FUNCTION_NAME`.
    pub name: String,
    /// `CL_KERNEL_ATTRIBUTES`.
    pub attributes: String,
    /// Its arguments.
    pub args: Vec<Arg>,
    /// The devices that have it.
    pub devices: Vec<OnDevice>,
    /// Devices disagree about its arguments: `CL_INVALID_KERNEL_DEFINITION`.
    pub conflicting: bool,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arg {
    /// What may be set.
    pub kind: ArgKind,
    /// Bytes of a value; 0 when not known, then the node judges.
    pub size: usize,
    /// What `clGetKernelArgInfo` answers, if anything.
    pub info: Option<ArgInfo>,
}

/// `clGetKernelArgInfo`.
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

/// The kernel on one device: `clGetKernelWorkGroupInfo`.
#[derive(Clone, Debug)]
pub struct OnDevice {
    /// Which.
    pub device: DeviceIndex,
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
    /// From the wire; without argument info unless the application may see it.
    #[must_use]
    pub fn new(wire: KernelSignature, show_info: bool) -> Signature {
        Signature {
            name: wire.name,
            attributes: wire.attributes,
            args: wire
                .args
                .into_iter()
                .map(|arg| Arg::new(arg, show_info))
                .collect(),
            devices: wire.devices.iter().map(OnDevice::new).collect(),
            conflicting: false,
        }
    }

    /// The kernel on one device, if it was built for it.
    #[must_use]
    pub fn on_device(&self, device: DeviceIndex) -> Option<&OnDevice> {
        self.devices.iter().find(|on| on.device == device)
    }

    /// Takes over what an earlier build said of devices that the present one did not build for.
    pub fn keep_from(&mut self, earlier: &Signature, rebuilt: impl Fn(DeviceIndex) -> bool) {
        for on in &earlier.devices {
            if !rebuilt(on.device) && self.on_device(on.device).is_none() {
                self.devices.push(on.clone());
                self.conflicting |= !same_kinds(&self.args, &earlier.args);
            }
        }
    }
}

fn same_kinds(one: &[Arg], other: &[Arg]) -> bool {
    let kinds = |args: &[Arg]| {
        args.iter()
            .map(|arg| (arg.kind, arg.size))
            .collect::<Vec<_>>()
    };
    kinds(one) == kinds(other)
}

impl Arg {
    fn new(wire: ArgSignature, show_info: bool) -> Arg {
        Arg {
            kind: wire.kind(),
            size: wire.size as usize,
            info: (wire.has_info && show_info).then_some(ArgInfo {
                address_qualifier: wire.address_qualifier,
                access_qualifier: wire.access_qualifier,
                type_qualifier: wire.type_qualifier,
                type_name: wire.type_name,
                name: wire.name,
            }),
        }
    }
}

impl OnDevice {
    fn new(wire: &KernelOnDevice) -> OnDevice {
        let compile = &wire.compile_work_group_size;
        OnDevice {
            device: DeviceIndex(wire.device),
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
    use super::*;

    fn signature(device: u32, sizes: &[u32]) -> Signature {
        let arg = |&size: &u32| ArgSignature {
            kind: ArgKind::Value.into(),
            size,
            has_info: true,
            name: "n".into(),
            ..ArgSignature::default()
        };
        let wire = KernelSignature {
            name: "k".into(),
            args: sizes.iter().map(arg).collect(),
            devices: vec![KernelOnDevice {
                device,
                compile_work_group_size: vec![4, 2],
                ..KernelOnDevice::default()
            }],
            ..KernelSignature::default()
        };
        Signature::new(wire, false)
    }

    #[test]
    fn argument_info_is_hidden_unless_asked_for_and_short_lists_are_filled() {
        let one = signature(0, &[4]);
        assert_eq!(one.args[0].info, None);
        assert_eq!(one.devices[0].compile_work_group_size, [4, 2, 0]);
    }

    #[test]
    fn devices_of_earlier_builds_stay_and_differences_are_noticed() {
        let mut new = signature(1, &[4]);
        new.keep_from(&signature(0, &[4]), |device| device.0 == 1);
        assert!(new.on_device(DeviceIndex(0)).is_some() && !new.conflicting);
        let mut other = signature(1, &[8]);
        other.keep_from(&signature(0, &[4]), |device| device.0 == 1);
        assert!(other.conflicting);
        let mut again = signature(1, &[8]);
        again.keep_from(&signature(0, &[4]), |_| true);
        assert!(again.on_device(DeviceIndex(0)).is_none() && !again.conflicting);
    }
}
