//! Tests of [`super`]: what is asked of whom, and what counts.

use hickory_proto::rr::Record;
use hickory_proto::rr::rdata::{A, CNAME, PTR, SRV, TXT};
use proptest::prelude::*;

use super::*;

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

/// The records of a domain with one node.
fn records() -> Vec<Record> {
    let txt = ["role=node", "id=01010101010101010101010101010101", "tls=1"];
    let instance = "gpu1._causeway._tcp.lab.";
    let data = [
        ("_causeway._tcp.lab.", RData::PTR(PTR(name(instance)))),
        (
            instance,
            RData::SRV(SRV::new(0, 0, 7079, name("alias.lab."))),
        ),
        (
            instance,
            RData::TXT(TXT::new(txt.map(str::to_owned).to_vec())),
        ),
        ("alias.lab.", RData::CNAME(CNAME(name("host.lab.")))),
        ("host.lab.", RData::A(A::new(10, 1, 2, 3))),
        ("host.lab.", RData::A(A::new(127, 0, 0, 1))),
    ];
    let record = |(of, data): (&str, RData)| Record::from_rdata(name(of), 60, data);
    data.map(record).to_vec()
}

/// A server that answers one question with what it asks for.
fn answer(packet: &[u8], change: impl FnOnce(&mut Message)) -> Vec<u8> {
    let asked = Message::from_vec(packet).unwrap();
    let query = asked.queries[0].clone();
    let mut message = Message::new(asked.metadata.id, MessageType::Response, OpCode::Query);
    let is_address = query.query_type() == RecordType::A && query.name() == &name("alias.lab.");
    for record in records() {
        let is_it = record.name == *query.name() && record.record_type() == query.query_type();
        // An alias comes with what it leads to.
        let is_led_to = is_address && record.name.iter().next_back() == Some(b"lab") && {
            matches!(record.data, RData::A(_) | RData::CNAME(_))
        };
        if is_it || is_led_to {
            message.add_answer(record);
        }
    }
    message.add_query(query);
    change(&mut message);
    message.to_vec().unwrap()
}

fn browser(servers: usize, now: Instant) -> Browser {
    Browser::new(
        &["lab".to_owned(), "..".to_owned()],
        servers,
        now,
        &mut || 7,
    )
}

#[test]
fn a_node_is_found_by_the_records_of_its_domain() {
    let now = Instant::now();
    let mut browser = browser(1, now);
    let mut asked = Vec::new();
    while let packets @ [_, ..] = &browser.poll(now)[..] {
        for packet in packets {
            let message = Message::from_vec(&packet.bytes).unwrap();
            let query = &message.queries[0];
            asked.push(format!("{} {}", query.name(), query.query_type()));
            browser.hear(0, &answer(&packet.bytes, |_| {}), now, &mut || 7);
        }
    }
    asked.sort();
    assert_eq!(
        asked,
        [
            "_causeway._tcp.lab. PTR",
            "alias.lab. A",
            "alias.lab. AAAA",
            "gpu1._causeway._tcp.lab. SRV",
            "gpu1._causeway._tcp.lab. TXT",
        ]
    );
    assert_eq!(browser.next(now), None);
    assert!(browser.is_complete());
    let found = browser.found();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].name.as_str(), found[0].port), ("gpu1", 7079));
    assert_eq!(found[0].announcement.run, [0; 8], "a record cannot know it");
    let places: Vec<_> = (found[0].places.iter())
        .map(|place| (place.address.to_string(), place.may_be_dialled))
        .collect();
    assert_eq!(
        places,
        [
            ("10.1.2.3".to_owned(), true),
            ("127.0.0.1".to_owned(), false)
        ]
    );
}

/// Asks a server of these instances' names until no question is open. Returns the browser and the number of questions.
fn browse(names: &[Name], now: Instant) -> (Browser, usize) {
    let mut browser = browser(1, now);
    let mut asked = 0;
    while let packets @ [_, ..] = &browser.poll(now)[..] {
        for packet in packets {
            asked += 1;
            let query = Message::from_vec(&packet.bytes).unwrap().queries[0].clone();
            let packet = answer(&packet.bytes, |message| {
                message.answers.clear();
                for name in names {
                    let is_asked = query.name() == name;
                    let data = match query.query_type() {
                        RecordType::PTR => RData::PTR(PTR(name.clone())),
                        RecordType::SRV if is_asked => {
                            RData::SRV(SRV::new(0, 0, 7079, self::name("host.lab.")))
                        }
                        RecordType::TXT if is_asked => {
                            let keys = ["role=node", "id=01010101010101010101010101010101"];
                            RData::TXT(TXT::new(keys.map(str::to_owned).to_vec()))
                        }
                        _ => continue,
                    };
                    message.add_answer(Record::from_rdata(query.name().clone(), 60, data));
                }
                if query.query_type() == RecordType::A {
                    let data = RData::A(A::new(10, 1, 2, 3));
                    message.add_answer(Record::from_rdata(query.name().clone(), 60, data));
                }
            });
            browser.hear(0, &packet, now, &mut || 7);
        }
    }
    (browser, asked)
}

#[test]
fn the_first_64_nodes_of_a_domain_are_found_however_many_it_has() {
    let now = Instant::now();
    for (count, found) in [(63, 63), (64, 64), (65, 64), (300, 64)] {
        let names: Vec<Name> = (0..count)
            .map(|number| name(&format!("gpu{number}._causeway._tcp.lab.")))
            .collect();
        let (browser, asked) = browse(&names, now);
        assert_eq!(browser.found().len(), found, "of {count}");
        assert_eq!(asked, 1 + found * 2 + 2, "of {count}");
    }
}

#[test]
fn a_name_with_dots_is_asked_for_as_the_domain_has_it() {
    let now = Instant::now();
    let service = name("_causeway._tcp.lab.");
    let one_label = service.prepend_label("gpu1.rack2".as_bytes()).unwrap();
    let several = name("gpu2.rack2._causeway._tcp.lab.");
    let (browser, _) = browse(&[one_label, several], now);
    let found = browser.found();
    let names: Vec<&str> = found.iter().map(|of| of.name.as_str()).collect();
    assert_eq!(names, ["gpu1.rack2", "gpu2.rack2"]);
}

#[test]
fn silent_and_failing_servers_are_followed_by_the_next() {
    let begun = Instant::now();
    let mut browser = browser(2, begun);
    let mut now = begun;
    let mut servers = Vec::new();
    while let Some(next) = browser.next(now) {
        now = next;
        servers.extend(browser.poll(now).iter().map(|packet| packet.server));
    }
    assert_eq!(servers, [0, 1, 0, 1]);
    assert_eq!(now, begun + AGAIN_AFTER * 4);
    assert!(!browser.has_heard() && !browser.is_complete());
    let mut failing = self::browser(2, begun);
    let first = failing.poll(begun).remove(0);
    let failure = answer(&first.bytes, |message| {
        message.metadata.response_code = ResponseCode::ServFail;
    });
    failing.hear(0, &failure, begun, &mut || 7);
    let next: Vec<usize> = failing.poll(begun).iter().map(|of| of.server).collect();
    assert_eq!(next, [1], "at once");
    let second = failing.poll(begun + AGAIN_AFTER).remove(0);
    assert_eq!(second.server, 0);
    failing.hear(1, &answer(&second.bytes, |_| {}), begun, &mut || 7);
    let next = failing.poll(begun + AGAIN_AFTER);
    assert!(
        next.iter().all(|of| of.server == 1),
        "the one that has answered"
    );
}

#[test]
fn only_answers_to_open_questions_count() {
    let now = Instant::now();
    let mut browser = browser(1, now);
    let asked = browser.poll(now).remove(0).bytes;
    let mut hear = |change: &dyn Fn(&mut Message)| {
        let packet = answer(&asked, change);
        browser.hear(0, &packet, now, &mut || 7);
        browser.questions.len()
    };
    assert_eq!(hear(&|message| message.metadata.id = 8), 1);
    assert_eq!(
        hear(&|message| message.metadata.message_type = MessageType::Query),
        1
    );
    assert_eq!(hear(&|message| message.queries.clear()), 1);
    assert_eq!(hear(&|_| {}), 3);
    let long = answer(&asked, |message| message.metadata.truncation = true);
    let mut other = self::browser(1, now);
    other.poll(now);
    assert!(matches!(
        other.hear(0, &long, now, &mut || 7),
        Answered::TooLong(_)
    ));
}

proptest! {
    #[test]
    fn any_packet_is_read_without_panic(packet: Vec<u8>) {
        let now = Instant::now();
        let mut browser = browser(1, now);
        browser.poll(now);
        browser.hear(0, &packet, now, &mut || 7);
    }
}
