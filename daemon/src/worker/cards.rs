//! The process that reads cards: answers what the vendor's management library says about them.
//!
//! It loads no OpenCL and has no context on a card, so it takes none of its memory. The library may block or crash;
//! a process of its own contains that. Invariant: the process ends when the supervisor closes its socket.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use causeway_serving::logging::Logging;

use super::confine;
use crate::handover::{CardFigures, CardUuid};
use crate::runtime::nvml::Nvml;
use crate::sys;

/// Runs the process; its entry point.
#[must_use]
pub fn main() -> ExitCode {
    Logging::inherited().start();
    let Some((channel, _)) = confine::begin("the process that reads cards") else {
        return ExitCode::FAILURE;
    };
    let Some(nvml) = Nvml::load() else {
        tracing::warn!("NVML cannot be loaded any more, so the use of cards is unknown");
        return ExitCode::FAILURE;
    };
    // The end of the socket is the usual way to end.
    let _ = answer(channel.into(), &nvml);
    // No exit handler of the library runs, because it could block.
    sys::exit_now(0)
}

fn answer(mut channel: UnixStream, nvml: &Nvml) -> io::Result<()> {
    loop {
        let mut count = [0];
        channel.read_exact(&mut count)?;
        let mut cards = vec![CardUuid::default(); usize::from(count[0])];
        channel.read_exact(cards.as_flattened_mut())?;
        let figures = |uuid| {
            let card = nvml.card(uuid);
            card.map_or_else(CardFigures::default, |card| card.figures())
        };
        let answer: Vec<_> = cards.iter().map(|uuid| figures(uuid).to_bytes()).collect();
        channel.write_all(answer.as_flattened())?;
    }
}
