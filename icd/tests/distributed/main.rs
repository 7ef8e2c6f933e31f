//! Tests of contexts of several nodes.
#![allow(unsafe_code, missing_docs, unreachable_pub)]

#[macro_use]
#[path = "../frames/mod.rs"]
mod frames;

mod client_copy;
mod command_buffers;
mod events;
mod gates;
mod growth;
mod images;
mod kernels;
mod landing;
mod link_info;
mod link_rails;
mod loss;
mod maps;
mod memory;
mod no_path;
mod own_queues;
mod printf;
mod programs;
mod secured_links;
mod secured_reopened;
mod semaphores;
mod stage;
mod sub_devices;
mod svm;
mod times;
mod walls;
