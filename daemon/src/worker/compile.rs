//! The compiling worker: builds one program for the build cache, sends the result and exits.
//!
//! From its channel the worker reads the memory limit (8 bytes, little-endian), then a job up to the end
//! of the stream. It writes the cache entry, or nothing if the build failed. It runs no kernels, so no
//! code of a client can have changed the result. It runs at a lower priority than sessions.
#![forbid(unsafe_code)]

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use prost::Message;

use super::{confine, errand, session};
use crate::build_cache::{Job, pocl};
use crate::runtime::node::Node;

/// Niceness of a compiling worker: below sessions, but high enough to make progress on a busy node.
const NICE: i32 = 5;
/// Length of the memory limit on the channel, in bytes.
const LIMIT: usize = 8;

/// Runs the compiling worker; the entry point of its process.
#[must_use]
pub fn main() -> ExitCode {
    let Some((mut channel, _)) = errand::start("a compiling worker") else {
        return ExitCode::FAILURE;
    };
    let entry = match receive(&mut channel) {
        Ok(job) => build(&job).unwrap_or_default(),
        Err(error) => {
            tracing::debug!(%error, "the compiling worker received no job, so it ends");
            return ExitCode::FAILURE;
        }
    };
    errand::answer(channel, &entry, "a build")
}

fn build(job: &Job) -> Option<Vec<u8>> {
    let [own, usual] = [pocl::FOLDER, pocl::USUAL].map(std::env::var_os);
    // Rewrites paths, so that the build log reads as one from a session's worker.
    let as_usual = |log: &str| match (&own, &usual) {
        (Some(own), Some(usual)) => pocl::log_as_usual(log, own, usual),
        _ => log.to_owned(),
    };
    // The canonical path is the one under which the system lists mapped files. PoCL would create the
    // folder only later, and a missing folder has no canonical path.
    let folder = own.as_ref().and_then(|own| {
        std::fs::create_dir_all(own)
            .and_then(|()| std::fs::canonicalize(own))
            .ok()
    });
    session::compile_for_cache(&Node::load(), job, folder.as_deref(), &as_usual)
}

fn receive(channel: &mut UnixStream) -> std::io::Result<Job> {
    // Niceness is best effort.
    let _ = rustix::process::nice(NICE);
    let mut limit = [0; LIMIT];
    channel.read_exact(&mut limit)?;
    let mut job = Vec::new();
    channel.take(Job::MOST as u64).read_to_end(&mut job)?;
    confine::limit_memory(u64::from_le_bytes(limit))?;
    Ok(Job::decode(&job[..])?)
}
