//! The supervisor: listens, admits, routes, watches. Never touches OpenCL.
#![forbid(unsafe_code)]
