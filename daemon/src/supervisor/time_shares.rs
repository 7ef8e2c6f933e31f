//! Carries out the turns of leases on devices whose `[[shares]]` have a `time`.
//!
//! [`super::turns`] decides. This task reads what the workers count, and tells each session by its slot for how long to
//! hold launches back. Without such sessions, the task sleeps. Invariant: a session is told anew before the time is
//! over, so that launches go on if this task does not.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::managed::{DeviceAt, LeaseId};
use super::turns::{Party, Turns};
use super::workers::Workers;
use crate::accounting::{DeviceName, Launches};
use crate::config::ShareSettings;

/// Time between two looks while several leases want a device, or one is limited.
const TENSE: Duration = Duration::from_millis(1);
/// Time between two looks while one lease wants a device.
const CALM: Duration = Duration::from_millis(10);
/// Time between two looks while no lease wants a device.
const QUIET: Duration = Duration::from_millis(50);
/// Time for which a session is told to hold its launches back.
const HOLD: Duration = Duration::from_millis(100);

/// A lease's part of a device's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimePart {
    pub(super) percent: u32,
    /// Whether the lease gets no more even if nobody else wants the device.
    pub(super) is_strict: bool,
}

/// Returns the remark of a node whose shares have parts of a device's time, for tools.
pub(super) fn remark(shares: &[ShareSettings]) -> Option<String> {
    let of_share = |share: &ShareSettings| {
        let parts: Vec<String> = share.times.iter().map(u32::to_string).collect();
        let strict = if share.strict { " at most" } else { "" };
        format!("{}: {} percent{strict}", share.device, parts.join(", "))
    };
    let timed = shares.iter().filter(|share| !share.times.is_empty());
    let named: Vec<String> = timed.map(of_share).collect();
    (!named.is_empty()).then(|| {
        format!(
            "TIME: leases take turns on devices whose shares have a time ({}), and a kernel that runs is not cut; \
             [[shares]] sets the times",
            named.join("; ")
        )
    })
}

type Parties = BTreeMap<LeaseId, Party>;

/// The turns on all devices.
struct Shares {
    begun: Instant,
    turns: BTreeMap<DeviceAt, Turns<LeaseId>>,
}

/// Has leases take turns, for ever.
pub(super) async fn serve(workers: Workers) {
    let mut shares = Shares {
        begun: Instant::now(),
        turns: BTreeMap::new(),
    };
    loop {
        match shares.look(&workers) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => workers.timed_session().await,
        }
    }
}

impl Shares {
    /// Looks once. Returns the time until the next look; `None` if there is nothing to share.
    fn look(&mut self, workers: &Workers) -> Option<Duration> {
        let devices = demands(workers);
        self.turns.retain(|at, _| devices.contains_key(at));
        let now = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut pause = QUIET;
        let mut may_launch = BTreeMap::new();
        for (at, parties) in &devices {
            let turns = self.turns.entry(*at).or_default();
            let allowed = turns.tick(now, parties);
            pause = pause.min(match turns.is_tense(parties) {
                true => TENSE,
                false if turns.is_wanted() => CALM,
                false => QUIET,
            });
            may_launch.insert(*at, (launches(turns, parties), allowed));
        }
        workers.each_timed(|place, entry| {
            for at in place.times().keys() {
                if let Some((launches, allowed)) = may_launch.get(at) {
                    let is_allowed = allowed.contains(&place.lease());
                    let held = Launches::Held(HOLD);
                    entry.set_launches(name(at), if is_allowed { *launches } else { held });
                }
            }
        });
        (!devices.is_empty()).then_some(pause)
    }
}

/// Returns how leases that may launch are held back.
fn launches(turns: &Turns<LeaseId>, parties: &Parties) -> Launches {
    let is_strict = parties.values().any(|party| party.is_strict);
    match parties.len() {
        _ if is_strict || turns.is_tense(parties) => Launches::InTurn,
        0 | 1 => Launches::Free,
        _ => Launches::BesideQuiet,
    }
}

/// Returns what the leases want, by device. The sessions of a lease are one party.
fn demands(workers: &Workers) -> BTreeMap<DeviceAt, Parties> {
    let mut devices: BTreeMap<DeviceAt, Parties> = BTreeMap::new();
    workers.each_timed(|place, entry| {
        for (at, part) in place.times() {
            let demand = entry.demand(name(at)).unwrap_or_default();
            let party = devices.entry(*at).or_default().entry(place.lease());
            let party = party.or_default();
            party.time = part.percent;
            party.is_strict = part.is_strict;
            party.used = party.used.saturating_add(demand.used);
            party.asked = party.asked.wrapping_add(demand.asked);
            party.waits |= demand.waits;
            party.is_under_way |= demand.is_under_way;
        }
    });
    devices
}

fn name(at: &DeviceAt) -> DeviceName {
    DeviceName(at.platform, at.device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::WhichDevice;

    #[test]
    fn tools_learn_of_parts() {
        let share = |name: &str, times, strict| ShareSettings {
            device: WhichDevice::Name(name.to_owned()),
            count: 2,
            memory: 0,
            times,
            strict,
            together: None,
        };
        assert_eq!(remark(&[share("a", vec![], false)]), None);
        let shares = [
            share("a", vec![25, 75], false),
            share("b", vec![50, 50], true),
        ];
        let said = remark(&shares).unwrap();
        assert!(
            said.contains("(a: 25, 75 percent; b: 50, 50 percent at most)"),
            "{said}"
        );
    }
}
