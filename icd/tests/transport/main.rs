//! Tests of sessions on a fake node: messages, their time, and faults of peers.
#![allow(unsafe_code, missing_docs)]

#[macro_use]
#[path = "../frames/mod.rs"]
mod frames;

mod allocation;
mod bulk;
mod bulk_lanes;
mod busy;
mod compressed;
mod discovery;
mod eager;
mod loss;
mod memory;
mod moved;
mod parked;
mod peer_links;
mod reexecuted;
mod relay;
mod resume;
mod resumed_lanes;
mod session;
mod shared_lanes;
mod standing;
mod waiters;

#[global_allocator]
static ALLOCATOR: frames::counting::Counting = frames::counting::Counting;
