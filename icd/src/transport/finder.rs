//! Looks for nodes that announce themselves on this host's networks, and for those of domains.
//!
//! A thread asks, collects the answers for a second, and ends with its sockets. If domains are configured, another thread
//! asks DNS. Later calls see what they have collected. Nothing here dials a node or decides whether one is used. Invariant:
//! at most one such thread of each kind runs for a finder, and a caller waits no longer than [`Patience`] says.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_discovery::{
    CaDigest, Found, Interfaces, Patience, Role, Search, SearchProgress, browse,
};
use causeway_security::ca_digests;
use parking_lot::{Condvar, Mutex};

use super::standard;
use crate::config::{ServerSettings, Settings, Sought};
use crate::thread::Stack;

/// How long the answers to a question are collected.
const COLLECTED_FOR: Duration = Duration::from_secs(1);
/// Shortest time from one question to the next.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Looks for nodes; see the module.
#[derive(Debug)]
pub struct Finder {
    ca: Option<PathBuf>,
    routed: bool,
    domains: Vec<String>,
    /// The name of the device manager that is looked for.
    wanted: Option<String>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<FinderState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct FinderState {
    begun: Option<Instant>,
    /// Number of threads that run.
    running: usize,
    last_new: Option<Instant>,
    known: Snapshot,
    /// The nodes of the domains.
    of_domains: Vec<Found>,
    /// What was last said to be wrong with this host's multicast.
    said: Option<&'static str>,
}

/// What a question has found.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The nodes, ordered by name, then uuid.
    pub found: Vec<Found>,
    /// The interfaces of this host.
    pub interfaces: Interfaces,
    /// The user's own CAs.
    pub own_cas: Vec<CaDigest>,
    /// Whether port 5353 could be had.
    pub has_shared_port: bool,
    /// Whether the question has come back to this host, as multicast does. Known when the question is over.
    pub hears_itself: bool,
    /// Why no question could be asked.
    pub fault: Option<String>,
    /// Why nothing is known of the domains.
    pub domain_fault: Option<String>,
}

impl Finder {
    /// Makes a finder that has not asked yet. Nodes of the user's own CA are kept first.
    #[must_use]
    pub fn new(settings: &Settings) -> Finder {
        Finder {
            ca: settings.discovery.like.tls.ca.clone(),
            routed: settings.discovery.routed,
            domains: settings.discovery.domains.clone(),
            wanted: None,
            shared: Arc::default(),
        }
    }

    /// Makes a finder for a device manager that is found by its name.
    pub(super) fn of_manager(manager: &ServerSettings, sought: &Sought) -> Finder {
        Finder {
            ca: manager.tls.ca.clone(),
            routed: sought.routed,
            domains: sought.domains.clone(),
            wanted: Some(sought.name.clone()),
            shared: Arc::default(),
        }
    }

    /// Asks, unless a question was asked a short time ago. Does not wait.
    pub fn begin(&self) {
        let mut state = self.shared.state.lock();
        let is_recent = |begun: Instant| begun.elapsed() < ASKED_AGAIN_AFTER;
        if state.running > 0 || state.begun.is_some_and(is_recent) {
            return;
        }
        (state.begun, state.last_new) = (Some(Instant::now()), None);
        let (ca, routed, wanted) = (self.ca.clone(), self.routed, self.wanted.clone());
        self.start(&mut state, Source::Networks, move |shared| {
            // An unreadable file is reported by those who connect.
            let cas = ca.and_then(|ca| ca_digests(&ca).ok()).unwrap_or_default();
            search(shared, cas, routed, wanted)
        });
        if !self.domains.is_empty() {
            let domains = self.domains.clone();
            self.start(&mut state, Source::Domains, move |shared| {
                look_up(shared, &domains)
            });
        }
    }

    /// Starts a thread that asks.
    fn start(
        &self,
        state: &mut FinderState,
        source: Source,
        ask: impl FnOnce(&Shared) -> Result<(), String> + Send + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        let asking = move || {
            // Whoever waits for the search must hear of its end in any case.
            let outcome = catch_unwind(AssertUnwindSafe(|| ask(&shared)));
            let panicked =
                |_| Err("the search for nodes panicked; this is a bug in Causeway".to_owned());
            shared.over(source, outcome.unwrap_or_else(panicked).err());
        };
        match super::thread::spawn(source.thread(), Stack::Runtime, asking) {
            Ok(()) => state.running += 1,
            Err(error) => *source.fault(&mut state.known) = Some(error.to_string()),
        }
    }

    /// Waits until the answers to the last question have come, as far as one waits for them.
    pub fn wait(&self) {
        let patience = Patience::default();
        let mut state = self.shared.state.lock();
        while let (true, Some(begun)) = (state.running > 0, state.begun) {
            let until = patience.until(begun, state.last_new);
            let over = self
                .shared
                .changed
                .wait_until(&mut state, until)
                .timed_out();
            if over && patience.until(begun, state.last_new) <= Instant::now() {
                return;
            }
        }
    }

    /// Waits until the last question is over.
    pub fn wait_for_all(&self) {
        let mut state = self.shared.state.lock();
        self.shared
            .changed
            .wait_while(&mut state, |state| state.running > 0);
    }

    /// What has been found up to now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let state = self.shared.state.lock();
        let mut snapshot = state.known.clone();
        for found in &state.of_domains {
            let said = |of: &Found| (of.name.clone(), of.announcement.id, of.announcement.role);
            let is_it = |of: &Found| said(of) == said(found);
            // What the node says itself says more.
            if !snapshot.found.iter().any(is_it) {
                snapshot.found.push(found.clone());
            }
        }
        let key = |of: &Found| (of.name.clone(), of.announcement.id);
        snapshot.found.sort_by_key(key);
        snapshot
    }
}

fn look_up(shared: &Shared, domains: &[String]) -> Result<(), String> {
    let until = Instant::now() + COLLECTED_FOR;
    let outcome = browse(domains, until, &standard::kept_free, |found| {
        let mut state = shared.state.lock();
        if state.of_domains != found {
            state.last_new = Some(Instant::now());
            state.of_domains = found;
        }
        drop(state);
        shared.changed.notify_all();
    });
    outcome.map_err(|error| error.to_string())
}

fn search(
    shared: &Shared,
    own_cas: Vec<CaDigest>,
    routed: bool,
    wanted: Option<String>,
) -> Result<(), String> {
    let kept_free = standard::kept_free();
    let search = Search::begin(own_cas, routed).map_err(|error| error.to_string())?;
    let mut search = search.wanted(wanted.clone());
    drop(kept_free);
    shared.tell(&search, false);
    let until = search.asked() + COLLECTED_FOR;
    loop {
        match search.step(until).map_err(|error| error.to_string())? {
            SearchProgress::New => shared.tell(&search, true),
            SearchProgress::Nothing => {}
            SearchProgress::Over => {
                shared.tell(&search, false);
                let is_it = |of: &Found| {
                    of.announcement.role == Role::Manager && Some(&of.name) == wanted.as_ref()
                };
                // Whoever has the only one that they look for misses nothing.
                if !search.found().iter().any(is_it) {
                    shared.warn(trouble(&search));
                }
                return Ok(());
            }
        }
    }
}

/// Why this host may not hear nodes, although it could ask. The question is over.
fn trouble(search: &Search) -> Option<&'static str> {
    match (search.has_shared_port(), search.hears_itself()) {
        (false, _) => Some(
            "UDP port 5353 is taken by a program that does not share it, so a firewall may drop the answers of servers that \
             announce themselves; `causeway doctor` says more",
        ),
        (true, false) => Some(
            "this machine does not hear its own multicast question, so servers that announce themselves may not be found; \
             `causeway doctor` says more",
        ),
        (true, true) => None,
    }
}

/// A trouble that was not the last one that was said. A question without trouble between two with it changes nothing.
fn news(said: &mut Option<&'static str>, trouble: Option<&'static str>) -> Option<&'static str> {
    let trouble = trouble.filter(|trouble| *said != Some(*trouble))?;
    *said = Some(trouble);
    Some(trouble)
}

impl Shared {
    fn warn(&self, trouble: Option<&'static str>) {
        if let Some(trouble) = news(&mut self.state.lock().said, trouble) {
            tracing::warn!("{trouble}");
        }
    }

    fn tell(&self, search: &Search, is_new: bool) {
        let found = search.found();
        let mut state = self.state.lock();
        if is_new {
            state.last_new = Some(Instant::now());
        }
        let domain_fault = state.known.domain_fault.take();
        state.known = Snapshot {
            found,
            interfaces: search.interfaces().clone(),
            own_cas: search.own_cas().to_vec(),
            has_shared_port: search.has_shared_port(),
            hears_itself: search.hears_itself(),
            fault: None,
            domain_fault,
        };
        drop(state);
        self.changed.notify_all();
    }

    fn over(&self, source: Source, fault: Option<String>) {
        let mut state = self.state.lock();
        state.running -= 1;
        let known = source.fault(&mut state.known);
        if let Some(fault) = fault.as_ref().filter(|_| fault != *known) {
            tracing::warn!("{fault}; {}", source.loss());
        }
        *known = fault;
        drop(state);
        self.changed.notify_all();
    }
}

/// Where nodes are looked for.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// This host's networks, by mDNS.
    Networks,
    /// Domains, by DNS.
    Domains,
}

impl Source {
    fn thread(self) -> &'static str {
        match self {
            Source::Networks => "cw-discover",
            Source::Domains => "cw-domains",
        }
    }

    /// What a fault leads to, for the log.
    fn loss(self) -> &'static str {
        match self {
            Source::Networks => "servers that announce themselves are not found",
            Source::Domains => "servers of the domains are not found",
        }
    }

    fn fault(self, known: &mut Snapshot) -> &mut Option<String> {
        match self {
            Source::Networks => &mut known.fault,
            Source::Domains => &mut known.domain_fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::news;

    #[test]
    fn a_trouble_is_said_once_also_if_it_comes_and_goes() {
        let mut said = None;
        let questions = [None, Some("deaf"), None, Some("deaf"), Some("taken"), None];
        let all = questions.map(|trouble| news(&mut said, trouble));
        assert_eq!(all, [None, Some("deaf"), None, None, Some("taken"), None]);
    }
}
