//! Tests random graphs of commands over three nodes. Every wait for another node's event is a mirror. User events are
//! set late, in any order, some to an error. Every command must end, with the right status.

use std::collections::HashMap;

use causeway_proto::command::{
    AddLink, CreateMirror, CreateUserEvent, Marker, ObjectKind, SetUserEventStatus, TellEvent,
    command::Kind, enqueue,
};
use prost::bytes::Bytes;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

use crate::common::{Daemon, Session, linear, write};

const SITES: usize = 3;
const GRAPHS: u64 = 150;
const COMMANDS: usize = 40;
const WAIT_LIST_FAILED: i32 = -14;

struct Site {
    session: Session,
    /// Two in-order queues and an out-of-order queue.
    queues: [u64; 3],
    buffer: u64,
}

/// An event of any site.
struct Event {
    site: usize,
    id: u64,
    /// The expected status.
    status: i32,
    is_user_event: bool,
}

struct Graph {
    rng: StdRng,
    events: Vec<Event>,
    /// Mirrors by event and site.
    mirrors: HashMap<(usize, usize), u64>,
    /// Commands that are not sent yet, by site.
    unsent: [Vec<Kind>; SITES],
}

fn link(a: usize, b: usize) -> u64 {
    1 + (a.min(b) * SITES + a.max(b)) as u64
}

fn open(daemons: &[Daemon]) -> Vec<Site> {
    let mut sites: Vec<_> = daemons
        .iter()
        .map(|daemon| {
            let mut session = daemon.session();
            let context = session.context();
            let queues = [0, 0, 1].map(|bits| session.queue(context, bits));
            let buffer = session.buffer(context, 64, &[0; 64]);
            Site {
                session,
                queues,
                buffer,
            }
        })
        .collect();
    for a in 0..SITES {
        for b in (0..SITES).filter(|b| *b != a) {
            let add = AddLink {
                link: link(a, b),
                session: Bytes::copy_from_slice(&sites[b].session.id().0),
                secret: Bytes::from_static(&[7; 32]),
                addresses: vec![daemons[b].address.clone()],
                dial: a < b,
                ..AddLink::default()
            };
            sites[a].session.send(vec![Kind::AddLink(add)]);
        }
    }
    for (a, site) in sites.iter_mut().enumerate() {
        for b in (0..SITES).filter(|b| *b != a) {
            assert!(site.session.link_state(link(a, b), 0).up);
        }
    }
    sites
}

impl Graph {
    fn user_event(&mut self, sites: &mut [Site]) {
        let site = self.rng.random_range(0..SITES);
        let event = sites[site].session.new_id();
        self.unsent[site].push(Kind::CreateUserEvent(CreateUserEvent { event }));
        let status = if self.rng.random_bool(0.2) { -9 } else { 0 };
        self.events.push(Event {
            site,
            id: event,
            status,
            is_user_event: true,
        });
    }

    /// Returns the id of an event on a site: the event's own, or a mirror's.
    fn named(&mut self, event: usize, on: usize, sites: &mut [Site]) -> u64 {
        let (from, id) = (self.events[event].site, self.events[event].id);
        // A mirror of a site's own event is valid too.
        if from == on && self.rng.random_bool(0.8) {
            return id;
        }
        if let Some(mirror) = self.mirrors.get(&(event, on)) {
            return *mirror;
        }
        let mirror = sites[on].session.new_id();
        let link = if from == on { 0 } else { link(from, on) };
        self.unsent[on].push(Kind::CreateMirror(CreateMirror { mirror, link }));
        self.unsent[from].push(Kind::TellEvent(TellEvent {
            event: id,
            mirror,
            link,
            order_only: false,
        }));
        self.mirrors.insert((event, on), mirror);
        mirror
    }

    fn command(&mut self, sites: &mut [Site]) {
        let site = self.rng.random_range(0..SITES);
        let count = self.rng.random_range(0..=3).min(self.events.len());
        let waits: Vec<usize> = (0..count)
            .map(|_| self.rng.random_range(0..self.events.len()))
            .collect();
        let failed = waits.iter().any(|wait| self.events[*wait].status < 0);
        let wait = waits
            .iter()
            .map(|wait| self.named(*wait, site, sites))
            .collect();
        let at = &mut sites[site];
        let event = at.session.new_id();
        let operation = if self.rng.random_bool(0.3) {
            enqueue::Operation::Marker(Marker {})
        } else {
            write(at.buffer, linear(0, 4), Some(b"word"))
        };
        self.unsent[site].push(Kind::Enqueue(causeway_proto::command::Enqueue {
            event,
            queue: *at.queues.choose(&mut self.rng).unwrap(),
            wait,
            unobserved: false,
            operation: Some(operation),
        }));
        self.events.push(Event {
            site,
            id: event,
            status: if failed { WAIT_LIST_FAILED } else { 0 },
            is_user_event: false,
        });
    }

    /// Sends all commands, to one site after the other.
    fn send(&mut self, sites: &mut [Site]) {
        let mut order: Vec<usize> = (0..SITES).collect();
        order.shuffle(&mut self.rng);
        for site in order {
            let commands = std::mem::take(&mut self.unsent[site]);
            sites[site].session.send(commands);
        }
    }

    /// Sets the user events. For some events, the client sets the mirrors too.
    fn let_go(&mut self, sites: &mut [Site]) {
        let mut user_events: Vec<usize> = (0..self.events.len())
            .filter(|event| self.events[*event].is_user_event)
            .collect();
        user_events.shuffle(&mut self.rng);
        for user_event in user_events {
            let Event {
                site, id, status, ..
            } = self.events[user_event];
            if self.rng.random_bool(0.5) {
                let mirrors = self
                    .mirrors
                    .iter()
                    .filter(|((event, _), _)| *event == user_event);
                for ((_, on), mirror) in mirrors {
                    sites[*on].session.set(*mirror, status);
                }
            }
            sites[site].session.set(id, status);
        }
    }

    fn ends_well(&self, sites: &mut [Site]) {
        for event in self.events.iter().filter(|event| !event.is_user_event) {
            let ended = sites[event.site].session.wait(event.id);
            assert_eq!(ended.status, event.status, "{}", ended.message);
        }
        for ((event, on), mirror) in &self.mirrors {
            // Late messages, and the client's repetitions.
            sites[*on]
                .session
                .send(vec![Kind::SetUserEventStatus(SetUserEventStatus {
                    event: *mirror,
                    status: self.events[*event].status,
                })]);
            sites[*on].session.release(ObjectKind::Event, *mirror);
        }
        for event in &self.events {
            sites[event.site]
                .session
                .release(ObjectKind::Event, event.id);
        }
    }
}

#[test]
fn every_graph_ends_as_it_should() {
    let daemons = [(); SITES].map(|()| Daemon::fake("order = \"random\"\nseed = 3"));
    let mut sites = open(&daemons);
    for seed in 0..GRAPHS {
        let mut graph = Graph {
            rng: StdRng::seed_from_u64(seed),
            events: Vec::new(),
            mirrors: HashMap::new(),
            unsent: [const { Vec::new() }; SITES],
        };
        for _ in 0..COMMANDS {
            if graph.rng.random_bool(0.15) {
                graph.user_event(&mut sites);
            } else {
                graph.command(&mut sites);
            }
            if graph.rng.random_bool(0.1) {
                graph.send(&mut sites);
            }
        }
        graph.send(&mut sites);
        graph.let_go(&mut sites);
        graph.ends_well(&mut sites);
    }
}
