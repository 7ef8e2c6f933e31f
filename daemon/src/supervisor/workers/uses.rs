//! How sessions and devices are used, from the pages in which the workers count.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::domains::Domain;
use super::super::usage::Sample;
use super::super::worker::Worker;
use super::{Served, Workers, WorkersState};
use crate::accounting::DeviceName;

/// The use of a device by a session.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct SessionUse {
    /// The session's number in the log.
    pub(in super::super) session: u64,
    /// Kind of the session's domain; `None`: the session has a worker of its own.
    pub(in super::super) domain: Option<&'static str>,
    pub(in super::super) device: DeviceName,
    /// How long the session had commands under way.
    pub(in super::super) busy: Duration,
}

impl Served {
    /// Returns what the session has counted, by device.
    pub(super) fn samples(&self) -> impl Iterator<Item = Sample> + '_ {
        let session = self.worker.serial;
        let process = self.host.map_or(session, |(host, _)| host);
        let times = self.entry.busy();
        times.map(move |(device, time)| Sample {
            process,
            session,
            device,
            time,
        })
    }
}

impl WorkersState {
    /// Returns the number of the host that serves a session of this domain, and the kind of the domain.
    pub(super) fn host_of(&self, session: &Worker, domain: &Domain) -> Option<(u64, &'static str)> {
        let host = self
            .hosts
            .iter()
            .find(|host| host.has_one_of(&[session.serial]))?;
        Some((host.worker.serial, domain.kind()))
    }
}

impl Workers {
    /// Returns how long each device was busy with sessions since the daemon started.
    pub(in super::super) fn busy(&self) -> BTreeMap<DeviceName, Duration> {
        let state = &mut *self.0.state.lock();
        let samples = state.sessions.values().flat_map(Served::samples);
        state.usage.read(self.0.started.elapsed(), samples).clone()
    }

    /// Returns the use of devices by open sessions, except devices that a session has not used.
    pub(in super::super) fn session_uses(&self) -> Vec<SessionUse> {
        let state = self.0.state.lock();
        let mut uses: Vec<_> = (state.sessions.values())
            .flat_map(|served| served.samples().map(move |sample| (served, sample)))
            .filter(|(_, sample)| sample.time.busy > 0)
            .map(|(served, sample)| SessionUse {
                session: sample.session,
                domain: served.host.map(|(_, domain)| domain),
                device: sample.device,
                busy: Duration::from_nanos(sample.time.busy),
            })
            .collect();
        uses.sort_by_key(|of| (of.session, of.device));
        uses
    }

    /// Returns the number of open sessions by the kind of their domain.
    pub(in super::super) fn sessions_by_domain(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::from(["none", "user", "group", "all"].map(|of| (of, 0)));
        for served in self.0.state.lock().sessions.values() {
            let domain = served.host.map_or("none", |(_, domain)| domain);
            *counts.entry(domain).or_default() += 1;
        }
        counts
    }
}
