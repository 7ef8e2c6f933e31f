//! The messages between supervisor and worker arrive as they were sent, with their descriptors.

use super::*;
use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

use causeway_proto::id::{SessionId, SessionSecret};
use causeway_security::{Secret, SessionCertificate};

use crate::config::{MAX_WARM, SessionLimits};

fn assignment() -> Assignment {
    Assignment {
        id: SessionId([3; 16]),
        secret: SessionSecret([4; 32]),
        limits: SessionLimits {
            objects: 1,
            held_commands: 2,
            held_bytes: 3,
            device_memory: u64::MAX,
            host_memory: 5,
        },
        bulk_connections: 8,
        connect_limit: Duration::from_secs(10),
        load_limit: Duration::from_secs(60),
        heartbeat_interval: Duration::from_millis(500),
        heartbeat_limit: Duration::from_secs(4),
        away: AwayTimes {
            resume: Duration::from_secs(60),
            keep: Duration::from_secs(600),
        },
        build_cache: true,
        certificate: Some(SessionCertificate {
            certificate: vec![7; 400],
            key: Secret::new([8; 140]),
        }),
        leased: Some(vec![
            Leased {
                platform: u32::MAX,
                device: u32::MAX,
                memory: u64::MAX,
                is_timed: true,
            };
            MAX_LEASED
        ]),
        slot: u32::MAX,
        owner: Owner {
            lease: Some("5a".repeat(16)),
            user: Some("u".repeat(MAX_USER)),
        },
        restores: Some(Restores {
            applied: u64::MAX,
            events: u64::MAX,
            reexecutes: true,
        }),
        reexecutes: true,
        checkpoint_bytes: u64::MAX,
    }
}

fn assign() -> ToWorker {
    ToWorker::Assign {
        assignment: Box::new(assignment()),
        page: OwnedFd::from(File::open("/dev/null").unwrap()),
    }
}

#[test]
fn an_assignment_and_a_socket_arrive_whole() {
    let (supervisor, worker) = pair().unwrap();
    send_to_worker(&supervisor, &assign()).unwrap();
    let (mut kept, passed) = std::os::unix::net::UnixStream::pair().unwrap();
    let message = ToWorker::Connection {
        preamble: [9; PREAMBLE],
        socket: Some(passed.into()),
    };
    send_to_worker(&supervisor, &message).unwrap();
    drop(message);

    match receive_in_worker(&worker).unwrap() {
        Some(ToWorker::Assign {
            assignment: got, ..
        }) => assert_eq!(*got, assignment()),
        other => panic!("{other:?}"),
    }
    match receive_in_worker(&worker).unwrap() {
        Some(ToWorker::Connection { preamble, socket }) => {
            assert_eq!(preamble, [9; PREAMBLE]);
            let mut socket = std::os::unix::net::UnixStream::from(socket.unwrap());
            socket.write_all(b"x").unwrap();
            let mut byte = [0];
            kept.read_exact(&mut byte).unwrap();
            assert_eq!(&byte, b"x");
        }
        other => panic!("{other:?}"),
    }
    drop(supervisor);
    assert!(receive_in_worker(&worker).unwrap().is_none());
}

#[test]
fn the_files_of_a_parked_session_arrive_in_their_order() {
    let (supervisor, worker) = pair().unwrap();
    for count in [1, MOST_FILES] {
        let folder = tempfile::tempdir().unwrap();
        let files = (0..count).map(|number| {
            let path = folder.path().join(number.to_string());
            std::fs::write(&path, [number as u8]).unwrap();
            OwnedFd::from(File::open(path).unwrap())
        });
        let contents = files.collect();
        send_to_worker(&supervisor, &ToWorker::Restore { contents }).unwrap();
        let heard = receive_in_worker(&worker).unwrap();
        let Some(ToWorker::Restore { contents }) = heard else {
            panic!("{heard:?}");
        };
        let numbers = contents.into_iter().map(|file| {
            let mut number = [0];
            File::from(file).read_exact(&mut number).unwrap();
            usize::from(number[0])
        });
        assert!(numbers.eq(0..count));
    }
}

#[test]
fn a_connection_without_its_descriptor_is_no_fault_of_the_channel() {
    let (supervisor, worker) = pair().unwrap();
    send(
        &supervisor,
        &[&[CONNECTION], &[9; PREAMBLE][..]].concat(),
        None,
    )
    .unwrap();
    let received = receive_in_worker(&worker).unwrap();
    let Some(ToWorker::Connection { socket: None, .. }) = received else {
        panic!("{received:?}");
    };
}

#[test]
fn what_a_peer_said_is_heard_although_it_left_messages_unread() {
    let (supervisor, worker) = pair().unwrap();
    let host = ToWorker::Host { clears: false };
    send_to_worker(&supervisor, &host).unwrap();
    send_to_supervisor(&worker, &ToSupervisor::Released).unwrap();
    drop(worker);
    let received = receive_in_supervisor(&supervisor).unwrap();
    assert!(
        matches!(received, Some(ToSupervisor::Released)),
        "{received:?}"
    );
    assert!(receive_in_supervisor(&supervisor).unwrap().is_none());
}

#[test]
fn the_build_caches_messages_arrive_whole() {
    let (supervisor, worker) = pair().unwrap();
    let (key, ticket) = (Key([5; 32]), 6);
    let entry = OwnedFd::from(File::open("/dev/null").unwrap()).into();
    for said in [
        ToSupervisor::LookUp { ticket, key },
        ToSupervisor::Store { key, entry },
        ToSupervisor::Refused { key },
        ToSupervisor::Away { soon: false },
        ToSupervisor::Away { soon: true },
    ] {
        send_to_supervisor(&worker, &said).unwrap();
        let heard = receive_in_supervisor(&supervisor).unwrap().unwrap();
        match (&said, &heard) {
            // The received descriptor has another number, so only the keys are compared.
            (ToSupervisor::Store { key: k, .. }, ToSupervisor::Store { key, .. }) => {
                assert_eq!(k, key);
            }
            _ => assert_eq!(format!("{said:?}"), format!("{heard:?}")),
        }
    }
    for socket in [
        None,
        Some(OwnedFd::from(File::open("/dev/null").unwrap()).into()),
    ] {
        let is_there = socket.is_some();
        let line = SessionLine::Commands;
        send_to_supervisor(&worker, &ToSupervisor::Client { line, socket }).unwrap();
        match receive_in_supervisor(&supervisor).unwrap() {
            Some(ToSupervisor::Client { line, socket }) => {
                assert_eq!((line, socket.is_some()), (SessionLine::Commands, is_there));
            }
            other => panic!("{other:?}"),
        }
    }
    for entry in [None, Some(OwnedFd::from(File::open("/dev/null").unwrap()))] {
        let is_there = entry.is_some();
        send_to_worker(&supervisor, &ToWorker::Cached { ticket, entry }).unwrap();
        match receive_in_worker(&worker).unwrap() {
            Some(ToWorker::Cached { ticket: 6, entry }) => {
                assert_eq!(entry.is_some(), is_there);
            }
            other => panic!("{other:?}"),
        }
    }
    // Messages that no worker sends are rejected.
    for bytes in [&[LOOK_UP][..], &[REFUSED, 1], &[STORE; 33], &[99]] {
        send(&worker, bytes, None).unwrap();
        assert!(receive_in_supervisor(&supervisor).is_err());
    }
}

#[test]
fn the_reason_of_an_end_arrives_before_the_end_and_is_cut() {
    let (supervisor, worker) = pair().unwrap();
    for (said, heard) in [
        ("über", "über".to_owned()),
        (&"ü".repeat(MAX_MESSAGE), "ü".repeat(MAX_REASON / 2)),
    ] {
        let reason = said.to_owned();
        send_to_worker(&supervisor, &ToWorker::End { reason }).unwrap();
        match receive_in_worker(&worker).unwrap() {
            Some(ToWorker::End { reason }) => assert_eq!(reason, heard),
            other => panic!("{other:?}"),
        }
    }
    let reason = String::new();
    send_to_worker(&supervisor, &ToWorker::End { reason }).unwrap();
    // The supervisor closes a channel in this way.
    rustix::net::shutdown(&supervisor, rustix::net::Shutdown::Both).unwrap();
    let last = receive_in_worker(&worker).unwrap();
    assert!(matches!(last, Some(ToWorker::End { .. })));
    assert!(receive_in_worker(&worker).unwrap().is_none());
}

#[test]
fn a_host_gets_the_channels_of_its_sessions() {
    let (supervisor, host) = pair().unwrap();
    for said in [false, true] {
        send_to_worker(&supervisor, &ToWorker::Host { clears: said }).unwrap();
        let heard = receive_in_worker(&host).unwrap();
        assert!(matches!(heard, Some(ToWorker::Host { clears }) if clears == said));
    }
    let (ours, channel) = pair().unwrap();
    send_to_worker(
        &supervisor,
        &ToWorker::Session {
            channel: Some(channel),
        },
    )
    .unwrap();
    let Some(ToWorker::Session {
        channel: Some(channel),
    }) = receive_in_worker(&host).unwrap()
    else {
        panic!("no session")
    };
    send_to_worker(&ours, &assign()).unwrap();
    let heard = receive_in_worker(&channel).unwrap();
    assert!(matches!(heard, Some(ToWorker::Assign { .. })));
    // A worker may still send after the supervisor has asked it to end in this way.
    rustix::net::shutdown(&ours, rustix::net::Shutdown::Write).unwrap();
    assert!(receive_in_worker(&channel).unwrap().is_none());
    send_to_supervisor(&channel, &ToSupervisor::Building).unwrap();
    send_to_supervisor(&channel, &ToSupervisor::Released).unwrap();
    drop(channel);
    let heard = receive_in_supervisor(&ours).unwrap();
    assert!(matches!(heard, Some(ToSupervisor::Building)));
    let heard = receive_in_supervisor(&ours).unwrap();
    assert!(matches!(heard, Some(ToSupervisor::Released)));
    assert!(receive_in_supervisor(&ours).unwrap().is_none());
}

#[test]
fn a_spare_worker_gets_its_devices_and_reports_its_contexts() {
    let (supervisor, worker) = pair().unwrap();
    for count in [0, 1, MAX_WARM as u32] {
        let devices = (0..count).map(|at| (PlatformIndex(at), DeviceIndex(u32::MAX - at)));
        let said: Vec<_> = devices.collect();
        let devices = said.clone();
        send_to_worker(&supervisor, &ToWorker::Warm { devices }).unwrap();
        let heard = receive_in_worker(&worker).unwrap();
        assert!(matches!(heard, Some(ToWorker::Warm { devices }) if devices == said));
        send_to_supervisor(&worker, &ToSupervisor::Warmed { contexts: count }).unwrap();
        let heard = receive_in_supervisor(&supervisor).unwrap();
        assert!(matches!(heard, Some(ToSupervisor::Warmed { contexts }) if contexts == count));
    }
    send(&supervisor, &[WARM, 1, 2, 3], None).unwrap();
    assert!(receive_in_worker(&worker).is_err());
    send(&worker, &[WARMED], None).unwrap();
    assert!(receive_in_supervisor(&supervisor).is_err());
}

#[test]
fn the_supervisor_never_blocks_on_a_worker() {
    let (supervisor, worker) = pair().unwrap();
    let error = receive_in_supervisor(&supervisor).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    send_to_supervisor(&worker, &ToSupervisor::Ready).unwrap();
    let heard = receive_in_supervisor(&supervisor).unwrap();
    assert!(matches!(heard, Some(ToSupervisor::Ready)));
    let full = (0..1 << 20).find_map(|_| send_to_worker(&supervisor, &assign()).err());
    assert_eq!(full.unwrap().kind(), io::ErrorKind::WouldBlock);
}
