//! Sharing with OpenGL, Direct3D and EGL. This is impossible with a device of another machine, and the
//! extensions are never reported.
//!
//! The functions still have slots in the dispatch table. Each checks its first handle and fails with
//! `CL_INVALID_OPERATION`. They are made from the list of all entry points, which has their parameters.

use cl_headers::types::*;

use super::{entry, handle};
use crate::error::fail;
use crate::stub::{Buffer, Context, Platform, Queue};

macro_rules! define_functions {
    ($($slot:literal $origin:ident($of:tt) $node:ident null($($null:tt)*) fails($how:ident)
       fn $name:ident($($parameter:ident: $ty:ty),*) -> $ret:ty;)*) => {$(
        of_extension! { $of [$($null)*] $how $name($($parameter: $ty),*) -> $ret }
    )*};
}

/// Passes the functions of the sharing extensions on, and drops all others.
macro_rules! of_extension {
    ("cl_khr_gl_sharing" $($function:tt)*) => { refuse! { $($function)* } };
    ("cl_khr_gl_event" $($function:tt)*) => { refuse! { $($function)* } };
    ("cl_khr_egl_image" $($function:tt)*) => { refuse! { $($function)* } };
    ("cl_khr_egl_event" $($function:tt)*) => { refuse! { $($function)* } };
    ("cl_khr_d3d10_sharing" $($function:tt)*) => { refuse! { $($function)* } };
    ("cl_khr_d3d11_sharing" $($function:tt)*) => { refuse! { $($function)* } };
    ("cl_khr_dx9_media_sharing" $($function:tt)*) => { refuse! { $($function)* } };
    ($($other:tt)*) => {};
}

/// Defines a function that checks its first handle, if it has one, and refuses the call.
macro_rules! refuse {
    ([$($handle:ident $code:ident)?] $how:ident
     $name:ident($($parameter:ident: $ty:ty),*) -> $ret:ty) => {
        #[allow(non_snake_case, unused_variables, reason = "OpenCL's names")]
        pub(crate) unsafe extern "C" fn $name($($parameter: $ty),*) -> $ret {
            let refusal = || {
                $(handle::resolve::<stub!($handle)>($handle)?;)?
                // All functions of this file: CL_INVALID_OPERATION, the code of OpenCL 3.0 for a missing
                // optional feature. No device reports these extensions, so none of their own rules applies.
                fail(CL_INVALID_OPERATION)
            };
            report!($how stringify!($name), refusal)
        }
    };
}

macro_rules! stub {
    (context) => {
        Context
    };
    (memobj) => {
        Buffer
    };
    (command_queue) => {
        Queue
    };
    (platform) => {
        Platform
    };
}

macro_rules! report {
    (code $name:expr, $refusal:ident) => {
        entry::code($name, $refusal)
    };
    ($errcode_ret:ident $name:expr, $refusal:ident) => {
        // SAFETY: the specification lets the caller pass NULL or a writable cl_int.
        unsafe { entry::object($name, $errcode_ret, $refusal) }
    };
}

cl_headers::for_each_entry_point!([define_functions]);
