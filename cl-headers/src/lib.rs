//! The OpenCL C ABI in Rust.
