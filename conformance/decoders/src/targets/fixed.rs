//! Decoders of fixed lengths: preamble, greeting, bulk header, frame. Also compressed chunks after a header, and what a
//! parked session consists of.

use causeway_daemon::handover::Assignment;
use causeway_daemon::worker::service::acknowledgements::Acknowledgements;
use causeway_daemon::worker::service::window::{BadNumber, Window};
use causeway_daemon::worker::session::parking;
use causeway_lane::{Buffer, Packer, Stream, Unpacker};
use causeway_proto::bulk::{self, Header};
use causeway_proto::command::{KernelArg, NdRange, kernel_arg};
use causeway_proto::frame;
use causeway_proto::id::{EventId, SessionId, SessionSecret};
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::preamble::{
    self, CLIENT_PROOF, ClientWord, Greeting, NONCE, PREAMBLE, Preamble, Purpose, Verdict,
    WANTS_RECORD,
};
use prost::Message;
use twox_hash::XxHash3_128;

use super::{Form, Target};

// Returns the first N bytes, padded with zeros.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0))
}

pub(super) fn targets() -> Vec<Target> {
    vec![
        preamble(),
        greeting(),
        client_proof(),
        worker_proof(),
        acknowledgements(),
        header(),
        frame_prefix(),
        chunk(),
        parked_contents(),
        parked_assignment(),
    ]
}

fn preamble() -> Target {
    let purposes = [
        Purpose::Commands,
        Purpose::CommandsGrpc,
        Purpose::Bulk,
        Purpose::Heartbeat,
        Purpose::Peer,
        Purpose::SharedBulk,
        Purpose::Measure,
    ];
    let valid = purposes.map(|purpose| {
        let preamble = Preamble {
            purpose,
            lane: 3,
            session: SessionId([9; 16]),
            link: 5,
        };
        preamble.encode().to_vec()
    });
    Target::new("preamble", Form::Bytes, valid.to_vec(), |bytes| {
        let bytes = first(bytes);
        let Ok(preamble) = Preamble::decode(&bytes) else {
            return false;
        };
        assert_eq!(Preamble::decode(&bytes), Ok(preamble));
        let _ = preamble.is_for(&SessionId([9; 16]));
        true
    })
}

fn greeting() -> Target {
    let valid = vec![
        Greeting::welcome().encode().to_vec(),
        Greeting::refusal(Verdict::TooMany).encode().to_vec(),
        Greeting::refusal(Verdict::Parked).encode().to_vec(),
    ];
    Target::new("greeting", Form::Bytes, valid, |bytes| {
        let Ok(greeting) = Greeting::decode(&first(bytes)) else {
            return false;
        };
        assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
        true
    })
}

/// The secret and the preamble of all proofs.
const SECRET: SessionSecret = SessionSecret([5; 32]);
const PREAMBLE_BYTES: [u8; PREAMBLE] = [6; PREAMBLE];

/// Proofs of clients. The nonce of the worker is always the same, so valid input stays valid.
fn client_proof() -> Target {
    let origins = [None, Some(([127, 0, 0, 1], 7079).into())];
    let valid = origins.map(|origin| {
        let word = ClientWord {
            position: 1 << 40,
            origin,
            generation: 7,
            worker: 9,
        };
        preamble::client_proof(&SECRET, &PREAMBLE_BYTES, &[0; NONCE], &word).to_vec()
    });
    Target::new("client proof", Form::Bytes, valid.to_vec(), |bytes| {
        let check = |proof: &[u8; CLIENT_PROOF]| {
            preamble::check_client_proof(&SECRET, &PREAMBLE_BYTES, &[0; NONCE], proof)
        };
        let Some(word) = check(&first(bytes)) else {
            return false;
        };
        let again = preamble::client_proof(&SECRET, &PREAMBLE_BYTES, &[0; NONCE], &word);
        assert_eq!(check(&again), Some(word));
        true
    })
}

/// Proofs of workers for one client.
fn worker_proof() -> Target {
    let word = ClientWord::default();
    let client = preamble::client_proof(&SECRET, &PREAMBLE_BYTES, &[0; NONCE], &word);
    let proof = move |position| {
        preamble::worker_proof(&SECRET, &PREAMBLE_BYTES, &[0; NONCE], &client, position)
    };
    let valid = [0, 1, WANTS_RECORD | 1, u64::MAX].map(|position| proof(position).to_vec());
    Target::new("worker proof", Form::Bytes, valid.to_vec(), move |bytes| {
        let bytes = first(bytes);
        let position =
            preamble::check_worker_proof(&SECRET, &PREAMBLE_BYTES, &[0; NONCE], &client, &bytes);
        let Some(position) = position else {
            return false;
        };
        assert_eq!(proof(position), bytes);
        true
    })
}

/// Number of event batches that the worker of the acknowledgements has sent.
const SENT: u64 = 1000;

/// Acknowledgements of a client, of which the first two bytes say how the connection cuts the others and what the client
/// names when it resumes afterwards.
fn acknowledgements() -> Target {
    let numbers = |numbers: &[u64]| -> Vec<u8> {
        let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
        [3, 200].into_iter().chain(numbers).collect()
    };
    let valid = vec![
        numbers(&[1, 2, 3]),
        numbers(&[0, 0, SENT]),
        numbers(&[SENT / 2; 4]),
    ];
    Target::new("acknowledgements", Form::Bytes, valid, |bytes| {
        let [cut, part] = first(bytes);
        let bytes = bytes.get(2..).unwrap_or_default();
        let mut window = Window::default();
        let frame = [&4u32.to_le_bytes()[..], b"four"].concat();
        window.keep(&frame.repeat(SENT as usize));
        let mut acknowledgements = Acknowledgements::default();
        let mut read = Vec::new();
        let result = bytes.chunks(1 + usize::from(cut)).try_for_each(|piece| {
            acknowledgements.read(piece, |number| {
                window.acknowledge(number)?;
                read.push(number);
                Ok(())
            })
        });
        assert!(read.is_sorted() && read.iter().all(|number| *number <= SENT));
        let last = read.last().copied().unwrap_or(0);
        match &result {
            Ok(()) => assert_eq!(read.len(), bytes.len() / 8),
            Err(BadNumber::Unsent { got, .. }) => assert!(*got > SENT),
            Err(BadNumber::Decreased { got, before }) => {
                assert!(got < before && *before == last);
            }
        }
        let named = u64::from(part) * 8;
        let resumed = window.resume(named);
        assert_eq!(resumed.ok(), (named <= SENT).then(|| last.max(named) + 1));
        result.is_ok()
    })
}

fn header() -> Target {
    let data = Header {
        kind: bulk::Kind::Data,
        transfer: EventId(7),
        offset: 9,
        length: 4096,
    };
    let valid = vec![
        data.encode().to_vec(),
        data.encode_packed(Some(100)).to_vec(),
        Header::event(EventId(1), -5).encode().to_vec(),
        Header::cancel(EventId(1), -5).encode().to_vec(),
        Header::pace(1 << 30).encode().to_vec(),
        Header::compress().encode().to_vec(),
        Header::ack(3, 1 << 20).encode().to_vec(),
        Header::ack(255, u64::MAX).encode().to_vec(),
    ];
    Target::new("bulk header", Form::Bytes, valid, |bytes| {
        let bytes = first(bytes);
        let plain = Header::decode(&bytes);
        let Ok((header, packed)) = Header::decode_packed(&bytes) else {
            assert!(plain.is_err());
            return false;
        };
        assert_eq!(plain.is_ok(), packed.is_none());
        assert!(
            header.length as usize <= BULK_CHUNK
                && packed.is_none_or(|packed| packed < header.length)
        );
        let again = header.encode_packed(packed);
        assert_eq!(Header::decode_packed(&again), Ok((header, packed)));
        true
    })
}

fn frame_prefix() -> Target {
    let valid = vec![
        vec![0; 4],
        frame::prefix(1 << 20).map_or_else(|_| Vec::new(), |of| of.to_vec()),
    ];
    Target::new("frame", Form::Bytes, valid, |bytes| {
        let bytes = first(bytes);
        let Ok(length) = frame::length(bytes) else {
            return false;
        };
        assert_eq!(frame::prefix(length), Ok(bytes));
        true
    })
    .weighing(5)
}

fn chunk() -> Target {
    let plain: Vec<u8> = (0..20_000u32).map(|i| (i / 100) as u8).collect();
    let wire = Stream::Buffer(Buffer::default());
    let header = Header {
        kind: bulk::Kind::Data,
        transfer: EventId(1),
        offset: 0,
        length: plain.len() as u32,
    };
    let packed = Packer::default().send(
        &wire,
        |packed| header.encode_packed(packed),
        |mut raw| std::io::Write::write_all(&mut raw, &plain),
    );
    let mut valid = Vec::new();
    packed.expect("memory takes bytes");
    std::io::Read::read_to_end(&mut &wire, &mut valid).expect("memory gives bytes");
    let mut unpacker = Unpacker::default();
    Target::new("compressed chunk", Form::Bytes, vec![valid], move |bytes| {
        let Ok((header, Some(packed))) = Header::decode_packed(&first(bytes)) else {
            return false;
        };
        let stream = Stream::Buffer(Buffer::default());
        let rest = bytes.get(bulk::HEADER..).unwrap_or_default();
        std::io::Write::write_all(&mut &stream, rest).expect("memory takes bytes");
        let Ok(mut raw) = unpacker.receive(&stream, packed, header.length) else {
            return false;
        };
        let length = std::io::copy(&mut raw, &mut std::io::sink()).expect("memory gives bytes");
        assert_eq!(length, u64::from(header.length));
        true
    })
    .holding(4 * BULK_CHUNK)
    .weighing(5)
}

/// The file that a worker has written, for the next worker of its session.
fn parked_contents() -> Target {
    let launch = NdRange {
        kernel: 3,
        args: vec![KernelArg {
            index: 1,
            value: Some(kernel_arg::Value::LocalSize(64)),
        }],
        ..NdRange::default()
    };
    let launch = launch.encode_to_vec();
    // The newest event, an open one, and the arguments of a kernel.
    let state = [&[8, 90, 18, 1, 70, 34, launch.len() as u8], &launch[..]].concat();
    let length = (state.len() as u64).to_le_bytes();
    let digest = XxHash3_128::oneshot(&state).to_le_bytes();
    let valid = vec![[&length[..], &state, &digest].concat()];
    Target::new("parked contents", Form::Bytes, valid, parking::is_whole)
}

/// The assignment of a parked session, as its supervisor has written it.
fn parked_assignment() -> Target {
    // Id, secret, and how far the session had come.
    let id = [&[10, 16], &[9; 16][..]].concat();
    let secret = [&[18, 32], &[5; 32][..]].concat();
    let restores = [178, 1, 4, 8, 90, 16, 70];
    let valid = vec![[&id[..], &secret, &restores].concat()];
    Target::new("parked assignment", Form::Message, valid, |bytes| {
        let Some(assignment) = Assignment::from_bytes(bytes) else {
            return false;
        };
        let encoded = assignment.to_bytes();
        let again = Assignment::from_bytes(&encoded).map(|of| of.to_bytes());
        assert_eq!(again, Some(encoded));
        true
    })
}
