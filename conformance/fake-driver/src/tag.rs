//! The numbers that mark the kinds of objects, and their names in the log.
//!
//! Invariant: each number is unique, and none is the number of a dead object.

pub(crate) const PLATFORM: u32 = 1;
pub(crate) const DEVICE: u32 = 2;
pub(crate) const CONTEXT: u32 = 3;
pub(crate) const QUEUE: u32 = 4;
pub(crate) const MEMORY: u32 = 5;
pub(crate) const PROGRAM: u32 = 6;
pub(crate) const KERNEL: u32 = 7;
pub(crate) const EVENT: u32 = 8;
pub(crate) const SAMPLER: u32 = 9;

/// Returns the name of a kind.
pub(crate) fn label(tag: u32) -> &'static str {
    match tag {
        PLATFORM => "platform",
        DEVICE => "device",
        CONTEXT => "context",
        QUEUE => "queue",
        MEMORY => "mem",
        PROGRAM => "program",
        KERNEL => "kernel",
        EVENT => "event",
        SAMPLER => "sampler",
        _ => "object",
    }
}
