//! Tests of discovery and of measured links, with real daemons, real multicast and a network of several hosts.
#![allow(unsafe_code, missing_docs)]

#[macro_use]
#[path = "../frames/mod.rs"]
mod frames;

mod announcer;
mod cards;
mod copied;
mod domains;
mod flood;
mod follows;
mod freezing;
mod hostile;
mod independent;
mod links_by_card;
mod managers;
mod measured;
mod measured_active;
mod measured_limits;
mod measured_proof;
mod networks;
mod nobody;
mod off;
mod programs;
mod rails_by_card;
mod rails_by_speed;
mod rails_equal;
mod readdressed;
mod remembered;
mod scene;
mod short_cuts;
mod stage;
mod step_down;
mod strangers;
mod tool;
mod troubled;
