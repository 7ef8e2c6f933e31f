//! Tests of the driver as an ordinary OpenCL: data, order, time, objects and error codes.
//!
//! Each probe runs with an engine and in instant mode. The program must see the same in both.

mod common;

use common::run;

fn both_modes(case: &str) {
    for config in ["", "instant = true", "order = \"random\""] {
        let ended = run(&[case], config);
        assert!(
            ended.assert_good().ends_with("done\n"),
            "{config}: {}",
            ended.output
        );
    }
}

#[test]
fn data_flows_through_kernels_and_transfers() {
    both_modes("flow");
}

#[test]
fn rectangles_land_where_they_belong() {
    both_modes("rectangles");
}

#[test]
fn maps_are_the_objects_own_memory() {
    both_modes("maps");
}

#[test]
fn events_tell_status_and_times() {
    both_modes("events");
}

#[test]
fn gates_hold_what_they_must_and_no_more() {
    both_modes("gates");
}

#[test]
fn programs_build_compile_link_and_fail() {
    both_modes("programs");
}

#[test]
fn arguments_are_checked_and_captured() {
    both_modes("arguments");
}

#[test]
fn mistakes_get_their_codes() {
    both_modes("errors");
}

#[test]
fn objects_live_as_long_as_they_are_needed() {
    both_modes("lifetimes");
}

#[test]
fn threads_do_not_disturb_each_other() {
    both_modes("threads");
}
