//! Tests of devices of a device manager: leases that are reserved, confirmed, lost and released.
#![allow(unsafe_code, missing_docs, unreachable_pub)]

#[macro_use]
#[path = "../frames/mod.rs"]
mod frames;

mod cluster;
mod cut_off;
mod ended;
mod fake_managers;
mod given_back;
mod moved;
mod of_lost_clients;
mod of_lost_nodes;
mod of_several_nodes;
mod rails;
mod refused;
mod replaced;
mod reserved;
mod several_managers;
mod survived;
mod under_strangers;
mod without_the_manager;
