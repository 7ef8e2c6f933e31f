//! The dispatch table and the table of names, made from the list in `entry_points`.
//!
//! A driver's objects begin with a pointer to its dispatch table. A loader finds the function for a call at
//! a fixed offset in it. The functions themselves are the driver's.
//!
//! Invariant: a `Dispatch` has no empty slot. Old loaders call through a slot without a check, so a driver
//! must fill all of them. The type makes the compiler check that.

#![allow(
    non_snake_case,
    reason = "fields are named as in C, so that they can be searched for"
)]

use core::ffi::{CStr, c_void};
use core::mem::{offset_of, size_of};

use crate::types::*;

/// Number of slots of the dispatch table of OpenCL 3.1.
pub const SLOTS: usize = 150;

/// A version of OpenCL's API.
#[allow(missing_docs, reason = "the names say all")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    V1_0,
    V1_1,
    V1_2,
    V2_0,
    V2_1,
    V2_2,
    V3_0,
    V3_1,
}

/// The version or extension that an entry point belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The core API, since this version.
    Core(Version),
    /// The extension of this name.
    Extension(&'static str),
}

/// The version node under which a Linux loader exports a symbol.
///
/// The node is mostly the version that introduced the function. Extension functions are in the node that
/// the first loader with them chose.
#[allow(
    missing_docs,
    non_camel_case_types,
    reason = "they are the nodes' names in the ELF file"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SymbolVersion {
    OPENCL_1_0,
    OPENCL_1_1,
    OPENCL_1_2,
    OPENCL_2_0,
    OPENCL_2_1,
    OPENCL_2_2,
    OPENCL_3_0,
    OPENCL_3_1,
}

impl SymbolVersion {
    /// All nodes, oldest first. Each inherits the one before.
    pub const ALL: [Self; 8] = [
        Self::OPENCL_1_0,
        Self::OPENCL_1_1,
        Self::OPENCL_1_2,
        Self::OPENCL_2_0,
        Self::OPENCL_2_1,
        Self::OPENCL_2_2,
        Self::OPENCL_3_0,
        Self::OPENCL_3_1,
    ];

    /// The node's name in the ELF file, such as `OPENCL_1.0`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OPENCL_1_0 => "OPENCL_1.0",
            Self::OPENCL_1_1 => "OPENCL_1.1",
            Self::OPENCL_1_2 => "OPENCL_1.2",
            Self::OPENCL_2_0 => "OPENCL_2.0",
            Self::OPENCL_2_1 => "OPENCL_2.1",
            Self::OPENCL_2_2 => "OPENCL_2.2",
            Self::OPENCL_3_0 => "OPENCL_3.0",
            Self::OPENCL_3_1 => "OPENCL_3.1",
        }
    }
}

/// The properties of one entry point, apart from its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPoint {
    /// The function's name.
    pub name: &'static str,
    /// The function's index in the dispatch table.
    pub slot: usize,
    /// The core version or the extension.
    pub origin: Origin,
    /// The version node under which loaders export the function. `None` if no Linux loader exports it.
    pub node: Option<SymbolVersion>,
}

macro_rules! origin {
    (core $version:ident) => {
        Origin::Core(Version::$version)
    };
    (extension $name:literal) => {
        Origin::Extension($name)
    };
}

macro_rules! node {
    (hidden) => {
        None
    };
    ($node:ident) => {
        Some(SymbolVersion::$node)
    };
}

macro_rules! define_tables {
    ($($slot:literal $origin:ident($of:tt) $node:ident null($($null:tt)*) fails($how:ident)
       fn $name:ident($($parameter:ident: $ty:ty),*) -> $ret:ty;)*) => {
        /// The dispatch table: Khronos' `cl_icd_dispatch` of OpenCL 3.1, one function per slot.
        ///
        /// [`dispatch_table!`](crate::dispatch_table) creates it. A driver gives loaders of `cl_khr_icd` 2
        /// an [`Icd2Dispatch`](crate::Icd2Dispatch) made from it instead.
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct Dispatch {
            $(
                #[doc = concat!("Slot ", stringify!($slot), ".")]
                pub $name: unsafe extern "C" fn($($parameter: $ty),*) -> $ret,
            )*
        }

        /// All entry points, in slot order.
        pub const ENTRY_POINTS: [EntryPoint; SLOTS] = [$(
            EntryPoint {
                name: stringify!($name),
                slot: $slot,
                origin: origin!($origin $of),
                node: node!($node),
            },
        )*];

        const _: () = {
            assert!(size_of::<Dispatch>() == SLOTS * size_of::<usize>());
            // The slot number in the list must be the field's position.
            $(assert!(offset_of!(Dispatch, $name) == $slot * size_of::<usize>());)*
        };

        impl Dispatch {
            /// The function in a slot as an untyped address. `None` past the end of the table.
            #[must_use]
            pub fn address(&self, slot: usize) -> Option<*const c_void> {
                match slot {
                    $($slot => Some(self.$name as *const c_void),)*
                    _ => None,
                }
            }
        }
    };
}

for_each_entry_point!(define_tables);

// Some offsets from `cl_icd.h`, written by hand. They do not come from the list, so they detect an error in
// it.
const _: () = {
    const fn slot(offset: usize) -> usize {
        offset / size_of::<usize>()
    }
    assert!(slot(offset_of!(Dispatch, clGetPlatformIDs)) == 0);
    assert!(slot(offset_of!(Dispatch, clUnloadCompiler)) == 31);
    assert!(slot(offset_of!(Dispatch, clGetExtensionFunctionAddress)) == 65);
    assert!(slot(offset_of!(Dispatch, clGetGLContextInfoKHR)) == 74);
    assert!(slot(offset_of!(Dispatch, clSetEventCallback)) == 81);
    assert!(slot(offset_of!(Dispatch, clCreateSubDevices)) == 93);
    assert!(slot(offset_of!(Dispatch, clCreateCommandQueueWithProperties)) == 123);
    assert!(slot(offset_of!(Dispatch, clCloneKernel)) == 137);
    assert!(slot(offset_of!(Dispatch, clSetContextDestructorCallback)) == 148);
    assert!(slot(offset_of!(Dispatch, clGetKernelSuggestedLocalWorkSize)) == 149);
};

/// The entry point of a name, or `None` for a name that is not in the dispatch table.
#[must_use]
pub fn entry_point(name: &CStr) -> Option<&'static EntryPoint> {
    static TABLE: [EntryPoint; SLOTS] = ENTRY_POINTS;
    let name = name.to_bytes();
    TABLE.iter().find(|entry| entry.name.as_bytes() == name)
}

impl Dispatch {
    /// The address of the function of this name, for `clIcdGetFunctionAddressForPlatformKHR` and similar
    /// functions. `None` for a name that is not in the table.
    #[must_use]
    pub fn function(&self, name: &CStr) -> Option<*const c_void> {
        self.address(entry_point(name)?.slot)
    }
}

/// Creates a [`Dispatch`] from functions that are in scope under their OpenCL names.
///
/// A missing function or a wrong signature is a compile error. The macro can be used in constants and
/// statics:
///
/// ```ignore
/// mod api { /* pub unsafe extern "C" fn clGetPlatformIDs(…) -> cl_int { … }, and 149 more */ }
/// static DISPATCH: cl_headers::Dispatch = {
///     use api::*;
///     cl_headers::dispatch_table!()
/// };
/// ```
#[macro_export]
macro_rules! dispatch_table {
    () => {
        $crate::for_each_entry_point!([$crate::dispatch_table_from_list])
    };
}

/// The inner step of [`dispatch_table!`].
#[doc(hidden)]
#[macro_export]
macro_rules! dispatch_table_from_list {
    ($($slot:literal $origin:ident($of:tt) $node:ident null($($null:tt)*) fails($how:ident)
       fn $name:ident($($parameter:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $crate::Dispatch { $($name,)* }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_unknown_ones_are_not() {
        assert_eq!(
            entry_point(c"clGetPlatformIDs").map(|entry| entry.slot),
            Some(0)
        );
        assert_eq!(
            entry_point(c"clGetKernelSuggestedLocalWorkSize").map(|entry| entry.slot),
            Some(149)
        );
        assert_eq!(entry_point(c"clGetPlatformID"), None);
        assert_eq!(entry_point(c""), None);
        for (slot, entry) in ENTRY_POINTS.iter().enumerate() {
            assert_eq!(entry.slot, slot);
        }
    }

    #[test]
    fn each_version_has_as_many_functions_as_the_specification() {
        let count = |version| {
            ENTRY_POINTS
                .iter()
                .filter(|entry| entry.origin == Origin::Core(version))
                .count()
        };
        let counts = [
            Version::V1_0,
            Version::V1_1,
            Version::V1_2,
            Version::V2_0,
            Version::V2_1,
            Version::V2_2,
            Version::V3_0,
            Version::V3_1,
        ]
        .map(count);
        assert_eq!(counts, [66, 8, 15, 13, 7, 2, 3, 1]);
    }
}
