//! Tests of buffers and shared virtual memory: transfers, their order, refusals and cost.
#![allow(unsafe_code, missing_docs, unreachable_pub)]

#[macro_use]
#[path = "../frames/mod.rs"]
mod frames;

mod allocations;
mod checkpointed;
mod errors;
mod errors_of_moves;
mod footprint;
mod life;
mod loss;
mod map;
mod order;
mod order_gated;
mod reexecuted;
mod shared;
mod svm;
mod svm_free;
mod transfer;
mod unshared;
