//! Asks DNS servers which nodes domains have (RFC 6763): questions out, answers in, found nodes out.
//!
//! Pure: the caller passes the times, and the numbers of the questions. A domain's administrator decides what is found, so
//! addresses need not be on-link. Everything is bounded all the same.
//!
//! Invariants: a question is asked a few times only, of one server after the other. Only answers to questions that are
//! open count.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};

use crate::collector::{ClaimedAddress, Found};
use crate::interfaces::is_special;
use crate::message::{Records, instance_of};

/// Most domains that are asked for.
pub const MOST_DOMAINS: usize = 8;
/// Most nodes of one domain.
const MOST_INSTANCES: usize = 64;
/// Most addresses of a node.
const MOST_ADDRESSES: usize = 16;
/// Most questions in all.
const MOST_QUESTIONS: usize = MOST_DOMAINS * (1 + MOST_INSTANCES * 4);
/// Pause before a question is asked of the next server.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
/// How often a question is asked of each server.
const ROUNDS: usize = 2;
/// Longest answer by UDP. Longer ones are asked for by TCP.
pub(crate) const LONGEST: u16 = 4096;
/// The type of the services, below a domain.
const SERVICE: &str = "_causeway._tcp";

type Question = (Name, RecordType);

/// Asks for the nodes of domains; see the module.
#[derive(Debug)]
pub struct Browser {
    /// The services of the domains, with what is known of them.
    services: Vec<(Name, Records)>,
    /// The names of instances as their services' records have them. A name with dots may be one label or several.
    names: BTreeMap<(Name, String), Name>,
    questions: BTreeMap<Question, SentQuery>,
    servers: usize,
    /// The server that has answered last, which is asked first.
    good: usize,
    has_heard: bool,
}

#[derive(Debug)]
struct SentQuery {
    id: u16,
    times: usize,
    due: Instant,
    is_answered: bool,
}

/// A packet for the server of this number.
#[derive(Debug, PartialEq, Eq)]
pub struct Packet {
    /// The number of the server.
    pub server: usize,
    /// The packet.
    pub bytes: Vec<u8>,
}

/// What an answer brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Answered {
    /// Something that was not known.
    New,
    /// Nothing new, or no answer to an open question.
    Nothing,
    /// The answer is too long for UDP: this is to be asked by TCP.
    TooLong(Vec<u8>),
}

impl Browser {
    /// Begins to ask this number of servers for domains. Names that are not domains are left out. `id` returns numbers
    /// that others cannot guess.
    #[must_use]
    pub fn new(
        domains: &[String],
        servers: usize,
        now: Instant,
        id: &mut dyn FnMut() -> u16,
    ) -> Browser {
        let service = |domain: &String| Name::from_ascii(format!("{SERVICE}.{domain}.")).ok();
        let services = domains.iter().take(MOST_DOMAINS).filter_map(service);
        let services: Vec<_> = services
            .map(|name| (name.to_lowercase(), Records::default()))
            .collect();
        let mut browser = Browser {
            services,
            names: BTreeMap::new(),
            questions: BTreeMap::new(),
            servers,
            good: 0,
            has_heard: false,
        };
        let names: Vec<Name> = browser
            .services
            .iter()
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            browser.ask((name, RecordType::PTR), now, id);
        }
        browser
    }

    /// Returns the packets to send now.
    pub fn poll(&mut self, now: Instant) -> Vec<Packet> {
        let (servers, most, good) = (self.servers, self.servers * ROUNDS, self.good);
        let mut packets = Vec::new();
        for ((name, kind), asked) in &mut self.questions {
            if asked.is_answered || asked.times >= most || asked.due > now {
                continue;
            }
            if let Some(bytes) = packet_for(name, *kind, asked.id) {
                let server = (good + asked.times) % servers;
                packets.push(Packet { server, bytes });
            }
            asked.times += 1;
            asked.due = now + AGAIN_AFTER;
        }
        packets
    }

    /// Returns when there may be packets to send, or the wait for answers is over. `None` if no question is open.
    #[must_use]
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let most = self.servers * ROUNDS;
        let open = self.questions.values().filter(|of| !of.is_answered);
        let open = open.filter(|of| of.times < most || of.due > now);
        open.map(|of| of.due).min()
    }

    /// Whether any server has answered.
    #[must_use]
    pub fn has_heard(&self) -> bool {
        self.has_heard
    }

    /// Whether every question was answered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.questions.values().all(|of| of.is_answered)
    }

    /// Takes a packet of the server with this number. What the answer names is asked for next.
    pub fn hear(
        &mut self,
        server: usize,
        packet: &[u8],
        now: Instant,
        id: &mut dyn FnMut() -> u16,
    ) -> Answered {
        let Ok(message) = Message::from_vec(packet) else {
            return Answered::Nothing;
        };
        let [query] = &message.queries[..] else {
            return Answered::Nothing;
        };
        let question = (query.name().to_lowercase(), query.query_type());
        let is_response = message.metadata.message_type == MessageType::Response;
        let asked = self.questions.get_mut(&question);
        let open =
            |of: &&mut SentQuery| is_response && !of.is_answered && of.id == message.metadata.id;
        let Some(asked) = asked.filter(open) else {
            return Answered::Nothing;
        };
        match message.metadata.response_code {
            ResponseCode::NoError | ResponseCode::NXDomain => {
                (self.has_heard, self.good) = (true, server);
            }
            // Another server may know it.
            _ => {
                asked.due = now;
                return Answered::Nothing;
            }
        }
        if message.metadata.truncation {
            let again = packet_for(&question.0, question.1, asked.id);
            return again.map_or(Answered::Nothing, Answered::TooLong);
        }
        asked.is_answered = true;
        let before = self.found();
        self.take(&question, &message);
        self.ask_for_missing(now, id);
        match self.found() == before {
            true => Answered::Nothing,
            false => Answered::New,
        }
    }

    /// The complete nodes, ordered by name, then uuid.
    #[must_use]
    pub fn found(&self) -> Vec<Found> {
        let mut all: Vec<Found> = (self.services.iter())
            .flat_map(|(_, records)| {
                records
                    .instances
                    .iter()
                    .filter_map(|name| found(name, records))
            })
            .collect();
        all.sort_by(|one, other| {
            (&one.name, one.announcement.id).cmp(&(&other.name, other.announcement.id))
        });
        all
    }

    fn take(&mut self, question: &Question, message: &Message) {
        for (service, records) in &mut self.services {
            for record in message.all_sections() {
                match &record.data {
                    // An alias leads to addresses of another name.
                    RData::A(address) if question.1 == RecordType::A => {
                        records.address(&question.0, address.0.into());
                    }
                    RData::AAAA(address) if question.1 == RecordType::AAAA => {
                        records.address(&question.0, address.0.into());
                    }
                    RData::A(_) | RData::AAAA(_) if records.addresses.len() < MOST_INSTANCES => {
                        records.take(record, service);
                    }
                    RData::PTR(target) => {
                        let is_of_service = record.name.to_lowercase() == *service;
                        let instance = instance_of(&target.0, service).filter(|_| is_of_service);
                        let Some(instance) = instance else { continue };
                        if records.instances.len() < MOST_INSTANCES {
                            let key = (service.clone(), instance);
                            self.names.entry(key).or_insert_with(|| target.0.clone());
                            records.take(record, service);
                        }
                    }
                    RData::SRV(_) | RData::TXT(_) => {
                        // Only a list of the service names instances, so their number is bounded.
                        let instance = instance_of(&record.name, service);
                        if instance.is_some_and(|of| records.instances.contains(&of)) {
                            records.take(record, service);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn ask_for_missing(&mut self, now: Instant, id: &mut dyn FnMut() -> u16) {
        let mut missing: Vec<Question> = Vec::new();
        for (service, records) in &self.services {
            for instance in &records.instances {
                let key = (service.clone(), instance.clone());
                let Some(name) = self.names.get(&key).cloned() else {
                    continue;
                };
                match records.services.get(instance) {
                    None => missing.push((name.clone(), RecordType::SRV)),
                    Some((host, _)) if !records.addresses.contains_key(host) => {
                        missing.push((host.clone(), RecordType::A));
                        missing.push((host.clone(), RecordType::AAAA));
                    }
                    Some(_) => {}
                }
                if !records.announcements.contains_key(instance) {
                    missing.push((name, RecordType::TXT));
                }
            }
        }
        for question in missing {
            self.ask(question, now, id);
        }
    }

    fn ask(&mut self, (name, kind): Question, now: Instant, id: &mut dyn FnMut() -> u16) {
        if self.questions.len() < MOST_QUESTIONS {
            let asked = SentQuery {
                id: id(),
                times: 0,
                due: now,
                is_answered: false,
            };
            let question = (name.to_lowercase(), kind);
            self.questions.entry(question).or_insert(asked);
        }
    }
}

/// The node of this name, if nothing of it is missing. Loopback and such are no addresses of a node.
fn found(name: &str, records: &Records) -> Option<Found> {
    let (host, port) = records.services.get(name)?;
    let announcement = records.announcements.get(name)?.clone();
    let addresses = records.addresses.get(host)?;
    let place = |address: &IpAddr| ClaimedAddress {
        address: *address,
        interface: 0,
        is_source: false,
        may_be_dialled: !is_special(*address),
    };
    let places = addresses.iter().take(MOST_ADDRESSES).map(place).collect();
    (*port != 0).then(|| Found {
        name: name.to_owned(),
        announcement,
        port: *port,
        places,
    })
}

fn packet_for(name: &Name, kind: RecordType, id: u16) -> Option<Vec<u8>> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name.clone(), kind));
    let mut edns = Edns::new();
    edns.set_max_payload(LONGEST);
    message.edns = Some(edns);
    message.to_vec().ok()
}

#[cfg(test)]
#[path = "domain_tests.rs"]
mod tests;
