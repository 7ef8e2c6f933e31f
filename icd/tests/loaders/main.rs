//! Tests of `libcauseway.so` under loaders, each in a process of its own: its symbols, the handshakes of `cl_khr_icd`
//! 1 and 2, Debian's loader and Khronos' loader.
//!
//! Most tests have no daemon: servers are absent or do not answer, and the platform must still be there, without
//! devices.

mod exports;
mod handshake;
mod support;
mod under_khronos;
mod under_ocl_icd;
mod with_devices;
