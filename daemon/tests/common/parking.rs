//! A client whose session is parked, and put together again.

use causeway_proto::command::{command::Kind, *};
use causeway_proto::preamble::{Purpose, Verdict, WANTS_RECORD};
use prost::bytes::Bytes;

use super::eventually;
use super::resuming::Resuming;

/// The commands that create a context (1) of a device, a queue (2) and a buffer (3). Without `contents`, as a record has
/// them.
pub fn record_on(device: u32, contents: &'static [u8]) -> Vec<Kind> {
    vec![
        Kind::CreateContext(CreateContext {
            context: 1,
            platform: 0,
            devices: vec![device],
        }),
        Kind::CreateQueue(CreateQueue {
            queue: 2,
            context: 1,
            device,
            ..CreateQueue::default()
        }),
        Kind::CreateBuffer(CreateBuffer {
            buffer: 3,
            context: 1,
            flags: 1,
            size: 64,
            contents: Bytes::from_static(contents),
        }),
    ]
}

/// Reads the buffer.
pub fn read(event: u64, wait: Vec<u64>) -> Kind {
    Kind::Enqueue(Enqueue {
        event,
        queue: 2,
        wait,
        operation: Some(enqueue::Operation::ReadBuffer(ReadBuffer {
            buffer: 3,
            region: Some(Region {
                row_length: 64,
                ..Region::default()
            }),
            bulk: false,
        })),
        ..Enqueue::default()
    })
}

/// Waits for a word about parking.
pub fn hear_parking(session: &mut Resuming, wanted: Parking) {
    while session.parkings.first() != Some(&wanted) {
        assert_eq!(session.parkings, []);
        session.hear().expect("the session goes on");
        session.acknowledge(session.handled);
    }
    session.parkings.clear();
    session.acknowledge(session.handled);
}

/// The batch with which a client says that it sends no commands.
pub fn stands() -> CommandBatch {
    CommandBatch {
        stands: true,
        ..CommandBatch::default()
    }
}

/// Does what a client does whose session is parked.
pub fn park(session: &mut Resuming) {
    hear_parking(session, Parking::Stand);
    session.send_raw(&stands());
    hear_parking(session, Parking::Done);
    session.leave();
}

/// Comes back to a daemon that has the session, and sends the record.
pub fn come_back(session: &mut Resuming, record: Vec<Kind>) -> u64 {
    let position = eventually("the node takes the session back", || {
        match session.connect(Purpose::Commands, session.handled) {
            Ok((commands, position)) => {
                session.commands = commands;
                Some(position)
            }
            Err(Verdict::Parked) => None,
            Err(other) => panic!("{other:?}"),
        }
    });
    session.heartbeat = session.connect(Purpose::Heartbeat, 0).unwrap().0;
    assert_ne!(position & WANTS_RECORD, 0, "the worker needs a record");
    session.send_raw(&CommandBatch {
        first: 1,
        commands: record
            .into_iter()
            .map(|kind| Command { kind: Some(kind) })
            .collect(),
        recorded: Recorded::Last.into(),
        ..CommandBatch::default()
    });
    position & !WANTS_RECORD
}

/// Waits for the completion of a read, and returns its bytes.
pub fn contents(session: &mut Resuming, event: u64) -> Bytes {
    loop {
        let batch = session.hear().expect("the session goes on");
        if let Some(found) = batch.completions.iter().find(|of| of.event == event) {
            assert_eq!(found.status, 0);
            return found.contents.clone();
        }
    }
}
