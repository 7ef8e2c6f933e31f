use super::*;
use causeway_proto::command::{CommandBatch, CreateUserEvent, command::Kind};
use prost::Message;
use std::time::Duration;

fn command(event: u64) -> Kind {
    Kind::CreateUserEvent(CreateUserEvent { event })
}

fn take(outbox: &Outbox) -> Option<CommandBatch> {
    let mut batch = None;
    outbox
        .write_with(|bytes| {
            batch = Some(CommandBatch::decode(&bytes[PREFIX..]).unwrap());
            Ok(())
        })
        .unwrap();
    batch
}

#[test]
fn batches_continue_each_others_numbers() {
    let outbox = Outbox::new(false);
    assert_eq!(take(&outbox), None);
    for round in 0..3 {
        for event in 0..5 {
            assert_eq!(
                outbox.append(&command(event), true, true).unwrap(),
                Appended::Queued
            );
        }
        let batch = take(&outbox).unwrap();
        assert_eq!(batch.first, 1 + round * 5);
        assert_eq!(batch.commands.len(), 5);
        assert_eq!(batch.commands[4].kind, Some(command(4)));
    }
    assert_eq!(outbox.last(), 15);
}

#[test]
fn a_sleeping_flusher_is_woken_once() {
    let outbox = Outbox::new(false);
    assert!(outbox.sleep_if_empty());
    assert_eq!(
        outbox.append(&command(1), true, true).unwrap(),
        Appended::WakeFlusher
    );
    assert_eq!(
        outbox.append(&command(2), true, true).unwrap(),
        Appended::Queued
    );
    assert!(!outbox.sleep_if_empty());
}

#[test]
fn who_writes_next_leaves_the_flusher_to_the_next_who_does_not() {
    let outbox = Outbox::new(false);
    assert!(outbox.sleep_if_empty());
    let quietly = outbox.append(&command(1), true, false);
    assert_eq!(quietly.unwrap(), Appended::Queued);
    assert!(outbox.flusher_sleeps());
    let appended = outbox.append(&command(2), true, true);
    assert_eq!(appended.unwrap(), Appended::WakeFlusher);
}

#[test]
fn an_end_of_the_process_inside_of_an_append_waits_no_longer_than_it_may() {
    let outbox = Outbox::new(true);
    outbox.append(&command(1), true, true).unwrap();
    // As if a signal handler had called `exit` while this thread had the lock.
    let interrupted = outbox.filling.lock();
    let (sender, done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let written = outbox.write_within(LIMIT, |_| panic!("must not write"));
            outbox
                .write_farewell(LIMIT, |_| panic!("must not write"))
                .unwrap();
            sender.send(written.unwrap()).unwrap();
        });
        let written = done.recv_timeout(Duration::from_secs(10));
        drop(interrupted);
        assert_eq!(written, Ok(false));
    });
}

const LIMIT: Duration = Duration::from_millis(1);

#[test]
fn what_is_too_large_is_refused_before_anything_is_queued() {
    struct Huge;
    impl EncodeCommand for Huge {
        fn encoded_len(&self) -> usize {
            MAX_BATCH
        }
        fn encode(&self, _: &mut Vec<u8>) {
            unreachable!("must be refused by its length")
        }
    }
    let outbox = Outbox::new(false);
    assert_eq!(
        outbox.append(&Huge, true, true),
        Err(WireError::TooLarge(MAX_BATCH))
    );
    assert_eq!(take(&outbox), None);
}

#[test]
fn a_batch_stops_at_its_target_unless_the_caller_may_not_wait() {
    struct Large;
    impl EncodeCommand for Large {
        fn encoded_len(&self) -> usize {
            BATCH_TARGET - 100
        }
        fn encode(&self, out: &mut Vec<u8>) {
            out.resize(out.len() + BATCH_TARGET - 100, 0);
        }
    }
    let outbox = Outbox::new(false);
    assert_eq!(outbox.append(&Large, true, true).unwrap(), Appended::Write);
    assert_eq!(outbox.append(&Large, true, true).unwrap(), Appended::Full);
    assert_eq!(outbox.append(&Large, false, true).unwrap(), Appended::Write);
}

#[test]
fn who_may_not_wait_is_never_refused_and_all_leaves_in_order() {
    struct Half;
    const LENGTH: usize = MAX_BATCH / 2;
    impl EncodeCommand for Half {
        fn encoded_len(&self) -> usize {
            LENGTH
        }
        fn encode(&self, out: &mut Vec<u8>) {
            out.resize(out.len() + LENGTH, 0);
        }
    }
    let outbox = Outbox::new(false);
    outbox.append(&command(1), true, true).unwrap();
    for _ in 0..3 {
        assert_eq!(outbox.append(&Half, false, true).unwrap(), Appended::Write);
    }
    assert_eq!(
        outbox.append(&command(2), true, true).unwrap(),
        Appended::Full
    );
    assert!(!outbox.sleep_if_empty());
    let mut firsts = Vec::new();
    let written = outbox.write_with(|bytes| {
        assert!(bytes.len() - PREFIX <= MAX_BATCH);
        // The number is one byte long here, and the last byte of the batch.
        firsts.push(bytes.last().copied());
        Ok(())
    });
    assert!(written.unwrap());
    assert_eq!(firsts, [Some(1), Some(3), Some(4)]);
    assert_eq!(outbox.last(), 4);
    assert!(outbox.sleep_if_empty());
}

#[test]
fn what_is_closed_while_a_writer_looks_leaves_before_what_is_newer() {
    // Commands so large that every second one closes a batch.
    struct Half;
    const LENGTH: usize = MAX_BATCH / 2;
    impl EncodeCommand for Half {
        fn encoded_len(&self) -> usize {
            LENGTH
        }
        fn encode(&self, out: &mut Vec<u8>) {
            out.resize(out.len() + LENGTH, 0);
        }
    }
    // Each bit decides whether the appender or the writer gets the lock next.
    for turns in 0u32..1 << 4 {
        let outbox = Outbox::new(false);
        let (mut writing, mut firsts) = (vec![0; PREFIX], Vec::new());
        let mut take = |outbox: &Outbox| {
            let oldest = outbox.filling.lock().take_oldest(&mut writing);
            writing.truncate(PREFIX);
            match oldest {
                Oldest::None => false,
                Oldest::Full(Batch { first, .. }) | Oldest::Filling(first, _) => {
                    firsts.push(first);
                    true
                }
            }
        };
        for turn in 0..4 {
            if turns & (1 << turn) == 0 {
                outbox.append(&Half, false, true).unwrap();
            } else {
                take(&outbox);
            }
        }
        while take(&outbox) {}
        let appended: Vec<u64> = (1..=outbox.last()).collect();
        assert_eq!(firsts, appended, "turns {turns:#b}");
    }
}

#[test]
fn no_batch_leaves_while_they_are_held_back_and_each_change_is_told_once() {
    let outbox = Outbox::new(true);
    outbox.append(&command(1), true, true).unwrap();
    assert_eq!(
        [true, true].map(|holds| outbox.hold_back(holds)),
        [true, false]
    );
    assert_eq!(take(&outbox), None);
    assert_eq!(
        [false, false].map(|holds| outbox.hold_back(holds)),
        [true, false]
    );
    assert_eq!(take(&outbox).unwrap().commands.len(), 1);
}
