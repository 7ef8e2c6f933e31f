//! Messages of a test about links, mirrors and transfers between two sessions.

use std::time::Instant;

use causeway_proto::command::{command::Kind, *};
use causeway_proto::id::SessionId;
use causeway_proto::region::Region;
use prost::bytes::Bytes;

use super::{LIMIT, Session};

impl Session {
    /// Returns the next state of a link, after this number of earlier ones.
    pub fn link_state(&mut self, link: u64, after: usize) -> LinkState {
        let until = Instant::now() + LIMIT;
        loop {
            let mut of = self.heard.links.iter().filter(|s| s.link == link);
            if let Some(state) = of.nth(after) {
                return state.clone();
            }
            assert!(Instant::now() < until, "no report about link {link}");
            assert!(self.hear(), "the session ended");
        }
    }

    /// Adds a link between both workers, in which `self` dials `address` of the other one's daemon.
    pub fn link(&mut self, other: &mut Session, address: &str) -> u64 {
        self.link_at(other, &[address])
    }

    /// As [`Session::link`], with several addresses of the other one's daemon.
    pub fn link_at(&mut self, other: &mut Session, addresses: &[&str]) -> u64 {
        let link = self.new_id();
        // The real client does the same.
        let resume_ms = self.resume_ms.min(other.resume_ms);
        let tell = |session: &mut Session, peer: SessionId, addresses: &[&str], dial| {
            session.send(vec![Kind::AddLink(AddLink {
                link,
                session: Bytes::copy_from_slice(&peer.0),
                secret: Bytes::from_static(&[7; 32]),
                addresses: addresses.iter().map(|at| (*at).to_owned()).collect(),
                dial,
                resume_ms,
                ..AddLink::default()
            })]);
        };
        let (own, peer) = (self.id, other.id);
        tell(other, own, &[], false);
        tell(self, peer, addresses, true);
        link
    }

    /// Waits until the worker has reported that it makes connections of the link again.
    pub fn hears_of_mending(&mut self, link: u64) {
        let until = Instant::now() + LIMIT;
        loop {
            let last = self.heard.links.iter().rfind(|state| state.link == link);
            if last.is_some_and(|state| state.mending) {
                return;
            }
            assert!(Instant::now() < until, "no report about link {link}");
            assert!(self.hear(), "the session ended");
        }
    }

    /// Waits until the worker has reported that the link is up, or down.
    pub fn hears_of_link(&mut self, link: u64, up: bool) -> LinkState {
        let until = Instant::now() + LIMIT;
        loop {
            let last = self.heard.links.iter().rfind(|state| state.link == link);
            if let Some(state) = last.filter(|state| state.up == up && !state.mending) {
                return state.clone();
            }
            assert!(Instant::now() < until, "link {link} stays as it is");
            assert!(self.hear(), "the session ended");
        }
    }

    pub fn dial(&mut self, link: u64) {
        self.send(vec![Kind::DialLink(DialLink { link })]);
    }

    pub fn route_via_client(&mut self, link: u64) {
        self.send(vec![Kind::RouteViaClient(RouteViaClient { link })]);
    }

    /// Makes a mirror of an event of `other`.
    pub fn mirror_of(&mut self, event: u64, other: &mut Session, link: u64) -> u64 {
        let mirror = self.new_id();
        self.send(vec![Kind::CreateMirror(CreateMirror { mirror, link })]);
        other.send(vec![Kind::TellEvent(TellEvent {
            event,
            mirror,
            link,
            order_only: false,
        })]);
        mirror
    }

    /// Enqueues the receiving end of a transfer. Its event names the transfer.
    pub fn receive(&mut self, queue: u64, wait: &[u64], target: (u64, Region), link: u64) -> u64 {
        let event = self.new_id();
        self.receive_as(event, queue, wait, target, link);
        event
    }

    /// Enqueues the receiving end with an existing event.
    pub fn receive_as(
        &mut self,
        event: u64,
        queue: u64,
        wait: &[u64],
        (buffer, region): (u64, Region),
        link: u64,
    ) {
        let operation = enqueue::Operation::ReceiveRegion(ReceiveRegion {
            buffer,
            region: Some(region.to_wire()),
            link,
        });
        self.enqueue_as(event, queue, wait, operation);
    }

    /// Enqueues the sending end of a transfer.
    pub fn send_region(
        &mut self,
        queue: u64,
        wait: &[u64],
        (buffer, region): (u64, Region),
        transfer: u64,
        link: u64,
    ) -> u64 {
        let operation = enqueue::Operation::SendRegion(SendRegion {
            buffer,
            region: Some(region.to_wire()),
            transfer,
            link,
        });
        self.enqueue(queue, wait, operation)
    }
}
