//! What a test says of links, mirrors and transfers between two sessions, and hears of them.

use std::time::Instant;

use causeway_proto::command::{command::Kind, *};
use causeway_proto::id::SessionId;
use causeway_proto::region::Region;
use prost::bytes::Bytes;

use super::{LIMIT, Session};

impl Session {
    /// The next thing that is said about a link, after so many that were said before.
    pub fn link_state(&mut self, link: u64, after: usize) -> LinkState {
        let until = Instant::now() + LIMIT;
        loop {
            let mut of = self.heard.links.iter().filter(|s| s.link == link);
            if let Some(state) = of.nth(after) {
                return state.clone();
            }
            assert!(Instant::now() < until, "nothing is said about link {link}");
            assert!(self.hear(), "the session ended");
        }
    }

    /// Tells both workers of a link between them; `self` dials `address` of the other one's daemon.
    pub fn link(&mut self, other: &mut Session, address: &str) -> u64 {
        let link = self.new_id();
        let tell = |session: &mut Session, peer: SessionId, address: &str, dial| {
            session.send(vec![Kind::AddLink(AddLink {
                link,
                session: Bytes::copy_from_slice(&peer.0),
                secret: Bytes::from_static(&[7; 32]),
                addresses: vec![address.to_owned()],
                dial,
                ..AddLink::default()
            })]);
        };
        let (own, peer) = (self.id, other.id);
        tell(other, own, "", false);
        tell(self, peer, address, true);
        link
    }

    /// Waits until the worker's last word is that the link is up, or is not.
    pub fn hears_of_link(&mut self, link: u64, up: bool) -> LinkState {
        let until = Instant::now() + LIMIT;
        loop {
            let last = self.heard.links.iter().rfind(|state| state.link == link);
            if let Some(state) = last.filter(|state| state.up == up) {
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

    /// A mirror here of an event of `other`'s.
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

    /// The end of a transfer that receives; its event names the transfer.
    pub fn receive(&mut self, queue: u64, wait: &[u64], target: (u64, Region), link: u64) -> u64 {
        let event = self.new_id();
        self.receive_as(event, queue, wait, target, link);
        event
    }

    /// The same with an event that was named before.
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

    /// The end that sends.
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
