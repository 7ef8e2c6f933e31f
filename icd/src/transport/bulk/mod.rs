//! Bulk transfers: raw bytes between the application's memory and the worker.
pub mod memory;
