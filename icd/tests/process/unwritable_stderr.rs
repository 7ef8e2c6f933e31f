//! Tests that an unwritable log ends no program, fails no call, and delays nobody for long.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::ptr::{null_mut, without_provenance_mut};

use cl_headers::types::*;

use crate::frames::opencl::*;
use crate::frames::own_process::run_this_test;

/// This variable is set in the program that logs.
const LOGGING: &str = "CAUSEWAY_TEST_LOGGING";
const CALLS: usize = 500;

// A handle that is not ours, which makes a line in the log.
fn ask() -> cl_int {
    code!(clGetPlatformInfo(
        without_provenance_mut(8),
        CL_PLATFORM_NAME,
        0,
        null_mut(),
        null_mut()
    ))
}

/// Behaves like a C program that calls the library: a broken pipe's signal would end it.
fn log_much() -> ! {
    // SAFETY: no handler, but what the system does.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let mut count = 0;
    ok!(clGetPlatformIDs(0, null_mut(), &raw mut count));
    for _ in 0..CALLS {
        assert_eq!(ask(), CL_INVALID_PLATFORM);
    }
    // SAFETY: nothing of this process is wanted any more.
    let is_default = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) } == libc::SIG_DFL;
    println!("answered {CALLS} calls, the signal is the program's: {is_default}");
    std::process::exit(0);
}

fn run(stderr: impl Into<Stdio>, wish: &str) {
    let mut child = Command::new(std::env::current_exe().expect("a path"));
    run_this_test(&mut child);
    child.env(LOGGING, "1").env("CAUSEWAY_LOG", wish);
    // The configuration logs a line before there is a log.
    child.env("CAUSEWAY_SERVERS", "127.0.0.1:1,not an address");
    let child = child.stdout(Stdio::piped()).stderr(stderr).spawn();
    let ended = child
        .expect("the program runs")
        .wait_with_output()
        .expect("the program ends");
    let out = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{}: {out}", ended.status);
    let said = format!("answered {CALLS} calls, the signal is the program's: true");
    assert!(out.contains(&said), "{out}");
}

#[test]
fn a_full_disk_is_no_concern_of_the_program() {
    if std::env::var_os(LOGGING).is_some() {
        log_much();
    }
    // A filter that is not understood is told of, too.
    for wish in ["trace", ",,causeway=loudly", "warn"] {
        let full = File::options().write(true).open("/dev/full");
        run(full.expect("/dev/full"), wish);
    }
}

#[test]
fn a_pipe_without_a_reader_is_no_concern_of_the_program() {
    if std::env::var_os(LOGGING).is_some() {
        log_much();
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    run(writer, "trace");
}

#[test]
fn a_reader_that_sleeps_does_not_keep_the_program() {
    if std::env::var_os(LOGGING).is_some() {
        log_much();
    }
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("set");
    while writer.write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("set");
    run(writer, "trace");
    let mut there = Vec::new();
    reader.read_to_end(&mut there).expect("read");
    assert!(there.iter().all(|byte| *byte == b'x'), "lost, not kept");
}
