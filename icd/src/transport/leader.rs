//! Reaches the device manager that leads, of the several that the settings name.
//!
//! With one address nothing is asked in advance: its manager is believed to lead. Not here: what is said to
//! the leader. Invariants: credentials go only to configured addresses. What a cluster's managers have
//! answered is remembered for the whole process, so that no later answer of a deposed leader is believed.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_managers::probe::{self, Probed};
use causeway_managers::{
    Answered, Disbelieved, Finder, HighestTerm, Kept, NotLeader, Patience, Refusal,
};
use causeway_proto::MANAGER_PORT;
use causeway_proto::manager::GetManagerRequest;
use causeway_proto::status::{TlsFault, WireError};
use parking_lot::Mutex;
use tonic::metadata::MetadataMap;

use super::control;
use super::manager::Conversation;
use super::retry;
use super::sought;
use crate::config::{Address, ServerSettings};

/// Time limit for connecting to one manager of several, and for its answer whether it leads.
const PROBE_WITHIN: Duration = Duration::from_secs(5);

/// Least time for a manager that was just found.
const LEAST: Duration = Duration::from_millis(500);
/// Least time for a search, which asks for a second. Without it, nothing is looked for: a lease that is given back at the
/// program's end is not worth the wait.
const LOOKED_FOR: Duration = Duration::from_millis(1_500);

/// What the managers of a cluster have answered so far.
#[derive(Debug, Default)]
struct Heard {
    highest: HighestTerm,
    /// The number of the manager that led last.
    leader: Option<usize>,
}

/// By the managers' addresses, or by the name that is looked for. A process knows one cluster, or a few in tests.
static HEARD: Mutex<BTreeMap<Arc<str>, Heard>> = Mutex::new(BTreeMap::new());

/// The managers of one cluster, as the settings name them.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    addresses: Arc<str>,
    has_several: bool,
}

impl Cluster {
    fn of(manager: &ServerSettings) -> Cluster {
        Cluster {
            addresses: manager.all_addresses().into(),
            has_several: !manager.further.is_empty(),
        }
    }

    /// Whether the settings name several managers.
    pub(super) fn has_several(&self) -> bool {
        self.has_several
    }

    /// Decides whether an answer is believed, by its metadata.
    pub(super) fn hear(&self, metadata: &MetadataMap, stands_by: bool) -> Result<(), Disbelieved> {
        self.with(|heard| probe::hear(&mut heard.highest, metadata, stands_by))
    }

    /// Adds the highest known term to a call.
    pub(super) fn tell(&self, metadata: &mut MetadataMap) {
        let highest = self.with(|heard| heard.highest);
        highest.tell(metadata);
    }

    fn leader(&self) -> Option<usize> {
        self.with(|heard| heard.leader)
    }

    fn leads(&self, number: usize) {
        self.with(|heard| heard.leader = Some(number));
    }

    fn with<T>(&self, act: impl FnOnce(&mut Heard) -> T) -> T {
        let mut all = HEARD.lock();
        act(all.entry(Arc::clone(&self.addresses)).or_default())
    }
}

/// Reaches the manager that leads; takes `limit` at most. While managers answer that none of them leads,
/// this waits.
///
/// # Errors
/// [`WireError`] names all managers, with each one's reason.
pub(super) async fn reach(
    manager: &ServerSettings,
    limit: Duration,
) -> Result<Conversation, WireError> {
    talk(manager, limit, limit, |conversation| {
        std::future::ready(Ok(conversation))
    })
    .await
}

/// Has a conversation with the manager that leads; takes `limit` at most, and `each` at most with one of
/// several managers. If that manager does not lead any more or does not answer, `converse` is called again
/// with the next leader.
///
/// # Errors
/// [`WireError`] of the conversation, or as [`reach`].
pub(super) async fn talk<T, F>(
    manager: &ServerSettings,
    limit: Duration,
    each: Duration,
    converse: impl Fn(Conversation) -> F,
) -> Result<T, WireError>
where
    F: Future<Output = Result<T, WireError>>,
{
    let Some(sought) = &manager.sought else {
        let limits = Limits {
            whole: limit,
            search: limit,
            each,
        };
        return talk_at(manager, Cluster::of(manager), limits, &converse).await;
    };
    let begun = Instant::now();
    let left = || limit.saturating_sub(begun.elapsed());
    // A manager that was found may be one of several, and another host may have its address by now. So each is asked first
    // whether it leads.
    let cluster = || Cluster {
        addresses: manager.all_addresses().into(),
        has_several: true,
    };
    let mut failed = None;
    if let Some(known) = sought::known(manager, sought) {
        // Some of the time is for looking elsewhere.
        let limits = Limits {
            whole: limit,
            search: limit / 2,
            each,
        };
        match talk_at(&known, cluster(), limits, &converse).await {
            Err(error) if is_of_place(&error) => failed = Some(error),
            done => return done,
        }
        sought::forget(sought);
    }
    let for_search = left().saturating_sub(LEAST);
    if for_search < LOOKED_FOR {
        return Err(failed.unwrap_or_else(|| WireError::Unreachable {
            address: manager.all_addresses(),
            reason: "the device manager is not known yet".to_owned(),
        }));
    }
    let found = sought::find(manager, sought, for_search).await?;
    let limits = Limits {
        whole: left(),
        search: left(),
        each,
    };
    talk_at(&found, cluster(), limits, &converse).await
}

/// Time limits of a conversation with the manager that leads.
#[derive(Clone, Copy)]
struct Limits {
    whole: Duration,
    /// For finding the one that leads.
    search: Duration,
    /// For the conversation with one of several.
    each: Duration,
}

/// Talks to the manager that leads, of those at the addresses of `manager`.
async fn talk_at<T, F>(
    manager: &ServerSettings,
    cluster: Cluster,
    limits: Limits,
    converse: &impl Fn(Conversation) -> F,
) -> Result<T, WireError>
where
    F: Future<Output = Result<T, WireError>>,
{
    let limit = limits.whole;
    if !cluster.has_several {
        let converse = |_| async {
            let conversation = Conversation::once(manager, &cluster, limit).await?;
            converse(conversation).await
        };
        return control::within(limit, &manager.address, retry::persistently(converse)).await;
    }
    let mut search = Search::new(manager, cluster);
    let talking = async {
        loop {
            let found = tokio::time::timeout(limits.search, search.find()).await;
            let (number, conversation) =
                found.unwrap_or_else(|_| Err(search.failure(Some(limits.search))))?;
            let address = manager.addresses().nth(number).unwrap_or(&manager.address);
            match control::within(limits.each, address, converse(conversation)).await {
                Err(error) if is_transient(&error) => search.refused(number, error),
                done => return done,
            }
        }
    };
    match tokio::time::timeout(limit, talking).await {
        Ok(done) => done,
        Err(_) => Err(search.failure(Some(limit))),
    }
}

/// Whether another manager may soon answer in place of the one that gave this error.
fn is_transient(error: &WireError) -> bool {
    matches!(
        error,
        WireError::NotLeading { .. } | WireError::Closed { .. } | WireError::Unreachable { .. }
    )
}

/// Whether the manager may be at another address than the one that gave this error.
fn is_of_place(error: &WireError) -> bool {
    let is_other = match error {
        WireError::Tls { fault, .. } => *fault != TlsFault::OwnExpired,
        WireError::Protocol { .. } => true,
        _ => false,
    };
    is_other || is_transient(error)
}

/// A search for the leader.
struct Search<'a> {
    manager: &'a ServerSettings,
    cluster: Cluster,
    finder: Finder<WireError>,
    kept: Kept<Conversation>,
}

impl<'a> Search<'a> {
    fn new(manager: &'a ServerSettings, cluster: Cluster) -> Search<'a> {
        let count = manager.addresses().count();
        Search {
            // A manager that was found may have other addresses by now.
            finder: Finder::new(
                count,
                cluster.leader().filter(|leader| *leader < count),
                Patience::WhileAnswered,
            ),
            kept: Kept::new(count),
            manager,
            cluster,
        }
    }

    async fn find(&mut self) -> Result<(usize, Conversation), WireError> {
        let (manager, cluster, kept) = (self.manager, &self.cluster, &self.kept);
        let ask = |number| probed(manager, cluster, number, kept);
        let found = self.finder.find(ask);
        match found.await {
            Some((number, conversation)) => {
                self.cluster.leads(number);
                // The standbys may be asked no more.
                self.kept.clear();
                Ok((number, conversation))
            }
            None => Err(self.failure(None)),
        }
    }

    fn refused(&mut self, number: usize, reason: WireError) {
        let refusal = match reason {
            WireError::NotLeading { .. } => Refusal::NotLeading(None),
            _ => Refusal::Failed,
        };
        self.finder.refused(number, NotLeader { refusal, reason });
    }

    /// The error that names all managers. `waited` is the time limit that has passed, if one has. A fault of
    /// the settings or of TLS is returned itself if no manager answers, because it has a cure of its own.
    fn failure(&self, waited: Option<Duration>) -> WireError {
        let is_fault = |error: &&WireError| {
            matches!(
                error,
                WireError::Credentials { .. } | WireError::Tls { .. } | WireError::Protocol { .. }
            )
        };
        let fault = self.finder.reasons().map(|(_, of)| of).find(is_fault);
        if let Some(fault) = fault.filter(|_| !self.finder.search().is_answered()) {
            return fault.clone();
        }
        let mut reasons: Vec<String> = self.finder.reasons().map(|(_, of)| reason(of)).collect();
        if let Some(limit) = waited {
            reasons.push(format!("no leader within {} ms", limit.as_millis()));
        }
        let (address, reason) = (self.manager.all_addresses(), reasons.join("; "));
        match self.finder.search().is_answered() {
            true => WireError::NotLeading { address, reason },
            false => WireError::Unreachable { address, reason },
        }
    }
}

/// One manager's reason, with its address.
fn reason(error: &WireError) -> String {
    match error {
        WireError::NotLeading { address, reason } | WireError::Unreachable { address, reason } => {
            format!("{address}: {reason}")
        }
        error => error.to_string(),
    }
}

/// Asks one manager whether it leads, over the kept connection or a new one.
async fn probed(
    manager: &ServerSettings,
    cluster: &Cluster,
    number: usize,
    kept: &Kept<Conversation>,
) -> Result<Conversation, NotLeader<WireError>> {
    let address = manager.addresses().nth(number).unwrap_or(&manager.address);
    let server = ServerSettings {
        address: address.clone(),
        further: Vec::new(),
        ..manager.clone()
    };
    let dial = || async {
        let connect = |_| Conversation::once(&server, cluster, PROBE_WITHIN);
        let connected = retry::persistently(connect).await;
        connected.map_err(|reason| (Answered::Otherwise, failed(reason)))
    };
    let ask = |conversation: Conversation| async move {
        let led = leads(&conversation, cluster).await;
        let led = led.map_err(|probed| judged(manager, &conversation, probed));
        (conversation, led)
    };
    let probing = kept.ask(number, dial, ask, |(answered, _)| *answered);
    match tokio::time::timeout(PROBE_WITHIN, probing).await {
        Ok(probed) => probed.map_err(|(_, not)| not),
        Err(_) => Err(failed(WireError::Unreachable {
            address: address.to_string(),
            reason: format!("no answer within {} s", PROBE_WITHIN.as_secs()),
        })),
    }
}

/// Asks over a connection whether its manager leads.
async fn leads(conversation: &Conversation, cluster: &Cluster) -> Result<(), Probed> {
    let request = conversation.request(GetManagerRequest {});
    let hear = |metadata: &MetadataMap, stands_by| cluster.hear(metadata, stands_by);
    probe::leads(conversation.channel(), request, hear).await
}

/// The outcome of the question to a manager that does not lead.
fn judged(
    manager: &ServerSettings,
    conversation: &Conversation,
    probed: Probed,
) -> (Answered, NotLeader<WireError>) {
    let answered = Answered::from(&probed);
    let not = probed.not_leader(
        |named| number_of(manager, named),
        |probed| match probed {
            Probed::Broken(status) => conversation.explain(&status),
            probed => conversation.leads_not(probed.to_string()),
        },
    );
    (answered, not)
}

fn failed(reason: WireError) -> NotLeader<WireError> {
    NotLeader {
        refusal: Refusal::Failed,
        reason,
    }
}

/// The number of the manager at this address. A leader that the settings do not name is not asked, because
/// credentials are for configured addresses.
fn number_of(manager: &ServerSettings, named: &str) -> Option<usize> {
    let named = Address::with_port(named, MANAGER_PORT).ok()?;
    manager.addresses().position(|address| *address == named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_looked_for_elsewhere_unless_it_has_answered_itself() {
        let (address, reason) = ("mgr1:7078".to_owned(), "played".to_owned());
        let tls = |fault| WireError::Tls {
            address: "mgr1:7078".to_owned(),
            fault,
            reason: "played".to_owned(),
        };
        assert!(is_of_place(&tls(TlsFault::OtherName)) && is_of_place(&tls(TlsFault::OtherCa)));
        assert!(!is_of_place(&tls(TlsFault::OwnExpired)));
        assert!(!is_of_place(&WireError::Refused { address, reason }));
    }

    /// A lease is given back within a second, at the end of a program.
    #[test]
    fn without_the_time_for_a_search_nothing_is_looked_for() {
        let manager = ServerSettings {
            sought: Some(crate::config::Sought {
                name: "leader-test".to_owned(),
                domains: Vec::new(),
                routed: false,
            }),
            ..ServerSettings::at("unknown".parse().unwrap())
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let begun = Instant::now();
        let reached = runtime.block_on(reach(&manager, Duration::from_secs(1)));
        let error = reached.unwrap_err().to_string();
        assert!(error.contains("discover:leader-test"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
}
