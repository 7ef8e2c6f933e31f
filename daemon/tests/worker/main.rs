//! Tests of the behaviour of the daemon's workers and of their shared state, over real drivers and the fake one, with
//! real processes and sockets. One module per behaviour.

#[path = "../common/mod.rs"]
mod common;

mod accounting;
mod away;
mod away_strangers;
mod build_cache;
mod build_cache_compilers;
mod builds;
mod builds_again;
mod bulk_transfer;
mod busy;
mod cards;
mod compressed;
mod dropped_links;
mod eager_writes;
mod ended_events;
mod exclusive;
mod fair;
mod faults;
mod held_commands;
mod host_attacks;
mod host_drivers;
mod hosts;
mod hosts_survive;
mod launch;
mod links;
mod links_again;
mod mirror_graphs;
mod mirrors;
mod no_callbacks;
mod no_room;
mod parked;
mod peer_loss;
mod peer_transfer;
mod rate;
mod samples;
mod sandbox;
mod shared_memory;
mod unobserved;
mod warm;
