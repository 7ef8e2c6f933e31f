//! Where all participants of a proof record what they see, and the clock by which they do.
//!
//! Invariant: the clock is that of `/proc/uptime`, which the clients' programs read.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use super::history::{History, Served, Span};
use causeway_cluster::Serving;

/// The time since the machine's start.
pub(super) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The hexadecimal digits of an id.
pub(super) fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a unit: the node's uuid in hexadecimal digits, and the device's index.
pub(super) fn unit(node: &str, device: u64) -> String {
    format!("{node}/{device}")
}

/// The record. See the module.
#[derive(Default)]
pub(super) struct Record {
    history: Mutex<History>,
    /// Leases that nodes serve now, by unit and lease.
    open: Mutex<BTreeMap<(String, String), Served>>,
}

impl Record {
    /// Adds to the history.
    pub(super) fn add(&self, add: impl FnOnce(&mut History)) {
        add(&mut self.history.lock());
    }

    /// Records a node's report.
    pub(super) fn serving(&self, of: &Serving) {
        let (at, lease, node) = (now(), digits(&of.lease), digits(&of.node));
        for device in &of.devices {
            let unit = unit(&node, (*device).into());
            let key = (unit.clone(), lease.clone());
            if of.begins {
                let begun = Served {
                    unit,
                    lease: lease.clone(),
                    user: of.user.clone(),
                    epoch: of.epoch,
                    span: Span { begin: at, end: at },
                };
                self.open.lock().insert(key, begun);
            } else if let Some(mut ended) = self.open.lock().remove(&key) {
                ended.span.end = at;
                self.history.lock().served.push(ended);
            }
        }
    }

    /// The history. What nodes still serve ends now.
    pub(super) fn finish(self) -> History {
        let mut history = self.history.into_inner();
        let open = self.open.into_inner().into_values().map(|mut of| {
            of.span.end = now();
            of
        });
        history.served.extend(open);
        history
    }
}
