//! Tools of the device manager.
