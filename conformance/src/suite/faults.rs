//! Faults and their effect on a program: each case is one fault, with real processes.
//!
//! An ordinary program (`programs/faults.c`) uses `libcauseway.so` with the case's own `causewayd`. The
//! node has the native driver if kernels must run or crash, else the fake driver. Then something is killed,
//! cut or stopped, or receives garbage. A case reports what the program saw, and the time from the fault to
//! the end. It fails if the result differs from the specification or from Causeway's documented behaviour,
//! or comes too late. It also fails if a process is left over, or if another program is disturbed.
//!
//! Other tests cover what one process can show (`icd/tests/transport/loss.rs`, `daemon/tests/`) and what
//! is no fault (`api`, `threads`). `CONFORMANCE_FAULTS_LONG=1` stops clients for 30 s instead of 12.

mod deaths;
mod hosts;
mod interrupt;
mod kernels;
mod network;
mod peers;
pub(super) mod processes;
mod programs;
mod reach;
mod running;
mod stage;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::SetupError;
use crate::case::{Case, Verdict};
use crate::places::fake_driver;
use crate::programs::Programs;
use crate::sides::Sides;

use stage::Stage;

/// The error that a program gets when its node is lost.
const LOST: &str = "CL_DEVICE_NOT_AVAILABLE";

/// Why a case fails.
#[derive(Debug, thiserror::Error)]
pub(super) enum Wrong {
    /// The case does not fail: this machine cannot run it.
    #[error("{0}")]
    Skipped(String),
    #[error("{0}")]
    Found(String),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("{0}")]
    System(#[from] std::io::Error),
    #[error("{0}")]
    Kernel(#[from] rustix::io::Errno),
    #[error(transparent)]
    Network(#[from] causeway_network::Error),
}

impl Wrong {
    fn new(what: impl Into<String>) -> Self {
        Self::Found(what.into())
    }
}

/// The function that runs a case.
type Fault = fn(&Stage) -> Result<Verdict, Wrong>;

/// All cases, the long ones first, so that they run in parallel with the others.
const FAULTS: &[(&str, Fault)] = &[
    ("client-stopped", network::client_stopped),
    ("client-stopped-in-a-transfer", network::transfer_stopped),
    ("network-cut", network::cut_direct),
    ("network-cut-in-a-transfer", network::cut_in_a_transfer),
    ("network-cut-grpc", network::cut_grpc),
    ("network-cut-and-mended", network::cut_and_mended),
    (
        "network-cut-and-mended-in-a-transfer",
        network::cut_and_mended_in_a_transfer,
    ),
    ("network-cut-and-mended-grpc", network::cut_and_mended_grpc),
    ("network-cut-for-too-long", network::cut_for_too_long),
    ("client-suspended", network::suspended),
    (
        "client-suspended-for-too-long",
        network::suspended_for_too_long,
    ),
    ("gated-flood", programs::flood),
    ("no-server", reach::no_server),
    ("silent-server", reach::silent_server),
    ("server-of-garbage", reach::server_of_garbage),
    ("garbage-64-kib-random", reach::garbage_random),
    ("garbage-http", reach::garbage_http),
    ("garbage-half-a-preamble", reach::garbage_half_a_preamble),
    ("garbage-length-2-63", reach::garbage_length),
    ("length-of-4-gib-in-a-session", reach::length_in_a_session),
    ("version-mismatch-in-a-call", reach::version_in_a_call),
    (
        "version-mismatch-in-a-preamble",
        reach::version_in_a_preamble,
    ),
    ("worker-killed-in-a-kernel", deaths::worker_in_a_kernel),
    (
        "worker-killed-in-a-kernel-grpc",
        deaths::worker_in_a_kernel_grpc,
    ),
    ("daemon-killed-in-a-transfer", deaths::daemon_in_a_transfer),
    (
        "daemon-killed-in-a-transfer-grpc",
        deaths::daemon_in_a_transfer_grpc,
    ),
    ("daemon-restarted", deaths::daemon_restarted),
    (
        "daemon-restarted-in-a-transfer",
        deaths::daemon_restarted_in_a_transfer,
    ),
    ("daemon-restarted-grpc", deaths::daemon_restarted_grpc),
    (
        "daemon-restarted-without-directory",
        deaths::daemon_restarted_without_directory,
    ),
    ("client-killed-in-a-transfer", deaths::client_in_a_transfer),
    (
        "client-killed-in-a-transfer-grpc",
        deaths::client_in_a_transfer_grpc,
    ),
    ("client-killed-in-a-kernel", deaths::client_in_a_kernel),
    ("kernel-divides-by-zero", kernels::divide),
    (
        "kernel-divides-by-zero-uncaught",
        kernels::divide_kills_the_driver,
    ),
    (
        "kernel-divides-by-zero-executed-again",
        kernels::divide_executed_again,
    ),
    ("kernel-writes-out-of-bounds", kernels::outside),
    (
        "kernel-writes-out-of-bounds-executed-again",
        kernels::outside_executed_again,
    ),
    ("ctrl-c-in-enumeration", interrupt::in_enumeration),
    ("ctrl-c-in-build", interrupt::in_build),
    ("ctrl-c-in-transfer", interrupt::in_transfer),
    ("ctrl-c-in-kernel", interrupt::in_kernel),
    ("fork", programs::fork),
    ("exit-with-work-in-flight", programs::exit),
    ("dlclose-with-work-in-flight", programs::dlclose),
    ("a-thousand-threads", programs::threads),
];

pub(super) fn cases(programs: &Programs, sides: &Sides) -> Result<Vec<Case>, SetupError> {
    cases_of("faults", FAULTS, programs, sides)
}

/// The suite `hosts`: the traffic between several hosts, and faults of it.
pub(super) fn hosts(programs: &Programs, sides: &Sides) -> Result<Vec<Case>, SetupError> {
    cases_of("hosts", hosts::CASES, programs, sides)
}

fn cases_of(
    suite: &'static str,
    faults: &[(&str, Fault)],
    programs: &Programs,
    sides: &Sides,
) -> Result<Vec<Case>, SetupError> {
    let skipped = |reason: String| Ok(vec![Case::skipped(suite, reason)]);
    if !fake_driver().exists() {
        return skipped(format!("there is no {}", fake_driver().display()));
    }
    if sides.is_cut() {
        return skipped("its cases break their own networks".to_owned());
    }
    let Some(stage) = Stage::open(programs, sides)? else {
        return skipped("a daemon that is not of our own is not broken".to_owned());
    };
    let stage = Arc::new(stage);
    let case = |(name, fault): &(&str, Fault)| {
        let (stage, fault) = (stage.clone(), *fault);
        Case::new(format!("{suite}/{name}"), move |_| {
            Ok(fault(&stage).unwrap_or_else(|wrong| match wrong {
                Wrong::Skipped(reason) => Verdict::Skipped(reason),
                wrong => Verdict::Failed(wrong.to_string()),
            }))
        })
    };
    Ok(faults.iter().map(case).collect())
}

/// The end of a fault: what the program saw, and the time since `begin`, which must be below the limit.
fn ended(saw: impl Into<String>, begin: Instant, limit: Duration) -> Result<Verdict, Wrong> {
    in_time(saw, begin.elapsed(), limit)
}

/// As [`ended`], with a time that was measured before.
fn in_time(saw: impl Into<String>, took: Duration, limit: Duration) -> Result<Verdict, Wrong> {
    let saw = saw.into();
    if took > limit {
        let (took, limit) = (took.as_secs_f64(), limit.as_secs_f64());
        return Err(Wrong::new(format!(
            "{saw}, but only after {took:.1} s; {limit:.1} s are allowed"
        )));
    }
    Ok(Verdict::Ended { saw, took })
}
