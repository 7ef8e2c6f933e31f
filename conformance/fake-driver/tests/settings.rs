//! Tests of the driver's settings: a real process sees each of them.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use common::{end, probe, run};

#[test]
fn devices_are_as_configured() {
    let config = "devices = 1
        [[device]]
        name = \"Small\"
        kind = \"cpu\"
        version = \"1.2\"
        memory = 1048576
        count = 2
        [[device]]
        name = \"Far\"
        platform = 1
        kind = \"accelerator\"
        version = \"2.0\"";
    let ended = run(&["devices"], config);
    // The loader may sort platforms by their GPUs. No platform here has a GPU.
    assert_eq!(
        ended.assert_good(),
        "Fake OpenCL\n  Small|OpenCL 1.2 fake|2|1048576|0\n  Small|OpenCL 1.2 fake|2|1048576|0\n\
         Fake OpenCL 2\n  Far|OpenCL 2.0 fake|8|4294967296|0\n"
    );
}

#[test]
fn a_kernel_takes_its_time() {
    let ended = run(&["launch", "plain"], "kernel.plain.ns = 30000000");
    assert!(
        ended.assert_good().contains("\nns 30000000\n"),
        "{}",
        ended.output
    );
}

#[test]
fn a_device_has_its_speed() {
    let ended = run(
        &["launch", "plain"],
        "[[device]]\nkernel_ns = 1000\nns_per_item = 234.0",
    );
    assert!(
        ended.assert_good().contains("\nns 1234\n"),
        "{}",
        ended.output
    );
}

#[test]
fn a_kernel_fails() {
    let ended = run(&["launch", "plain"], "kernel.plain.fail = -5");
    assert!(
        ended.assert_good().contains("waited -14, status -5\n"),
        "{}",
        ended.output
    );
}

#[test]
fn a_kernel_prints_before_it_completes() {
    let ended = run(&["launch", "plain"], "kernel.plain.print = \"hello\\n\"");
    let expected = "launching\nhello\nwaited 0, status 0\n";
    assert!(
        ended.assert_good().starts_with(expected),
        "{}",
        ended.output
    );
}

#[test]
fn kernels_crash() {
    for (crash, signal) in [("abort", 6), ("segv", 11), ("divide", 8)] {
        let ended = run(
            &["launch", "plain"],
            &format!("kernel.plain.crash = \"{crash}\""),
        );
        assert_eq!(ended.status.signal(), Some(signal), "{crash}");
        assert_eq!(ended.output, "launching\n");
    }
    let ended = run(&["launch", "plain"], "kernel.plain.crash = \"exit\"");
    assert_eq!(ended.status.code(), Some(3));
    run(&["launch", "other"], "kernel.plain.crash = \"abort\"").assert_good();
}

#[test]
fn a_kernel_hangs() {
    let child = probe(&["launch", "plain"], "kernel.plain.hang = true")
        .spawn()
        .unwrap();
    assert!(end(child, Duration::from_millis(300)).is_none());
}

#[test]
fn the_nth_call_fails() {
    let rule = "[[call]]\nname = \"clFinish\"\nat = 2\nfail = -5";
    assert_eq!(run(&["finish"], rule).assert_good(), "0 -5 0 \ndone\n");
}

#[test]
fn a_call_that_returns_an_object_fails() {
    let rule = "[[call]]\nname = \"clCreateCommandQueue\"\nfail = -6";
    let ended = run(&["finish"], rule);
    assert!(ended.output.contains("gave -6"), "{}", ended.output);
}

#[test]
fn a_call_is_late() {
    let rule = "[[call]]\nname = \"clFinish\"\nat = 3\ndelay_us = 40000";
    assert_eq!(run(&["finish"], rule).assert_good(), "0 0 0 late \ndone\n");
}

#[test]
fn a_call_crashes() {
    let ended = run(
        &["finish"],
        "[[call]]\nname = \"clFinish\"\nat = 2\ncrash = \"segv\"",
    );
    assert_eq!(ended.status.signal(), Some(11));
    assert_eq!(ended.output, "0 ");
}

#[test]
fn commands_complete_in_any_order() {
    let ranks = |case: &str, config: &str| {
        let ended = run(&[case], config);
        ended
            .assert_good()
            .lines()
            .next()
            .unwrap()
            .trim()
            .to_owned()
    };
    let forward = "0 1 2 3 4 5 6 7 8 9";
    assert_eq!(ranks("order", ""), forward);
    assert_ne!(ranks("order", "order = \"random\"; seed = 3"), forward);
    assert_ne!(ranks("order", "order = \"reverse\""), forward);
}

#[test]
fn a_control_file_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let write = |text: &str| {
        let next = folder.path().join("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(&next, &control).unwrap();
    };
    write("");
    let mut child = probe(&["follow"], control.to_str().unwrap())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    for code in [-5, -6, 0] {
        write(&match code {
            0 => String::new(),
            _ => format!("[[call]]\nname = \"clFinish\"\nfail = {code}"),
        });
        stdin.write_all(b"\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), code.to_string());
    }
    drop(stdin);
    assert!(
        end(child, Duration::from_secs(10))
            .unwrap()
            .status
            .success()
    );
}

#[test]
fn wrong_settings_are_told_and_leave_the_defaults() {
    let child = probe(&["devices"], "devcies = 3")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success());
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(stderr.contains("devcies"), "{stderr}");
}
