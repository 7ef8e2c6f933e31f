//! Collects the answers to a question: packets in, found nodes out.
//!
//! Pure: no sockets, no clock. A network may be hostile, so everything is bounded ([`Limits`]). Records of several
//! sources are never combined, except that several addresses of one claim come together: same name, uuid, start and port.
//!
//! Invariants: what one source says never changes or removes what another has said, as long as there is room. If room is
//! short, claims with the client's own CA stay.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use hickory_proto::rr::Name;

use crate::announcement::{Announcement, CaDigest, NodeId, Run};
use crate::interfaces::Interfaces;
use crate::message::{self, Records};

/// Limits of a collector.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most claims.
    pub instances: usize,
    /// Most claims to one name. To the wanted name, each source may make so many ([`Collector::wanted`]).
    pub of_one_name: usize,
    /// Most claims, and most incomplete ones, that packets of one source make.
    pub of_one_source: usize,
    /// Most addresses of a claim.
    pub addresses: usize,
    /// Bytes of packets that are read.
    pub bytes: usize,
    /// Bytes of packets of one source that are read, so that one host cannot use up `bytes`.
    pub bytes_of_source: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            instances: 512,
            of_one_name: 4,
            of_one_source: 64,
            addresses: 16,
            bytes: 2 << 20,
            bytes_of_source: 128 << 10,
        }
    }
}

/// An address at which a claim says that it can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedAddress {
    /// The address.
    pub address: IpAddr,
    /// The number of the interface on which it was heard.
    pub interface: u32,
    /// Whether a packet came from this address.
    pub is_source: bool,
    /// Whether the address may be dialled ([`Interfaces::may_dial`]). Others are shown, and not dialled.
    pub may_be_dialled: bool,
}

/// A node that was found. Nothing of it is proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The announced name.
    pub name: String,
    /// What it says of itself.
    pub announcement: Announcement,
    /// The port of its addresses.
    pub port: u16,
    /// Its addresses: those that packets came from, then the others.
    pub places: Vec<ClaimedAddress>,
}

/// What a packet brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A node or an address that was not known.
    New,
    /// Nothing new.
    Known,
    /// Nothing about Causeway, or no answer.
    Other,
    /// The packet was not read, because a limit is reached or because its source may not be dialled.
    Refused,
}

// Names are first, so that the claims are in the order in which clients use them. Who says something else makes another claim.
type Key = (String, NodeId, Run, u16, Announcement);

/// Collects answers; see the module.
#[derive(Debug)]
pub struct Collector {
    limits: Limits,
    own_cas: Vec<CaDigest>,
    interfaces: Interfaces,
    routed: bool,
    wanted: Option<String>,
    bytes: usize,
    by_source: HashMap<IpAddr, usize>,
    claims: BTreeMap<Key, Found>,
    /// Records of instances that are not complete, by source.
    parts: HashMap<(IpAddr, String), Part>,
}

/// The known records of an instance of one source.
#[derive(Debug, Default)]
struct Part {
    service: Option<(Name, u16)>,
    announcement: Option<Announcement>,
}

impl Collector {
    /// Makes a collector for a host with these interfaces. Claims with one of these CAs are kept first.
    #[must_use]
    pub fn new(limits: Limits, own_cas: Vec<CaDigest>, interfaces: Interfaces) -> Collector {
        Collector {
            limits,
            own_cas,
            interfaces,
            routed: false,
            wanted: None,
            bytes: 0,
            by_source: HashMap::new(),
            claims: BTreeMap::new(),
            parts: HashMap::new(),
        }
    }

    /// Also takes packets from behind routers, and lets addresses there be dialled, if `routed`.
    #[must_use]
    pub fn routed(self, routed: bool) -> Collector {
        Collector { routed, ..self }
    }

    /// Keeps claims to this name first, so many of each source. So one stranger cannot hide the service of this name.
    #[must_use]
    pub fn wanted(self, name: Option<String>) -> Collector {
        Collector {
            wanted: name,
            ..self
        }
    }

    /// Takes a packet that came from `source` on the interface with the number `interface`.
    pub fn hear(&mut self, packet: &[u8], source: SocketAddr, interface: u32) -> Heard {
        let source = source.ip();
        if !self.interfaces.may_dial(source, self.routed) || !self.has_room(packet.len(), source) {
            return Heard::Refused;
        }
        let Some(records) = message::read(packet) else {
            return Heard::Other;
        };
        let mut heard = Heard::Other;
        for instance in &records.instances {
            let Some((found, host)) = self.complete(instance, &records, source) else {
                continue;
            };
            let is_new = self.claim(found, &host, &records, (source, interface));
            match is_new {
                true => heard = Heard::New,
                false if heard == Heard::Other => heard = Heard::Known,
                false => {}
            }
        }
        heard
    }

    /// Everything found, ordered by name, then uuid.
    #[must_use]
    pub fn found(&self) -> Vec<Found> {
        self.claims.values().cloned().collect()
    }

    /// The CAs whose claims are kept first.
    #[must_use]
    pub fn own_cas(&self) -> &[CaDigest] {
        &self.own_cas
    }

    /// Returns the interfaces of this host.
    #[must_use]
    pub fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// Returns the question for all services, and for what is missing of those that are known in part.
    #[must_use]
    pub fn question(&self) -> Option<Vec<u8>> {
        let mut incomplete: Vec<String> = self
            .parts
            .keys()
            .map(|(_, instance)| instance.clone())
            .collect();
        incomplete.sort_unstable();
        incomplete.dedup();
        message::question(&incomplete)
    }

    /// Counts a packet. Returns whether it may be read.
    fn has_room(&mut self, bytes: usize, source: IpAddr) -> bool {
        let of_source = self.by_source.get(&source).copied().unwrap_or(0);
        if self.bytes + bytes > self.limits.bytes || of_source + bytes > self.limits.bytes_of_source
        {
            return false;
        }
        // A source takes at least one byte of the limit, so the table is bounded, too.
        self.bytes += bytes.max(1);
        self.by_source.insert(source, of_source + bytes);
        true
    }

    /// Joins what this packet says of an instance with what its source said before. Returns the claim without addresses,
    /// and its host, if nothing is missing.
    fn complete(
        &mut self,
        instance: &str,
        records: &Records,
        source: IpAddr,
    ) -> Option<(Found, Name)> {
        let key = (source, instance.to_owned());
        let mut part = self.parts.remove(&key).unwrap_or_default();
        if let Some(service) = records.services.get(instance) {
            part.service = Some(service.clone());
        }
        if let Some(announcement) = records.announcements.get(instance) {
            part.announcement = Some(announcement.clone());
        }
        match part {
            Part {
                service: Some((host, port)),
                announcement: Some(announcement),
            } => {
                let found = Found {
                    name: instance.to_owned(),
                    announcement,
                    port,
                    places: Vec::new(),
                };
                // Port 0 says that there is no service.
                (port != 0).then_some((found, host))
            }
            part => {
                let of_source = self.parts.keys().filter(|(of, _)| *of == source);
                let has_room = of_source.count() < self.limits.of_one_source;
                if has_room && self.parts.len() < self.limits.instances {
                    self.parts.insert(key, part);
                }
                None
            }
        }
    }

    /// Takes a claim and its addresses. Returns whether anything of it is new.
    fn claim(
        &mut self,
        found: Found,
        host: &Name,
        records: &Records,
        (source, interface): (IpAddr, u32),
    ) -> bool {
        let said = &found.announcement;
        let key = (
            found.name.clone(),
            said.id,
            said.run,
            found.port,
            said.clone(),
        );
        let is_known = self.claims.contains_key(&key);
        if !is_known
            && (self.claims_of(source) >= self.limits.of_one_source
                || !self.make_room(&found, source))
        {
            return false;
        }
        let place = |address: IpAddr| ClaimedAddress {
            address,
            interface,
            is_source: address == source,
            may_be_dialled: self.interfaces.may_dial(address, self.routed),
        };
        let others = records.addresses.get(host).into_iter().flatten();
        let mut places = vec![place(source)];
        places.extend(others.filter(|of| **of != source).map(|of| place(*of)));
        let most = self.limits.addresses;
        let mut is_new = !is_known;
        let known = self.claims.entry(key).or_insert(found);
        for place in places {
            is_new |= known.take(place, most);
        }
        is_new
    }

    fn claims_of(&self, source: IpAddr) -> usize {
        let claims = self.claims.values();
        claims.filter(|of| of.is_from(source)).count()
    }

    /// Makes room for a claim: removes one with another CA, or beside the wanted name, if this one has the client's own CA.
    /// Returns whether there is room.
    fn make_room(&mut self, found: &Found, source: IpAddr) -> bool {
        let is_wanted = self.wanted.as_ref() == Some(&found.name);
        let of_name =
            |key: &Key, of: &Found| key.0 == found.name && (!is_wanted || of.is_from(source));
        let same = self.claims.iter().filter(|(key, of)| of_name(key, of));
        let same = same.count();
        let is_name_full = same >= self.limits.of_one_name;
        if !is_name_full && self.claims.len() < self.limits.instances {
            return true;
        }
        if !self.is_own(found) {
            return false;
        }
        let is_worse = |key: &Key, of: &Found| {
            !self.is_own(of) || (is_wanted && !is_name_full && key.0 != found.name)
        };
        let is_of_others =
            |of: &Found| (of.places.iter()).any(|of| of.is_source && of.address != source);
        let may_go = |key: &Key, of: &Found| {
            let is_shared = is_wanted && is_name_full && is_of_others(of);
            (!is_name_full || of_name(key, of)) && is_worse(key, of) && !is_shared
        };
        let mut others = self.claims.iter().rev();
        let victim = others.find(|(key, of)| may_go(key, of));
        let Some(victim) = victim.map(|(key, _)| key.clone()) else {
            return false;
        };
        self.claims.remove(&victim);
        true
    }

    fn is_own(&self, found: &Found) -> bool {
        (found.announcement.ca).is_some_and(|ca| self.own_cas.contains(&ca))
    }
}

impl Found {
    /// The hosts to dial, as addresses are written: IPv6 and IPv4 by turns, each in the order in which they were found. A
    /// link-local one carries the interface on which it was heard.
    #[must_use]
    pub fn hosts(&self, interfaces: &Interfaces) -> Vec<String> {
        let usable = self.places.iter().filter(|of| of.may_be_dialled);
        let (six, four): (Vec<&ClaimedAddress>, Vec<&ClaimedAddress>) =
            usable.partition(|of| of.address.is_ipv6());
        let turns = six.len().max(four.len());
        let by_turns = (0..turns).flat_map(|turn| [six.get(turn), four.get(turn)]);
        let hosts = by_turns.flatten().filter_map(|place| match place.address {
            IpAddr::V4(v4) => Some(v4.to_string()),
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                let name = interfaces.name(place.interface)?;
                Some(format!("[{v6}%{name}]"))
            }
            IpAddr::V6(v6) => Some(format!("[{v6}]")),
        });
        hosts.collect()
    }

    /// Whether a packet with this claim came from this address.
    fn is_from(&self, source: IpAddr) -> bool {
        let mut places = self.places.iter();
        places.any(|place| place.is_source && place.address == source)
    }

    /// Takes an address. Those that packets came from are first, then those that may be dialled. Returns whether the
    /// address is new.
    fn take(&mut self, place: ClaimedAddress, most: usize) -> bool {
        let is_same = |of: &ClaimedAddress| {
            let is_local = matches!(of.address, IpAddr::V6(v6) if v6.is_unicast_link_local());
            of.address == place.address && (!is_local || of.interface == place.interface)
        };
        if let Some(known) = self.places.iter_mut().find(|of| is_same(of)) {
            known.is_source |= place.is_source;
            self.sort();
            return false;
        }
        self.places.push(place.clone());
        self.sort();
        self.places.truncate(most);
        self.places.contains(&place)
    }

    fn sort(&mut self) {
        // Stable, so that addresses keep the announced order.
        self.places
            .sort_by_key(|of| (!of.is_source, !of.may_be_dialled));
    }
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;
