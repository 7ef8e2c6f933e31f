//! The measuring process: finds out how much memory of each card a process takes by itself, and exits.
//!
//! It makes a context on one card after the other, as sessions do, and looks what the vendor's management library says
//! about its own process. Where the library names no such process, the memory of the whole card before and after
//! counts; what other programs do meanwhile is then part of the figure. Cards without the library, and those that one
//! process at a time can use, are left out. Invariant: the contexts end with the process.
#![forbid(unsafe_code)]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use causeway_proto::control::{DeviceUse, Inventory};
use causeway_serving::logging::Logging;
use prost::Message;

use super::confine;
use super::objects::warm;
use crate::runtime::compute_mode;
use crate::runtime::node::Node;
use crate::runtime::nvml::{Card, Nvml};
use crate::sys;

/// Runs the measuring process; its entry point.
#[must_use]
pub fn main() -> ExitCode {
    Logging::inherited().start();
    let Some((channel, _)) = confine::begin("the measuring process") else {
        return ExitCode::FAILURE;
    };
    let answer = Inventory {
        uses: Nvml::load().map_or_else(Vec::new, |nvml| measure(&nvml)),
        ..Inventory::default()
    };
    let written = UnixStream::from(channel).write_all(&answer.encode_to_vec());
    // No destructor or exit handler of a driver runs, because it could block.
    sys::exit_now(i32::from(written.is_err()))
}

fn measure(nvml: &Nvml) -> Vec<DeviceUse> {
    let node = Node::load();
    let mut measured = Vec::new();
    for (at, platform) in (0..).zip(node.platforms()) {
        for (index, device) in (0..).zip(platform.devices()) {
            let uuid = compute_mode::uuid(*device);
            let Some(card) = uuid.and_then(|uuid| nvml.card(&uuid)) else {
                continue;
            };
            if !card.is_shared() {
                continue;
            }
            let before = Moment::of(&card);
            // Lives until the exit, because a context that is released may leave some of its memory behind.
            let context = match warm::try_out(platform, *device) {
                Ok(context) => context,
                Err(error) => {
                    tracing::debug!(%error, at, index, "no context for measuring its memory");
                    continue;
                }
            };
            let own = Moment::of(&card).since(&before, std::process::id());
            std::mem::forget(context);
            measured.push(DeviceUse {
                platform: at,
                device: index,
                context_memory: own,
                ..DeviceUse::default()
            });
        }
    }
    measured
}

/// What the library says about a card at a moment.
#[derive(Debug, Default)]
struct Moment {
    used: Option<u64>,
    processes: Vec<(u32, u64)>,
}

impl Moment {
    fn of(card: &Card<'_>) -> Moment {
        Moment {
            used: card.memory_used(),
            processes: card.processes().unwrap_or_default(),
        }
    }

    /// Returns the bytes that the process `own` has taken since `before`. In a container, the library may have another
    /// number for it.
    fn since(&self, before: &Moment, own: u32) -> Option<u64> {
        // The library's value for an unknown size.
        const UNKNOWN: u64 = u64::MAX;
        let is_new = |of: &&(u32, u64)| before.processes.iter().all(|known| known.0 != of.0);
        let new: Vec<_> = self.processes.iter().filter(is_new).collect();
        let named = new.iter().find(|of| of.0 == own);
        let only = (new.len() == 1).then(|| new.first()).flatten();
        let size = named.or(only).map(|of| of.1);
        let size = size.filter(|size| ![0, UNKNOWN].contains(size));
        size.or_else(|| self.used?.checked_sub(before.used?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(used: u64, processes: &[(u32, u64)]) -> Moment {
        Moment {
            used: Some(used),
            processes: processes.to_vec(),
        }
    }

    #[test]
    fn the_own_process_counts_and_else_the_only_new_one() {
        let before = moment(100, &[(1, 50)]);
        let own = |after: Moment| after.since(&before, 7);
        assert_eq!(own(moment(900, &[(1, 50), (7, 30), (8, 99)])), Some(30));
        assert_eq!(own(moment(900, &[(1, 60), (9, 40)])), Some(40));
    }

    #[test]
    fn without_processes_the_whole_card_counts() {
        let before = moment(100, &[]);
        let own = |after: Moment| after.since(&before, 7);
        assert_eq!(own(moment(150, &[])), Some(50));
        assert_eq!(own(moment(150, &[(7, u64::MAX)])), Some(50));
        assert_eq!(own(moment(150, &[(8, 20), (9, 20)])), Some(50));
        assert_eq!(own(moment(90, &[])), None);
        assert_eq!(Moment::default().since(&before, 7), None);
    }
}
