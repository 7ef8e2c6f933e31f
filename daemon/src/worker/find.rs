//! The process that looks for a device manager by mDNS: it asks for a second, and ends.
//!
//! It reads packets of strangers, so the supervisor does not: the process is confined as the announcing one is. What it
//! finds is not proved. Invariant: the answer is bounded by the collector's limits.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use causeway_discovery::{Role, Search, SearchProgress};
use causeway_managers::sought::asked_in_turn;
use causeway_proto::metadata::ClusterId;
use causeway_serving::logging::Logging;

use super::confine;
use crate::handover::found::{self, Announced, AnnouncedManager, MOST_FOUND, Wanted};

/// Memory that the process may have, in bytes.
const MEMORY: u64 = 64 << 20;
/// How long answers are collected.
const COLLECTED_FOR: Duration = Duration::from_secs(1);

/// Runs the process; its entry point.
#[must_use]
pub fn main() -> ExitCode {
    Logging::inherited().start();
    let Some((channel, _)) = confine::begin("the process that looks for the device manager") else {
        return ExitCode::FAILURE;
    };
    let answered = causeway_confine::limit_memory(MEMORY).and_then(|()| answer(channel.into()));
    match answered {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::warn!(%error, "the device manager cannot be looked for");
            ExitCode::FAILURE
        }
    }
}

fn answer(mut channel: UnixStream) -> io::Result<()> {
    let mut question = Vec::new();
    (&mut channel).take(MOST_FOUND).read_to_end(&mut question)?;
    let wanted: Wanted = found::decode(&question).map_err(io::Error::other)?;
    let announced = search(&wanted).unwrap_or_else(|error| Announced {
        fault: Some(error.to_string()),
        ..Announced::default()
    });
    channel.write_all(&found::encode(&announced).map_err(io::Error::other)?)
}

fn search(wanted: &Wanted) -> io::Result<Announced> {
    let search = Search::begin(wanted.cas.clone(), false).map_err(io::Error::other)?;
    let mut search = search.wanted(Some(wanted.name.clone()));
    let until = search.asked() + COLLECTED_FOR;
    while search.step(until)? != SearchProgress::Over {}
    let interfaces = search.interfaces();
    let found = search.found().into_iter();
    let of_name =
        found.filter(|of| of.announcement.role == Role::Manager && of.name == wanted.name);
    let claims = of_name.map(|of| {
        let hosts = of.hosts(interfaces).into_iter();
        let addresses = hosts.map(|host| format!("{host}:{}", of.port)).collect();
        (ClusterId(of.announcement.id), addresses)
    });
    // The supervisor reads a bounded answer.
    let claims = asked_in_turn(claims.collect()).into_iter();
    let claims = claims.map(|(ClusterId(id), address)| AnnouncedManager {
        id,
        addresses: vec![address],
    });
    Ok(Announced {
        claims: claims.collect(),
        fault: None,
    })
}
