//! DNS messages: the question, and the records of an answer that matter here.
//!
//! The format is `hickory-proto`'s. Pure. Invariant: records of other services, and of other kinds, are left out before
//! anything is kept.

use std::collections::HashMap;
use std::net::IpAddr;

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::SERVICE;
use crate::announcement::{Announcement, is_of_name};

/// Longest mDNS message (RFC 6762 §17), in bytes.
pub(crate) const LONGEST: usize = 9_000;
/// Most names that a question asks for beside the service.
const MOST_ASKED: usize = 16;

/// What one packet says of Causeway's services.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// The instances that it names, in the order in which they come first.
    pub(crate) instances: Vec<String>,
    /// Host and port of each instance.
    pub(crate) services: HashMap<String, (Name, u16)>,
    pub(crate) announcements: HashMap<String, Announcement>,
    pub(crate) addresses: HashMap<Name, Vec<IpAddr>>,
}

/// Returns a packet that asks for all services, and for the missing records of these instances.
pub(crate) fn question(incomplete: &[String]) -> Option<Vec<u8>> {
    let service = Name::from_ascii(SERVICE).ok()?;
    // Multicast messages have the id 0 (RFC 6762 §18.1). A reply to a single client repeats the id.
    let mut message = Message::new(0, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(service.clone(), RecordType::PTR));
    for instance in incomplete.iter().take(MOST_ASKED) {
        let Ok(name) = service.prepend_label(instance.as_bytes()) else {
            continue;
        };
        for kind in [RecordType::SRV, RecordType::TXT] {
            message.add_query(Query::query(name.clone(), kind));
        }
    }
    message.to_vec().ok()
}

/// Reads an answer. `None` for anything else.
pub(crate) fn read(packet: &[u8]) -> Option<Records> {
    if packet.len() > LONGEST {
        return None;
    }
    let message = Message::from_vec(packet).ok()?;
    if message.metadata.message_type != MessageType::Response {
        return None;
    }
    let service = Name::from_ascii(SERVICE).ok()?.to_lowercase();
    let mut records = Records::default();
    // A record with the lifetime 0 takes a service back. Connections show that a node has gone, so it counts for nothing.
    for record in message.all_sections().filter(|of| of.ttl > 0) {
        records.take(record, &service);
    }
    Some(records)
}

impl Records {
    pub(crate) fn take(&mut self, record: &Record, service: &Name) {
        match &record.data {
            RData::PTR(target) if record.name.to_lowercase() == *service => {
                if let Some(instance) = instance_of(&target.0, service) {
                    self.name(instance);
                }
            }
            RData::SRV(srv) => {
                if let Some(instance) = instance_of(&record.name, service) {
                    let place = (srv.target.to_lowercase(), srv.port);
                    self.services.entry(instance.clone()).or_insert(place);
                    self.name(instance);
                }
            }
            RData::TXT(txt) => {
                let strings = txt.txt_data.iter().map(|string| &**string);
                if let Some(instance) = instance_of(&record.name, service)
                    && let Some(said) = Announcement::from_txt(strings)
                {
                    self.announcements.entry(instance.clone()).or_insert(said);
                    self.name(instance);
                }
            }
            RData::A(address) => self.address(&record.name, address.0.into()),
            RData::AAAA(address) => self.address(&record.name, address.0.into()),
            _ => {}
        }
    }

    fn name(&mut self, instance: String) {
        if !self.instances.contains(&instance) {
            self.instances.push(instance);
        }
    }

    pub(crate) fn address(&mut self, host: &Name, address: IpAddr) {
        let known = self.addresses.entry(host.to_lowercase()).or_default();
        if !known.contains(&address) {
            known.push(address);
        }
    }
}

/// Returns the instance of `INSTANCE.SERVICE`. It is one label, which may contain dots. Some responders make a label of
/// each part between dots, which is accepted, too. Names are shown to people and compared with certificates, so only the
/// characters of host names are accepted.
pub(crate) fn instance_of(name: &Name, service: &Name) -> Option<String> {
    let labels: Vec<&[u8]> = name.iter().collect();
    let at = labels.len().checked_sub(service.iter().count())?;
    let (instance, rest) = labels.split_at(at);
    if !rest
        .iter()
        .zip(service.iter())
        .all(|(one, other)| one.eq_ignore_ascii_case(other))
    {
        return None;
    }
    let text = String::from_utf8(instance.join(&b'.'))
        .ok()?
        .to_ascii_lowercase();
    (!text.is_empty() && text.bytes().all(is_of_name)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_what_precedes_the_service() {
        let service = Name::from_ascii(SERVICE).unwrap();
        let instance = |name: Name| instance_of(&name, &service);
        let one = service.prepend_label("GPU1.lab".as_bytes()).unwrap();
        assert_eq!(instance(one).as_deref(), Some("gpu1.lab"));
        let name = |text: &str| Name::from_ascii(text).unwrap();
        for (text, expected) in [
            ("gpu1.lab._Causeway._TCP.local.", Some("gpu1.lab")),
            ("_causeway._tcp.local.", None),
            ("local.", None),
            (".", None),
            ("gpu1._other._tcp.local.", None),
        ] {
            assert_eq!(instance(name(text)).as_deref(), expected, "{text}");
        }
    }
}
