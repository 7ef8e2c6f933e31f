//! Text outside of files: requests for devices, addresses, options and sources of programs, reports to the tool.

use causeway::config::{Address, duration};
use causeway::transport::report::SessionReport;
use causeway_daemon::config::{ManagerAddress, parse_advertised};
use causeway_proto::control::InfoAnswer;
use causeway_proto::request::{DeviceRequest, MAX_ASKED, property};
use causeway_proto::source::{Directives, Suspect, Suspects, is_blank, plain, words as options};
use causeway_serving::parse_listen;

use super::{Form, Target, words};

const REQUESTS: [&str; 3] = [
    "2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB, EXTENSIONS contains cl_khr_fp64; same-node",
    "1, NAME contains \"A \\\"B\\\" \\\\ C\", VERSION>=3.0, MAX_COMPUTE_UNITS!=0x10; 3; spread",
    "AVAILABLE=true; VENDOR_ID=4318, MAX_WORK_ITEM_SIZES>=64, DRIVER_VERSION>=535.1; any",
];
const ADDRESSES: [&str; 5] = [
    "gpu1.example:7079",
    "[::1]:7079",
    "127.0.0.1:0",
    "::1",
    "2h 30m 5s 17ms",
];
const SOURCES: [&str; 2] = [
    "#include \"a b.h\"\n#  inc\\\nlude <sys/x.cl> // c\n??=import \"y\"\n%:define X \"#include \\\" \" /* \n#include <no> */ 'a'\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n__kernel void f(__global int *a) { a[0] = 1; }\n",
    "-I /usr/include -D X=\"a b\" -DY='c \\' -cl-std=CL3.0 -include z.h -w",
];

pub(super) fn targets() -> Vec<Target> {
    vec![request(), addresses(), source(), session_report()]
}

const REPORTS: [&str; 3] = [
    "7\tnode:7079\tab12\taway\t0\tno\theartbeat",
    "7\tnode:7079\tab12\tresumed\t1234\t3",
    "7\tnode:7079\tab12\tlost\t61000\tno heartbeat",
];

// What a program tells the tool that runs it.
fn session_report() -> Target {
    Target::new("session report", Form::Bytes, seeds(&REPORTS), |bytes| {
        let Some(report) = SessionReport::decode(bytes) else {
            return false;
        };
        let again = report.encode();
        assert_eq!(SessionReport::decode(again.as_bytes()), Some(report));
        true
    })
    .weighing(4)
}

fn seeds(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

// A device that answers every query with `length` bytes.
fn answers(length: usize, byte: u8) -> Vec<InfoAnswer> {
    let answer = |property: &property::Property| InfoAnswer {
        name: property.info,
        value: vec![byte; length].into(),
        status: 0,
    };
    property::PROPERTIES.iter().map(answer).collect()
}

fn request() -> Target {
    let mut all: Vec<&str> = property::PROPERTIES
        .iter()
        .map(|property| property.name)
        .collect();
    all.extend(REQUESTS);
    let devices: Vec<_> = [
        (0, 0),
        (1, 1),
        (4, 0x40),
        (8, 0xff),
        (9, b'3'),
        (72, b' '),
        (136, b'7'),
    ]
    .into_iter()
    .map(|(length, byte)| answers(length, byte))
    .collect();
    Target::new(
        "CAUSEWAY_REQUEST",
        Form::Text(words(&all)),
        seeds(&REQUESTS),
        move |bytes| {
            let line = String::from_utf8_lossy(bytes);
            let asked = DeviceRequest::asked(&line);
            let Ok(request) = line.parse::<DeviceRequest>() else {
                assert!(asked.is_err());
                return false;
            };
            assert!(asked.is_err() || line.len() <= MAX_ASKED);
            assert_eq!(
                request.to_string().parse(),
                Ok(request.clone()),
                "{request}"
            );
            for wanted in request.wanted() {
                for device in &devices {
                    let each = wanted
                        .conditions()
                        .iter()
                        .all(|condition| condition.matches(device));
                    assert_eq!(wanted.matches(device), each);
                }
            }
            true
        },
    )
    .weighing(60)
}

fn addresses() -> Target {
    Target::new(
        "addresses and durations",
        Form::Text(words(&ADDRESSES)),
        seeds(&ADDRESSES),
        |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let address = text.parse::<Address>();
            if let Ok(address) = &address {
                assert_eq!(address.as_str().parse().as_ref(), Ok(address));
            }
            let _ = (
                duration(&text),
                parse_listen(&text, 7079),
                parse_advertised(&text),
            );
            ManagerAddress::parse(&text).is_some() || address.is_ok()
        },
    )
}

fn source() -> Target {
    Target::new(
        "OpenCL C and options",
        Form::Text(words(&SOURCES)),
        seeds(&SOURCES),
        |bytes| {
            for directive in Directives::of(bytes) {
                assert!(
                    directive.start < directive.argument && directive.argument <= directive.end
                );
                assert!(directive.end <= bytes.len());
            }
            let mut from = 0;
            for suspect in Suspects::of(bytes) {
                let (Suspect::Include { start, end, .. } | Suspect::Pragma { start, end }) =
                    suspect;
                assert!(from <= start && start < end && end <= bytes.len());
                from = end;
            }
            assert!(plain(bytes).len() <= bytes.len());
            let text = String::from_utf8_lossy(bytes);
            for word in options(&text) {
                assert!(!word.is_empty());
            }
            !is_blank(bytes)
        },
    )
}
