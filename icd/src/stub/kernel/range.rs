//! The sizes of a launch, and whether a kernel on a device accepts them.
//!
//! Pure: the input is numbers, the result a status code. Specification: `clEnqueueNDRangeKernel`.
//! Invariant: no computation here overflows, whatever the application passes.

use cl_headers::types::{
    CL_DEVICE_ADDRESS_BITS, CL_DEVICE_LOCAL_MEM_SIZE, CL_DEVICE_MAX_WORK_ITEM_SIZES,
    CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT, CL_INVALID_GLOBAL_OFFSET,
    CL_INVALID_GLOBAL_WORK_SIZE, CL_INVALID_WORK_GROUP_SIZE, CL_INVALID_WORK_ITEM_SIZE,
};

use super::signature::OnDevice;
use crate::error::{ClResult, require};
use crate::stub::Device;

/// The limits of a kernel on a device, collected once so that a launch needs no lookups.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of work-items in a group.
    pub group: u64,
    /// Maximum number of work-items in a group, for each dimension.
    pub items: [u64; 3],
    /// The group size that the source requires; zeros for none.
    pub required: [u64; 3],
    /// Maximum global size plus offset in a dimension: the largest `size_t` of the device.
    pub most: u64,
    /// Whether groups at the edges may be smaller.
    pub non_uniform: bool,
    /// Whether a launch without work-items succeeds (devices of OpenCL 2.1 and later).
    pub empty: bool,
    /// Local memory of the device, in bytes.
    pub local_mem: u64,
    /// Local memory that the kernel itself declares, in bytes.
    pub own_local_mem: u64,
    /// Required alignment of a sub-buffer's origin, in bytes.
    pub alignment: u64,
}

/// The sizes of a launch. In unused dimensions, sizes are 1 and offsets 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Number of dimensions, 1 to 3.
    pub dimensions: usize,
    /// Global sizes; zeros when the application passed NULL.
    pub global: [u64; 3],
    /// The first global ids.
    pub offset: Option<[u64; 3]>,
    /// Group sizes; `None` lets the node's driver choose.
    pub local: Option<[u64; 3]>,
}

impl Limits {
    /// Collects the limits of a kernel on `device`. `may_be_non_uniform` comes from the program's build
    /// options.
    #[must_use]
    pub fn new(device: &Device, kernel: &OnDevice, may_be_non_uniform: bool) -> Limits {
        let or = |value: u64, else_value: u64| if value == 0 { else_value } else { value };
        let items = device.sizes(CL_DEVICE_MAX_WORK_ITEM_SIZES);
        let bits = or(device.number(CL_DEVICE_ADDRESS_BITS), 64).clamp(1, 64);
        Limits {
            group: device.largest_group(kernel.work_group_size),
            items: std::array::from_fn(|i| items.get(i).copied().unwrap_or(u64::MAX)),
            required: kernel.compile_work_group_size,
            most: u64::MAX >> (64 - bits),
            non_uniform: may_be_non_uniform && takes_non_uniform(device),
            empty: device.version() >= (2, 1),
            local_mem: or(device.number(CL_DEVICE_LOCAL_MEM_SIZE), u64::MAX),
            own_local_mem: kernel.local_mem_size,
            alignment: device.sub_buffer_alignment(),
        }
    }
}

/// Whether a device accepts smaller groups at the edges: it reports so, or it is an OpenCL 2.x device.
fn takes_non_uniform(device: &Device) -> bool {
    device.number(CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT) != 0 || device.version().0 == 2
}

impl Range {
    /// Whether the launch has no work-items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.global.contains(&0)
    }

    /// Checks the sizes, in the order of the specification.
    ///
    /// # Errors
    /// `CL_INVALID_GLOBAL_WORK_SIZE`, `CL_INVALID_GLOBAL_OFFSET`, `CL_INVALID_WORK_GROUP_SIZE`,
    /// `CL_INVALID_WORK_ITEM_SIZE`.
    pub fn check(&self, limits: &Limits) -> ClResult {
        if self.is_empty() {
            // clEnqueueNDRangeKernel: CL_INVALID_GLOBAL_WORK_SIZE when a global size is 0, before OpenCL 2.1.
            return require(limits.empty, CL_INVALID_GLOBAL_WORK_SIZE);
        }
        // clEnqueueNDRangeKernel: CL_INVALID_GLOBAL_WORK_SIZE when a size exceeds the range of size_t on
        // the device.
        let fits = self.global.iter().all(|&size| size <= limits.most);
        require(fits, CL_INVALID_GLOBAL_WORK_SIZE)?;
        if let Some(offset) = self.offset {
            let ends = self.global.iter().zip(offset);
            let fits = ends.fold(true, |fits, (size, first)| {
                fits && size
                    .checked_add(first)
                    .is_some_and(|end| end <= limits.most)
            });
            // clEnqueueNDRangeKernel: CL_INVALID_GLOBAL_OFFSET when offset and size together exceed the
            // range of size_t on the device.
            require(fits, CL_INVALID_GLOBAL_OFFSET)?;
        }
        self.local
            .map_or(Ok(()), |local| self.check_local(local, limits))
    }

    /// Fills in the group size that the kernel requires, if the application gave none. Not every driver
    /// applies it by itself.
    #[must_use]
    pub fn with_required(self, limits: &Limits) -> Range {
        let required = Some(limits.required).filter(|sizes| *sizes != [0; 3] && !self.is_empty());
        Range {
            local: self.local.or(required),
            ..self
        }
    }

    /// Whether all work-groups have the same size. True without local sizes, because the driver chooses
    /// then.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        let divides = |local: [u64; 3]| {
            (self.global.iter())
                .zip(local)
                .all(|(all, one)| all % one == 0)
        };
        self.local
            .is_none_or(|local| !local.contains(&0) && divides(local))
    }

    fn check_local(&self, local: [u64; 3], limits: &Limits) -> ClResult {
        // clEnqueueNDRangeKernel: CL_INVALID_WORK_GROUP_SIZE when a local size does not divide the global
        // size, as 0 never does.
        require(!local.contains(&0), CL_INVALID_WORK_GROUP_SIZE)?;
        // clEnqueueNDRangeKernel: CL_INVALID_WORK_GROUP_SIZE when the local size is not the one that the
        // kernel requires by reqd_work_group_size.
        let as_required = limits.required == [0; 3] || limits.required == local;
        require(as_required, CL_INVALID_WORK_GROUP_SIZE)?;
        let total = local
            .iter()
            .try_fold(1u64, |total, &size| total.checked_mul(size));
        // clEnqueueNDRangeKernel: CL_INVALID_WORK_GROUP_SIZE when a group has more work-items than the
        // kernel's CL_KERNEL_WORK_GROUP_SIZE.
        require(
            total.is_some_and(|total| total <= limits.group),
            CL_INVALID_WORK_GROUP_SIZE,
        )?;
        let divides = self
            .global
            .iter()
            .zip(local)
            .all(|(global, local)| global % local == 0);
        // clEnqueueNDRangeKernel: CL_INVALID_WORK_GROUP_SIZE when the local size does not divide the
        // global size, and the program requires uniform groups or the device has no others.
        require(divides || limits.non_uniform, CL_INVALID_WORK_GROUP_SIZE)?;
        let fits = local
            .iter()
            .zip(limits.items)
            .all(|(&size, most)| size <= most);
        // clEnqueueNDRangeKernel: CL_INVALID_WORK_ITEM_SIZE when a local size exceeds
        // CL_DEVICE_MAX_WORK_ITEM_SIZES in its dimension.
        require(fits, CL_INVALID_WORK_ITEM_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::fail;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        group: 256,
        items: [256, 256, 64],
        required: [0; 3],
        most: u64::MAX,
        non_uniform: false,
        empty: true,
        local_mem: 1 << 15,
        own_local_mem: 0,
        alignment: 128,
    };

    fn range(global: [u64; 3], local: Option<[u64; 3]>) -> Range {
        Range {
            dimensions: 3,
            global,
            offset: None,
            local,
        }
    }

    #[test]
    fn a_launch_of_nothing_needs_a_device_of_2_1() {
        assert_eq!(range([4, 0, 1], None).check(&LIMITS), Ok(()));
        let old = Limits {
            empty: false,
            ..LIMITS
        };
        assert_eq!(
            range([4, 0, 1], None).check(&old),
            fail(CL_INVALID_GLOBAL_WORK_SIZE)
        );
    }

    #[test]
    fn global_sizes_and_offsets_stay_within_the_devices_size_t() {
        let small = Limits {
            most: u64::from(u32::MAX),
            ..LIMITS
        };
        assert_eq!(
            range([1 << 32, 1, 1], None).check(&small),
            fail(CL_INVALID_GLOBAL_WORK_SIZE)
        );
        let at = |offset| Range {
            offset: Some([offset, 0, 0]),
            ..range([16, 1, 1], None)
        };
        assert_eq!(at(u64::from(u32::MAX) - 16).check(&small), Ok(()));
        assert_eq!(
            at(u64::from(u32::MAX) - 15).check(&small),
            fail(CL_INVALID_GLOBAL_OFFSET)
        );
        assert_eq!(at(u64::MAX).check(&LIMITS), fail(CL_INVALID_GLOBAL_OFFSET));
    }

    #[test]
    fn local_sizes_must_suit_kernel_and_device() {
        let check = |local, limits: &Limits| range([512, 64, 128], Some(local)).check(limits);
        assert_eq!(check([16, 16, 1], &LIMITS), Ok(()));
        assert_eq!(check([0, 1, 1], &LIMITS), fail(CL_INVALID_WORK_GROUP_SIZE));
        assert_eq!(
            check([16, 32, 1], &LIMITS),
            fail(CL_INVALID_WORK_GROUP_SIZE)
        );
        assert_eq!(check([3, 1, 1], &LIMITS), fail(CL_INVALID_WORK_GROUP_SIZE));
        assert_eq!(check([1, 1, 128], &LIMITS), fail(CL_INVALID_WORK_ITEM_SIZE));
        assert_eq!(
            check([u64::MAX, u64::MAX, 2], &LIMITS),
            fail(CL_INVALID_WORK_GROUP_SIZE)
        );
        let required = Limits {
            required: [8, 4, 1],
            ..LIMITS
        };
        assert_eq!(check([8, 4, 1], &required), Ok(()));
        assert_eq!(
            check([4, 8, 1], &required),
            fail(CL_INVALID_WORK_GROUP_SIZE)
        );
        let ragged = Limits {
            non_uniform: true,
            ..LIMITS
        };
        assert_eq!(check([3, 5, 7], &ragged), Ok(()));
    }

    #[test]
    fn a_demanded_group_size_is_taken_where_none_is_given() {
        let required = Limits {
            required: [8, 4, 1],
            ..LIMITS
        };
        let taken = range([16, 8, 1], None).with_required(&required);
        assert_eq!(taken.local, Some([8, 4, 1]));
        assert_eq!(taken.check(&required), Ok(()));
        let line = Range {
            dimensions: 1,
            ..range([16, 1, 1], None)
        };
        let taken = line.with_required(&required);
        assert_eq!(taken.check(&required), fail(CL_INVALID_WORK_GROUP_SIZE));
        assert_eq!(line.with_required(&LIMITS), line);
    }

    proptest! {
        #[test]
        fn what_passes_is_within_all_limits(
            global in proptest::array::uniform3(any::<u64>()),
            offset in proptest::option::of(proptest::array::uniform3(any::<u64>())),
            local in proptest::option::of(proptest::array::uniform3(0u64..300)),
            bits in 1u32..=64,
            non_uniform: bool,
        ) {
            let limits = Limits { most: u64::MAX >> (64 - bits), non_uniform, ..LIMITS };
            let range = Range { dimensions: 3, global, offset, local };
            if range.check(&limits).is_ok() && !range.is_empty() {
                for i in 0..3 {
                    let first = u128::from(offset.map_or(0, |offset| offset[i]));
                    prop_assert!(u128::from(global[i]) + first <= u128::from(limits.most));
                    if let Some(local) = local {
                        prop_assert!(local[i] >= 1 && local[i] <= limits.items[i]);
                        prop_assert!(non_uniform || global[i] % local[i] == 0);
                    }
                }
                prop_assert!(local.is_none_or(|local| local.iter().product::<u64>() <= limits.group));
            }
        }
    }
}
