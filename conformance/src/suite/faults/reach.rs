//! Faults while a program contacts a node: no server, a silent one, garbage, another version.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use causeway_proto::version::WireVersion;

use super::peers;
use super::running::{Bystander, RunningProgram};
use super::stage::{Driver, Node, PATIENCE, Stage, Way};
use super::{Wrong, ended, in_time};
use crate::case::Verdict;

/// `clGetDeviceIDs` queries all nodes within 1 s. The limit includes the program's start and
/// end on a busy machine.
const ASKING: Duration = Duration::from_secs(4);

/// By default, a daemon tolerates an unknown peer for 5 s.
const STRANGERS: Duration = Duration::from_secs(8);

const FAKE: Driver = Driver::Fake("devices = 1");

/// The first bytes of a gRPC connection.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The preamble of a command connection, version 1, for a session that does not exist.
const PREAMBLE: &[u8; 32] = b"CSWY\x01\x00\x01\x00sixteen bytes of\0\0\0\0\0\0\0\0";

pub(super) fn no_server(stage: &Stage) -> Result<Verdict, Wrong> {
    absent(stage, &peers::nobody()?)
}

pub(super) fn silent_server(stage: &Stage) -> Result<Verdict, Wrong> {
    // The server reads, so that no connection fills up, but never answers.
    let silent = peers::server(|mut stream| {
        let mut bytes = [0; 4096];
        while matches!(stream.read(&mut bytes), Ok(1..)) {}
    })?;
    absent(stage, &silent)
}

pub(super) fn server_of_garbage(stage: &Stage) -> Result<Verdict, Wrong> {
    let garbage = peers::random(64 << 10)?;
    let talker = peers::server(move |mut stream| {
        let _ = stream.write_all(&garbage);
        let mut bytes = [0; 4096];
        while matches!(stream.read(&mut bytes), Ok(1..)) {}
    })?;
    absent(stage, &talker)
}

/// Alone, such a server leaves a program without devices. Beside a good node, the program
/// gets that node's devices.
fn absent(stage: &Stage, server: &str) -> Result<Verdict, Wrong> {
    let node = Node::start_on(stage, FAKE, None)?;
    let both = Way::to(server).and(node.address());
    let mut program = RunningProgram::program(stage, "steady", &both)?;
    program.until("round 0")?;
    program.end(PATIENCE)?.assert_said("done")?;

    let begin = Instant::now();
    let end = RunningProgram::program(stage, "enumerate", &Way::to(server))?.end(PATIENCE)?;
    let took = begin.elapsed();
    end.assert_warned(server)?;
    let saw = end.saw()?;
    if !saw.ends_with("-> CL_DEVICE_NOT_FOUND") && !saw.ends_with("-> CL_PLATFORM_NOT_FOUND_KHR") {
        return Err(end.wrong("not the error of absent devices"));
    }
    in_time(format!("{saw}, and a warning"), took, ASKING)
}

pub(super) fn garbage_random(stage: &Stage) -> Result<Verdict, Wrong> {
    garbage(stage, &peers::random(64 << 10)?)
}

pub(super) fn garbage_http(stage: &Stage) -> Result<Verdict, Wrong> {
    let requests = [
        &b"GET / HTTP/1.1\r\nHost: node\r\n\r\n"[..],
        b"POST / HTTP/1.1\r\n\r\n",
    ];
    garbage(stage, requests[0])?;
    garbage(stage, requests[1])
}

pub(super) fn garbage_half_a_preamble(stage: &Stage) -> Result<Verdict, Wrong> {
    garbage(stage, &PREAMBLE[..16])
}

/// A frame of 2^63 bytes after a preamble, and the longest frame that HTTP/2 can announce.
pub(super) fn garbage_length(stage: &Stage) -> Result<Verdict, Wrong> {
    let length = (1_u64 << 63).to_le_bytes();
    garbage(stage, &[HTTP2, &[0xff; 9]].concat())?;
    garbage(stage, &[&PREAMBLE[..], &length, &length].concat())
}

/// The daemon closes an unknown peer's connection, and another program continues.
fn garbage(stage: &Stage, bytes: &[u8]) -> Result<Verdict, Wrong> {
    let mut node = Node::start(stage, FAKE)?;
    let beside = Bystander::start(stage, &node)?;
    let begin = Instant::now();
    peers::say(node.address(), bytes, STRANGERS)?;
    let verdict = ended(
        "nothing: the stranger's connection closed",
        begin,
        STRANGERS,
    );
    beside.finish()?;
    Bystander::start(stage, &node)?.finish()?;
    node.assert_alive()?;
    verdict
}

/// A frame of 4 GiB, the largest possible length, in an open session. Only that session may end.
pub(super) fn length_in_a_session(stage: &Stage) -> Result<Verdict, Wrong> {
    let mut node = Node::start_on(stage, FAKE, None)?;
    let beside = Bystander::start(stage, &node)?;
    let relay = peers::relay_of_long_frames(node.address())?;
    let begin = Instant::now();
    let end = RunningProgram::program(stage, "steady", &Way::to(&relay))?.end(PATIENCE)?;
    let took = begin.elapsed();
    let saw = end.saw_lost()?.to_owned();
    node.assert_alive()?;
    beside.finish()?;
    in_time(saw, took, ASKING)
}

/// The current wire version, and a future one.
const VERSION: u8 = WireVersion::CURRENT.number() as u8;
const LATER: u8 = 99;

/// A gRPC message of two bytes with a number as field 1: the request for the inventory.
const fn inventory(version: u8) -> [u8; 7] {
    [0, 0, 0, 0, 2, 0x08, version]
}

const fn preamble(version: u8) -> [u8; 6] {
    [b'C', b'S', b'W', b'Y', version, 0]
}

// The beginnings of both conversations, in this version and in the future one.
const NOW: [&[u8]; 2] = [&inventory(VERSION), &preamble(VERSION)];
const NEXT: [&[u8]; 2] = [&inventory(LATER), &preamble(LATER)];

fn mismatch() -> String {
    format!("wire version {LATER}, this side {VERSION}; upgrade")
}

pub(super) fn version_in_a_call(stage: &Stage) -> Result<Verdict, Wrong> {
    let node = Node::start_on(stage, FAKE, None)?;
    let relay = peers::relay(node.address(), NOW[0], NEXT[0])?;
    let begin = Instant::now();
    let end = RunningProgram::program(stage, "enumerate", &Way::to(&relay))?.end(PATIENCE)?;
    let took = begin.elapsed();
    let saw = end.saw()?;
    end.assert_warned(&mismatch())?;
    in_time(format!("{saw}, and what to upgrade"), took, ASKING)
}

pub(super) fn version_in_a_preamble(stage: &Stage) -> Result<Verdict, Wrong> {
    let mut node = Node::start_on(stage, FAKE, None)?;
    let relay = peers::relay(node.address(), NOW[1], NEXT[1])?;
    let begin = Instant::now();
    let end = RunningProgram::program(stage, "steady", &Way::to(&relay))?.end(PATIENCE)?;
    let took = begin.elapsed();
    end.assert_warned(&format!("{} this side", mismatch()))?;
    let saw = end.saw_lost()?.to_owned();
    node.assert_alive()?;
    in_time(format!("{saw}, and what to upgrade"), took, ASKING)
}
