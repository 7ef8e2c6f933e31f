//! A recording OpenCL driver for tests.
