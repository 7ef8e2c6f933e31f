//! Tests of devices and servers: info, connections, sub-devices, restarts and security.
#![allow(unsafe_code, missing_docs)]

#[macro_use]
#[path = "../frames/mod.rs"]
mod frames;

mod breaks;
mod clocks;
mod held;
mod kept_bandwidth;
mod outlived;
mod poor;
mod rails;
mod rails_cut;
mod rails_grpc;
mod replaced;
mod secured_breaks;
mod secured_nodes;
mod secured_refusals;
mod secured_session;
mod server_connection;
mod server_header;
mod server_restart;
mod shown;
mod sub_devices;
