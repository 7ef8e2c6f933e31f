//! Tests of the planner of several copies: random programs against a model, and named situations.

mod model;
mod situations;
