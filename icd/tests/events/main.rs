//! Tests of queues, events and semaphores: order, waits, callbacks and notices.
#![allow(unsafe_code, missing_docs)]

#[macro_use]
#[path = "../frames/mod.rs"]
mod frames;

mod callbacks;
mod many_commands;
mod notices;
mod order;
mod queue_order;
mod semaphore_errors;
mod semaphores;
mod wait;
