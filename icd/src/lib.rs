//! Causeway's OpenCL driver.
