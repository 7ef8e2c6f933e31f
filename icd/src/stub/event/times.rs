//! Times of commands, as far as the client knows them.
//!
//! A command that consists of parts (a read in pieces, a map, a copy at another site) ends with a marker.
//! The marker's start time means nothing, so the command starts when its first part does. Not here: the
//! scale of the reported times (`timer`). Invariant: times exist only after a successful end, and never
//! change.

use std::sync::Arc;

use cl_headers::types::CL_COMPLETE;

use super::Event;
use crate::stub::{Site, device::timer};

/// A start time, and the clock that it refers to.
#[derive(Clone, Debug)]
pub(in crate::stub) struct Start {
    /// The site whose clock counts; `None` for the client's clock.
    pub(in crate::stub) site: Option<Arc<Site>>,
    /// The time in nanoseconds.
    pub(in crate::stub) ns: u64,
}

impl Event {
    /// Returns when the command was queued, submitted, started, ended and completed: host clock, in
    /// nanoseconds. `None` before a successful end, for user events, and if the node reported no times.
    /// Waits while the node's clock is being read for the first time.
    #[must_use]
    pub fn times(&self) -> Option<[u64; 5]> {
        if self.status() != CL_COMPLETE {
            return None;
        }
        let (told, starts) = {
            let state = self.state.lock();
            (state.times?, state.starts.clone())
        };
        timer::moments_of(self.queue.as_ref()?, self.queued_ns, told, &starts)
    }

    /// Records that a part without a node starts now.
    pub(in crate::stub) fn starts_here(&self) {
        let start = Start {
            site: None,
            ns: timer::host_ns(),
        };
        self.state.lock().starts.push(start);
    }

    // The start times of a composite command's parts, which have all ended: the first one for each site.
    pub(super) fn starts_of_parts(&self) -> Vec<Start> {
        let parts = {
            let state = self.state.lock();
            if state.is_composite {
                state.parts.clone()
            } else {
                Vec::new()
            }
        };
        let mut starts = Vec::new();
        for start in parts.iter().flat_map(|part| part.starts()) {
            add(&mut starts, start);
        }
        starts
    }

    fn starts(&self) -> Vec<Start> {
        let state = self.state.lock();
        match (self.site(), state.times) {
            (Some(site), Some([_, _, ns, ..])) => vec![Start {
                site: Some(site.clone()),
                ns,
            }],
            _ => state.starts.clone(),
        }
    }
}

fn add(starts: &mut Vec<Start>, start: Start) {
    // Times of different clocks cannot be compared, so each clock has its own entry.
    let clock = |start: &Start| start.site.as_ref().map(|site| site.index());
    match starts.iter_mut().find(|of| clock(of) == clock(&start)) {
        Some(first) => first.ns = first.ns.min(start.ns),
        None => starts.push(start),
    }
}
