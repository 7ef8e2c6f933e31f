//! Tests of the collector, with packets that are made here.

use hickory_proto::op::{Message, OpCode};
use hickory_proto::rr::rdata::{A, AAAA, PTR, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record};
use proptest::prelude::*;

use super::*;
use crate::SERVICE;
use crate::announcement::Role;
use crate::interfaces::Interface;
use crate::message::LONGEST;

const OWN_CA: CaDigest = [9; 8];

fn collector(limits: Limits) -> Collector {
    let interface = |address: &str, prefix| Interface {
        index: 2,
        name: "eth0".to_owned(),
        address: address.parse().unwrap(),
        prefix,
    };
    let all = vec![interface("10.0.0.1", 16), interface("fe80::1", 64)];
    Collector::new(limits, vec![OWN_CA], Interfaces(all))
}

fn source(last: u16) -> SocketAddr {
    let [high, low] = last.to_be_bytes();
    ([10, 0, high, low], 5353).into()
}

/// A service as a host announces it.
#[derive(Clone, Debug)]
struct Said {
    name: String,
    id: u8,
    ca: Option<CaDigest>,
    addresses: Vec<IpAddr>,
    ttl: u32,
}

fn said(name: &str, id: u8) -> Said {
    Said {
        name: name.to_owned(),
        id,
        ca: None,
        addresses: Vec::new(),
        ttl: 120,
    }
}

impl Said {
    fn announcement(&self) -> Announcement {
        Announcement {
            role: Role::Node,
            id: [self.id; 16],
            run: [1; 8],
            wire: 1,
            tls: true,
            managed: false,
            ca: self.ca,
        }
    }

    fn records(&self) -> Vec<Record> {
        let service = Name::from_ascii(SERVICE).unwrap();
        let instance = service.prepend_label(self.name.as_bytes()).unwrap();
        let host = Name::from_ascii("host.local.").unwrap();
        let txt = self.announcement().to_txt();
        let txt = txt.iter().map(|(key, value)| format!("{key}={value}"));
        let mut records = vec![
            Record::from_rdata(service, self.ttl, RData::PTR(PTR(instance.clone()))),
            Record::from_rdata(
                instance.clone(),
                self.ttl,
                RData::SRV(SRV::new(0, 0, 7079, host.clone())),
            ),
            Record::from_rdata(instance, self.ttl, RData::TXT(TXT::new(txt.collect()))),
        ];
        for address in &self.addresses {
            let data = match address {
                IpAddr::V4(v4) => RData::A(A(*v4)),
                IpAddr::V6(v6) => RData::AAAA(AAAA(*v6)),
            };
            records.push(Record::from_rdata(host.clone(), self.ttl, data));
        }
        records
    }

    fn packet(&self) -> Vec<u8> {
        packet(self.records())
    }
}

fn packet(records: Vec<Record>) -> Vec<u8> {
    let mut message = Message::response(0, OpCode::Query);
    message.add_answers(records);
    message.to_vec().unwrap()
}

fn names(collector: &Collector) -> Vec<String> {
    let found = collector.found();
    found.into_iter().map(|found| found.name).collect()
}

#[test]
fn an_answer_is_a_node_with_the_addresses_that_may_be_dialled() {
    let mut collector = collector(Limits::default());
    let mut gpu = said("GPU1.lab", 1);
    let addresses = ["127.0.0.1", "8.8.8.8", "10.0.0.7", "fe80::7", "10.0.9.9"];
    gpu.addresses = addresses.map(|text| text.parse().unwrap()).to_vec();
    let heard = collector.hear(&gpu.packet(), "10.0.0.7:5353".parse().unwrap(), 2);
    assert_eq!(heard, Heard::New);
    let found = collector.found();
    assert_eq!(
        (found.len(), found[0].name.as_str(), found[0].port),
        (1, "gpu1.lab", 7079)
    );
    assert_eq!(found[0].announcement, gpu.announcement());
    let places = found[0].places.iter();
    let dialled = places
        .filter(|of| of.may_be_dialled)
        .map(|of| of.address.to_string());
    assert_eq!(
        dialled.collect::<Vec<_>>(),
        ["10.0.0.7", "fe80::7", "10.0.9.9"]
    );
    assert_eq!(found[0].places.len(), 5, "the others are shown");
    let again = collector.hear(&gpu.packet(), "10.0.0.7:5353".parse().unwrap(), 2);
    assert_eq!(again, Heard::Known);
}

#[test]
fn records_that_come_apart_are_asked_for_and_joined_for_one_source_only() {
    let mut collector = collector(Limits::default());
    let records = said("gpu1", 1).records();
    let part = |of: &[usize]| packet(of.iter().map(|at| records[*at].clone()).collect());
    assert_eq!(collector.hear(&part(&[0]), source(7), 2), Heard::Other);
    let question = Message::from_vec(&collector.question().unwrap()).unwrap();
    let asked: Vec<String> = question
        .queries
        .iter()
        .map(|of| of.query_type().to_string())
        .collect();
    assert_eq!(asked, ["PTR", "SRV", "TXT"]);
    assert_eq!(collector.hear(&part(&[1]), source(7), 2), Heard::Other);
    // Another host's text is not this host's.
    assert_eq!(collector.hear(&part(&[2]), source(8), 2), Heard::Other);
    assert_eq!(names(&collector), [""; 0]);
    assert_eq!(collector.hear(&part(&[2]), source(7), 2), Heard::New);
    assert_eq!(names(&collector), ["gpu1"]);
}

#[test]
fn claims_to_one_name_stand_side_by_side_and_none_changes_another() {
    let mut collector = collector(Limits::default());
    let mut own = said("gpu1", 1);
    own.ca = Some(OWN_CA);
    collector.hear(&own.packet(), source(7), 2);
    let before = collector.found();
    for id in 2..20 {
        collector.hear(&said("gpu1", id).packet(), source(u16::from(id) + 7), 2);
    }
    let found = collector.found();
    assert_eq!(found.len(), 4);
    assert_eq!(found[0], before[0]);
    let mut late = said("gpu1", 21);
    late.ca = Some(OWN_CA);
    assert_eq!(collector.hear(&late.packet(), source(99), 2), Heard::New);
    let ids: Vec<u8> = collector
        .found()
        .iter()
        .map(|of| of.announcement.id[0])
        .collect();
    assert_eq!(
        (ids.len(), ids[0], ids[3]),
        (4, 1, 21),
        "a stranger made room"
    );
}

#[test]
fn a_stranger_with_the_same_ca_cannot_hide_the_wanted_name() {
    let claim = |id: u8| {
        let said = Said {
            ca: Some(OWN_CA),
            ..said("mgr1", id)
        };
        said.packet()
    };
    let after_a_stranger = |wanted: Option<&str>| {
        let limits = Limits {
            instances: 8,
            ..Limits::default()
        };
        let mut collector = collector(limits).wanted(wanted.map(str::to_owned));
        for id in 10..20 {
            collector.hear(&claim(id), source(9), 2);
        }
        // Other names with the CA fill the rest.
        for id in 20..30 {
            let other = Said {
                ca: Some(OWN_CA),
                ..said(&format!("other{id}"), id)
            };
            collector.hear(&other.packet(), source(8), 2);
        }
        collector.hear(&claim(1), source(1), 2);
        let found = collector.found();
        let of_name = found.iter().filter(|of| of.name == "mgr1");
        let ids: Vec<u8> = of_name.map(|of| of.announcement.id[0]).collect();
        (ids, found.len())
    };
    assert_eq!(after_a_stranger(Some("mgr1")), (vec![1, 10, 11, 12, 13], 8));
    assert_eq!(after_a_stranger(None), (vec![10, 11, 12, 13], 8));
}

#[test]
fn a_goodbye_says_nothing_and_an_off_link_source_is_not_read() {
    let mut collector = collector(Limits::default());
    let mut gone = said("gpu1", 1);
    gone.ttl = 0;
    assert_eq!(collector.hear(&gone.packet(), source(7), 2), Heard::Other);
    let far = "192.0.2.1:5353".parse().unwrap();
    assert_eq!(
        collector.hear(&said("gpu1", 1).packet(), far, 2),
        Heard::Refused
    );
    assert_eq!(names(&collector), [""; 0]);
}

#[test]
fn a_flood_stays_within_the_limits_and_own_nodes_stay_known() {
    let mut collector = collector(Limits::default());
    let mut own = said("gpu1", 1);
    own.ca = Some(OWN_CA);
    collector.hear(&own.packet(), source(1), 2);
    let mut bytes = 0;
    for number in 0..12_000u16 {
        let packet = said(&format!("x{number}"), 2).packet();
        bytes += packet.len();
        collector.hear(&packet, source(number % 100 + 2), 2);
    }
    assert!(bytes > 2 << 20);
    assert_eq!(collector.found().len(), 512);
    assert!(names(&collector).contains(&"gpu1".to_owned()));
    assert!(collector.bytes <= 2 << 20 && collector.parts.len() <= 512);
    // One host alone does not use up what is read.
    let limits = Limits::default();
    let mut one = super::tests::collector(limits);
    for number in 0..12_000u16 {
        one.hear(&said(&format!("x{number}"), 2).packet(), source(2), 2);
    }
    assert!(one.bytes <= limits.bytes_of_source);
    assert_eq!(one.hear(&own.packet(), source(1), 2), Heard::New);
}

#[test]
fn a_node_has_at_most_sixteen_addresses_and_the_source_is_one_of_them() {
    let mut collector = collector(Limits::default());
    let mut many = said("gpu1", 1);
    many.addresses = (0..100)
        .map(|last| IpAddr::from([10, 0, 1, last]))
        .collect();
    collector.hear(&many.packet(), source(7), 2);
    let found = collector.found();
    assert_eq!(found[0].places.len(), 16);
    assert_eq!(found[0].places[0].address, source(7).ip());
}

#[test]
fn names_that_are_no_host_names_are_left_out() {
    let mut collector = collector(Limits::default());
    for name in ["gpu 1", "a/b", "\u{1b}[31mred", "p\u{fc}", "a\nb"] {
        let heard = collector.hear(&said(name, 1).packet(), source(7), 2);
        assert_eq!(heard, Heard::Other, "{name:?}");
    }
}

#[test]
fn packets_that_are_too_long_or_whose_names_loop_are_refused() {
    let mut collector = collector(Limits::default());
    let mut long = said("gpu1", 1).packet();
    long.resize(LONGEST + 1, 0);
    assert_eq!(collector.hear(&long, source(7), 2), Heard::Other);
    // A header with one answer, whose name points to itself.
    let mut looped = vec![0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    looped.extend([0xc0, 12, 0, 12, 0, 1, 0, 0, 0, 9, 0, 2, 0xc0, 12]);
    assert_eq!(collector.hear(&looped, source(7), 2), Heard::Other);
    // Counts that the packet does not have the records of.
    let counts = [
        0, 0, 0x84, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    ];
    assert_eq!(collector.hear(&counts, source(7), 2), Heard::Other);
    assert_eq!(names(&collector), [""; 0]);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_exceed_its_limits(packets: Vec<(Vec<u8>, u8)>) {
        let mut collector = collector(Limits::default());
        for (packet, from) in &packets {
            collector.hear(packet, source(u16::from(*from)), 2);
        }
        prop_assert!(collector.found().is_empty());
    }

    #[test]
    fn damaged_answers_never_make_it_panic_and_never_change_another_claim(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut: prop::sample::Index,
    ) {
        let mut collector = collector(Limits::default());
        collector.hear(&said("gpu1", 1).packet(), source(1), 2);
        let before = collector.found();
        let mut other = said("gpu1", 1);
        other.addresses = vec!["10.0.0.66".parse().unwrap()];
        let mut packet = other.packet();
        for (at, value) in damage {
            let at = at.index(packet.len());
            packet[at] = value;
        }
        collector.hear(&packet[..=cut.index(packet.len())], source(2), 2);
        collector.hear(&packet, source(2), 2);
        let found = collector.found();
        prop_assert!(found.iter().all(|of| of.places.len() <= 16));
        // The same claim may get further addresses; everything that was known stays.
        let is_it = |of: &&Found| {
            (&of.name, &of.announcement, of.port) == (&before[0].name, &before[0].announcement, before[0].port)
        };
        let kept = found.iter().find(is_it).map(|of| of.places.contains(&before[0].places[0]));
        prop_assert_eq!(kept, Some(true));
    }
}

#[test]
fn behind_routers_nodes_are_heard_and_dialled_only_if_the_user_wants_that() {
    let mut far = said("gpu1", 1);
    far.addresses = ["192.0.2.7", "127.0.0.1", "224.0.0.1"]
        .map(|of| of.parse().unwrap())
        .to_vec();
    let from = "192.0.2.7:5353".parse().unwrap();
    let mut near = collector(Limits::default());
    assert_eq!(near.hear(&far.packet(), from, 2), Heard::Refused);
    let mut routed = collector(Limits::default()).routed(true);
    assert_eq!(routed.hear(&far.packet(), from, 2), Heard::New);
    let places = routed.found().remove(0).places;
    let dialled: Vec<String> = (places.iter())
        .filter(|of| of.may_be_dialled)
        .map(|of| of.address.to_string())
        .collect();
    assert_eq!(dialled, ["192.0.2.7"]);
}
