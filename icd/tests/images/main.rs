//! Tests of images and samplers: reads, writes, copies, maps, kernels, refusals.
#![allow(unsafe_code, missing_docs)]

#[macro_use]
#[path = "../frames/mod.rs"]
mod frames;

mod copies_refused;
mod errors;
mod kernels;
mod map;
mod transfer;
