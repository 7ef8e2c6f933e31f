//! Tests of the call log: one line per call, the same in every run.

mod common;

use std::collections::HashMap;

use common::probe;

fn log_of(arguments: &[&str], config: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let pattern = folder.path().join("log.%p");
    let mut command = probe(arguments, config);
    let mut child = command.env("FAKE_OPENCL_LOG", pattern).spawn().unwrap();
    let name = format!("log.{}", child.id());
    child.wait().unwrap();
    std::fs::read_to_string(folder.path().join(name)).unwrap()
}

#[test]
fn handles_have_names_and_data_has_hashes() {
    let log = log_of(&["flow"], "");
    for line in [
        "clCreateBuffer(context=context#1, flags=0x0, size=4096, host_ptr=null) = mem#1",
        "clSetKernelArg(kernel=kernel#1, arg_index=0, arg_size=8, arg_value=ptr) = CL_SUCCESS; \
         value=mem#1",
        "clEnqueueNDRangeKernel(command_queue=queue#1, kernel=kernel#1, work_dim=1, \
         global_work_offset=null, global_work_size=[1024], local_work_size=null, \
         num_events_in_wait_list=0, event_wait_list=null, event=null) = CL_SUCCESS; \
         args=[mem#1,07000000]",
        "clEnqueueFillBuffer(command_queue=queue#1, buffer=mem#3, pattern=ptr, pattern_size=8, \
         offset=8, size=16, num_events_in_wait_list=0, event_wait_list=null, event=null) = \
         CL_SUCCESS; pattern=[01, 00, 00, 00, 02, 00, 00, 00]",
    ] {
        assert!(log.contains(line), "{line}\nis not in\n{log}");
    }
    assert!(log.contains("; region=1024+512"), "{log}");
}

#[test]
fn every_run_has_the_same_log() {
    // Cases with callbacks are left out, because callbacks make calls at any time.
    for case in ["flow", "maps", "arguments", "errors"] {
        assert_eq!(
            log_of(&[case], ""),
            log_of(&[case], "instant = true"),
            "{case}"
        );
    }
}

#[test]
fn calls_that_fail_or_crash_are_in_it() {
    let log = log_of(
        &["finish"],
        "[[call]]\nname = \"clFinish\"\nat = 2\ncrash = \"abort\"",
    );
    let mut finishes = log.lines().filter(|line| line.starts_with("clFinish"));
    assert_eq!(
        finishes.next(),
        Some("clFinish(command_queue=queue#1) = CL_SUCCESS")
    );
    assert_eq!(
        finishes.next(),
        Some("clFinish(command_queue=queue#1) = crash Abort")
    );
}

#[test]
fn no_handle_is_named_twice() {
    let log = log_of(&["threads"], "");
    let mut seen = HashMap::new();
    for line in log
        .lines()
        .filter(|line| line.starts_with("clCreateBuffer"))
    {
        let name = line
            .rsplit(" = ")
            .next()
            .unwrap()
            .split(';')
            .next()
            .unwrap();
        *seen.entry(name.to_owned()).or_insert(0) += 1;
    }
    assert!(seen.len() > 8 && seen.values().all(|count| *count == 1));
}
