//! When a command ran, as far as the client knows.
//!
//! A command that is made of others (a read in pieces, a map, a copy at another site) ends with a marker, whose
//! start says nothing: it starts with the first of those. Not here: the scale on which times are shown
//! (`timer`). Invariant: times are there only after a successful end, and do not change any more.

use std::sync::Arc;

use cl_headers::types::CL_COMPLETE;

use super::Event;
use crate::stub::{Site, timer};

/// When something started, and by whose clock.
#[derive(Clone, Debug)]
pub(in crate::stub) struct Start {
    /// The node's; none is the client's own.
    pub(in crate::stub) site: Option<Arc<Site>>,
    /// On that clock, ns.
    pub(in crate::stub) ns: u64,
}

impl Event {
    /// Queued, submitted, started, ended, completed on the host clock, ns; none before a successful end, for user
    /// events, and where the node gave none. Waits while the node's clock is being read for the first time.
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

    /// What no node does starts now.
    pub(in crate::stub) fn starts_here(&self) {
        let start = Start {
            site: None,
            ns: timer::host_ns(),
        };
        self.state.lock().starts.push(start);
    }

    // When the parts of a command that is made of them started: the first at each site. They have ended.
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
    let clock = |start: &Start| start.site.as_ref().map(|site| site.index());
    match starts.iter_mut().find(|of| clock(of) == clock(&start)) {
        Some(first) => first.ns = first.ns.min(start.ns),
        None => starts.push(start),
    }
}
