//! How a simulated node or client reaches the manager that leads, and who has reached it.
//!
//! A [`Seeker`] asks and believes managers as those of the product do: by the same search, over connections that are kept for
//! its first seconds. A manager that is alone is not asked whether it leads. Invariant: [`There`] counts participants of one term.
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use causeway_managers::probe::{self, Probed};
use causeway_managers::{
    Answered, Disbelieved, Finder, HighestTerm, Kept, NotLeader, Patience, Refusal,
};
use causeway_proto::endpoint::KeepAlive;
use causeway_proto::manager::GetManagerRequest;
use causeway_proto::metadata::{ClusterId, Term};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::{Error, PATIENCE};

/// Time limit for a connection to one manager of several, and its answer whether it leads.
const ASK_WITHIN: Duration = Duration::from_secs(5);

/// The participants' addresses on an emulated network, and the bits of their prefix. The network has to route them.
pub(super) const FAR: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 128, 0, 0), 9);

/// A participant that looks for the leader; see the module.
pub(super) struct Seeker {
    managers: Arc<[String]>,
    highest: Mutex<HighestTerm>,
    /// The number of the manager that led last.
    led: Option<usize>,
    /// The node's uuid, which a standby counts.
    node: Option<String>,
    /// The participant's own address. Managers limit the new connections of one address.
    source: Option<IpAddr>,
}

impl Seeker {
    /// A participant that has met no manager yet.
    pub(super) fn new(managers: &Arc<[String]>) -> Seeker {
        Seeker {
            managers: Arc::clone(managers),
            highest: Mutex::default(),
            led: None,
            node: None,
            source: None,
        }
    }

    /// The same, at an address of its own: of loopback if the managers are there, otherwise of [`FAR`]. `kind` and
    /// `number` determine it.
    pub(super) fn at(self, kind: u8, number: u32) -> Seeker {
        let mut managers = self.managers.iter().map(|of| of.parse::<SocketAddr>());
        let is_near = managers.all(|of| of.is_ok_and(|of| of.ip().is_loopback()));
        let [_, a, b, c] = number.to_be_bytes();
        let second = kind.saturating_add(a);
        // 127.0.0.0/16 stays with everybody else.
        let own = match is_near {
            true => Ipv4Addr::new(127, second, b, c),
            false => Ipv4Addr::new(FAR.0.octets()[0], FAR.0.octets()[1] | second, b, c),
        };
        Seeker {
            source: Some(own.into()),
            ..self
        }
    }

    /// As [`Seeker::new`], for a node with this uuid, in hexadecimal digits.
    pub(super) fn of_node(managers: &Arc<[String]>, node: String) -> Seeker {
        Seeker {
            node: Some(node),
            ..Seeker::new(managers)
        }
    }

    /// Whether several managers share the lead.
    pub(super) fn has_several(&self) -> bool {
        self.managers.len() > 1
    }

    /// The number of the manager that led when it was last looked for.
    pub(super) fn led(&self) -> Option<usize> {
        self.led
    }

    /// Waits until a manager leads. Returns a connection to it.
    pub(super) async fn find(&mut self) -> Result<Channel, Error> {
        if let [only] = &self.managers[..] {
            return timeout(PATIENCE, dial_only(only)).await?;
        }
        let count = self.managers.len();
        let mut finder = match self.node {
            // A node looks for a leader only when it has lost one.
            Some(_) => Finder::new(count, None, Patience::Forever).after_loss_of(self.led),
            None => Finder::new(count, self.led, Patience::Forever),
        };
        let (this, kept) = (&*self, &Kept::new(count));
        let ask = |number: usize| async move {
            let asked = timeout(ASK_WITHIN, this.ask(number, kept)).await;
            asked.unwrap_or(Err(FAILED))
        };
        let found = finder.find(ask).await;
        let (number, channel) = found.ok_or("the search for a leader has ended")?;
        self.led = Some(number);
        Ok(channel)
    }

    /// Asks a manager whether it leads, over the kept connection or a new one.
    async fn ask(&self, number: usize, kept: &Kept<Channel>) -> Result<Channel, NotLeader<()>> {
        let number_of = |named: &str| self.managers.iter().position(|address| address == named);
        let dial = || async {
            let dialled = self.dial(&self.managers[number]).await;
            dialled.map_err(|_| None)
        };
        let ask = |channel: Channel| async move {
            let leads = self.leads(&channel).await;
            (channel, leads.map_err(Some))
        };
        let answered =
            |of: &Option<Probed>| of.as_ref().map_or(Answered::Otherwise, Answered::from);
        let asked = kept.ask(number, dial, ask, answered).await;
        asked.map_err(|of| of.map_or(FAILED, |probed| probed.not_leader(number_of, drop)))
    }

    /// Connects to one of several managers, with the pings of the product's nodes or clients.
    async fn dial(&self, address: &str) -> Result<Channel, Error> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
        let keep_alive = match self.node {
            Some(_) => KeepAlive::USUAL,
            None => KeepAlive::OF_SEVERAL,
        };
        let endpoint = keep_alive.of(endpoint.local_address(self.source));
        Ok(endpoint.connect().await?)
    }

    async fn leads(&self, channel: &Channel) -> Result<(), Probed> {
        let mut question = Request::new(GetManagerRequest {});
        self.tell(question.metadata_mut());
        if let Some(Ok(node)) = self.node.as_ref().map(|node| node.parse()) {
            let key = causeway_proto::metadata::NODE;
            question.metadata_mut().insert(key, node);
        }
        let hear = |metadata: &MetadataMap, stands_by| {
            self.with_highest(|highest| probe::hear(highest, metadata, stands_by))
        };
        probe::leads(channel.clone(), question, hear).await
    }

    /// Adds the highest known term to a call.
    pub(super) fn tell(&self, metadata: &mut MetadataMap) {
        self.with_highest(|highest| highest.tell(metadata));
    }

    /// Decides whether a leader's answer is believed.
    pub(super) fn believe(&self, metadata: &MetadataMap) -> Result<(), Disbelieved> {
        self.with_highest(|highest| highest.hear_metadata(metadata))
    }

    /// Decides whether a node believes a welcome.
    pub(super) fn welcomed(&self, term: u64, cluster: &[u8]) -> Result<(), Disbelieved> {
        let cluster = ClusterId::from_bytes(cluster);
        self.with_highest(|highest| highest.hear(Some(Term(term)), cluster))
    }

    /// The highest term that was met, and the cluster's id.
    pub(super) fn highest(&self) -> HighestTerm {
        self.with_highest(|highest| *highest)
    }

    /// The highest term that was met; 0 if none.
    pub(super) fn term(&self) -> u64 {
        self.highest().term().0
    }

    fn with_highest<T>(&self, act: impl FnOnce(&mut HighestTerm) -> T) -> T {
        act(&mut self.highest.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The outcome for a manager that was not reached.
const FAILED: NotLeader<()> = NotLeader {
    refusal: Refusal::Failed,
    reason: (),
};

/// Connects to the only manager. It is not pinged: the pings would be a part of its load, and it may be slow under that.
pub(super) async fn dial_only(address: &str) -> Result<Channel, Error> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    Ok(endpoint.connect().await?)
}

/// Whether the status says that another manager may answer: a connection broke, or a manager stands by.
pub(super) fn is_passing(status: &Status) -> bool {
    status.code() == tonic::Code::Unavailable || !probe::is_answer(status)
}

/// How many are with the leader of the highest term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct There {
    pub(super) term: u64,
    pub(super) count: usize,
}

impl There {
    /// Waits until they are so. Returns how they are if that takes too long.
    pub(super) async fn seen(
        there: &watch::Sender<There>,
        is_so: impl Fn(&There) -> bool,
    ) -> Result<(), There> {
        let mut changes = there.subscribe();
        // The sender lives as long as this future.
        let seen = timeout(PATIENCE, changes.wait_for(is_so)).await;
        seen.map(drop).map_err(|_| *there.borrow())
    }

    /// One has come to the leader of this term.
    pub(super) fn came(&mut self, term: u64) {
        if term > self.term {
            *self = There { term, count: 0 };
        }
        if term == self.term {
            self.count += 1;
        }
    }

    /// One has left the leader of this term.
    pub(super) fn left(&mut self, term: u64) {
        if term == self.term {
            self.count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_with_the_latest_leader_count() {
        let mut there = There::default();
        there.came(4);
        there.came(4);
        there.left(4);
        assert_eq!(there, There { term: 4, count: 1 });
        there.came(5);
        // The one that was with the last leader notices its end later.
        there.left(4);
        there.came(4);
        assert_eq!(there, There { term: 5, count: 1 });
    }
}
