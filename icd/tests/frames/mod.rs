//! Shared parts of the test programs. `icd/tests/README.md` says which frame to use for what.
#![allow(
    dead_code,
    unused_macros,
    unused_imports,
    unreachable_pub,
    missing_docs,
    unsafe_code,
    reason = "each test program uses its own part"
)]

#[macro_use]
pub mod own_process;

pub mod counting;
pub mod fake_driver;
pub mod fake_node;
pub mod growth;
pub mod log;
pub mod nodes;
pub mod opencl;
pub mod pictures;
pub mod programs;
pub mod recorded;
pub mod servers;
pub mod several;
pub mod signalled;
