//! Causeway's OpenCL driver.

pub mod config;
pub mod transport;
