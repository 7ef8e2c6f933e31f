//! Tests of programs and kernels: builds, arguments, launches, and features of some drivers only.
#![allow(unsafe_code, missing_docs)]

#[macro_use]
#[path = "../frames/mod.rs"]
mod frames;

mod allocation;
mod arguments;
mod build;
mod capture;
mod device_queues;
mod il;
mod launch;
mod pipes;
mod release_callback;
mod suggested_local_size;

#[global_allocator]
static ALLOCATOR: frames::counting::Counting = frames::counting::Counting;
