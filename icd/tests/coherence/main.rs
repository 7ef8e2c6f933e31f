//! The planner of several copies: random programs against a model, and situations by name.

mod model;
mod situations;
