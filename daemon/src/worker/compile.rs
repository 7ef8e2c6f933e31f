//! The compiling worker: builds one program for the build cache, says what came out, exits.
//!
//! Over its channel it reads the limit on its memory (8 bytes, little-endian) and a job, up to the end of
//! what is sent, and writes the entry, or nothing. It runs no kernel, so nothing but a compiler can have
//! changed what it says. It has time: sessions go first.
#![forbid(unsafe_code)]

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use prost::Message;

use super::{confine, errand, session};
use crate::build_cache::{Job, pocl};
use crate::runtime::node::Node;

/// Behind sessions, but not so far that a busy node never gets to it.
const NICE: i32 = 5;
/// Bytes of the limit on memory.
const LIMIT: usize = 8;

/// The process's `main`.
#[must_use]
pub fn main() -> ExitCode {
    let Some((mut channel, _)) = errand::start("a compiling worker") else {
        return ExitCode::FAILURE;
    };
    let entry = match receive(&mut channel) {
        Ok(job) => build(&job).unwrap_or_default(),
        Err(error) => {
            tracing::debug!(%error, "no job for the compiling worker");
            return ExitCode::FAILURE;
        }
    };
    errand::answer(channel, &entry, "a build")
}

fn build(job: &Job) -> Option<Vec<u8>> {
    let [own, usual] = [pocl::FOLDER, pocl::USUAL].map(std::env::var_os);
    // A log as a session's worker would have got it.
    let as_usual = |log: &str| match (&own, &usual) {
        (Some(own), Some(usual)) => pocl::log_as_usual(log, own, usual),
        _ => log.to_owned(),
    };
    // As the system names it where it is mapped. PoCL would make the folder later; what is not there has no name.
    let folder = own.as_ref().and_then(|own| {
        std::fs::create_dir_all(own)
            .and_then(|()| std::fs::canonicalize(own))
            .ok()
    });
    session::compile_for_cache(&Node::load(), job, folder.as_deref(), &as_usual)
}

fn receive(channel: &mut UnixStream) -> std::io::Result<Job> {
    // If it cannot be nice it is not.
    let _ = rustix::process::nice(NICE);
    let mut limit = [0; LIMIT];
    channel.read_exact(&mut limit)?;
    let mut job = Vec::new();
    channel.take(Job::MOST as u64).read_to_end(&mut job)?;
    confine::limit_memory(u64::from_le_bytes(limit))?;
    Ok(Job::decode(&job[..])?)
}
