//! The dashboard: what a plain client gets of it, and what a real browser shows.

mod browser;
mod client;
mod crowd;
mod page;
mod pictures;
mod requests;
mod trace;
