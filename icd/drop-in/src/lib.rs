//! The drop-in `libOpenCL.so.1`.
