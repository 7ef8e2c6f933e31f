//! Tests of what lanes and worker may do to one transfer, in any order.

use super::*;
use crate::transport::bulk::eager::StandingCredit;
use causeway_proto::region::Region;
use proptest::prelude::*;

const EVENT: EventId = EventId(1);
const TOTAL: u64 = 3 * BULK_CHUNK as u64 + 5;

fn region() -> HostRegion {
    // SAFETY: the table only measures the region; its bytes are never accessed.
    #[allow(unsafe_code)]
    unsafe {
        HostRegion::new(std::ptr::null_mut(), Region::linear(0, TOTAL).unwrap())
    }
}

fn completion(status: i32) -> Completion {
    Completion {
        event: EVENT.0,
        status,
        ..Completion::default()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Credit(u64),
    Take,
    Sent,
    Cancel,
    Data(u64, u64),
    Done,
    Complete(i32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..2 * TOTAL).prop_map(Step::Credit),
        Just(Step::Take),
        Just(Step::Sent),
        Just(Step::Cancel),
        (0..TOTAL, 0..=BULK_CHUNK as u64).prop_map(|(offset, length)| Step::Data(offset, length)),
        Just(Step::Done),
        (-2..=0).prop_map(Step::Complete),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn an_upload_sends_each_byte_once_and_completes_once_when_nobody_is_in_it(steps in steps()) {
        let mut table = TransferTable::default();
        let keep: Keep = Arc::new(());
        prop_assert!(table.add_upload(EVENT, region(), &mut Some(keep.clone()), None));
        let (mut credit, mut sent, mut inside, mut completed, mut delivered) = (0, 0, 0, false, 0);
        let (mut given_up, mut told) = (false, 0);
        for step in steps {
            match step {
                Step::Credit(offset) => {
                    table.handle_credit(EVENT, offset);
                    if !given_up {
                        credit = credit.max(offset.min(TOTAL));
                    }
                }
                Step::Take => {
                    let chunk = table.next_chunk();
                    prop_assert_eq!(chunk.is_some(), sent < credit && !given_up);
                    if let Some(chunk) = chunk {
                        prop_assert_eq!(chunk.offset, sent);
                        sent += chunk.length;
                        prop_assert!(sent <= credit);
                        inside += 1;
                    }
                }
                Step::Sent if inside > 0 => {
                    inside -= 1;
                    let outcome = table.chunk_sent(EVENT);
                    told += usize::from(outcome.uploaded.is_some());
                    if outcome.completion.is_some() {
                        prop_assert_eq!(inside, 0);
                        delivered += 1;
                    }
                }
                Step::Cancel => {
                    drop(table.handle_cancel(EVENT));
                    given_up = true;
                }
                Step::Complete(status) if !completed => {
                    completed = true;
                    given_up = true;
                    let outcome = table.handle_completion(EVENT, completion(status));
                    if outcome.completion.is_some() {
                        prop_assert_eq!(inside, 0);
                        delivered += 1;
                    }
                }
                _ => {}
            }
            prop_assert_eq!(table.is_quiet(), inside == 0);
        }
        for _ in 0..inside {
            delivered += usize::from(table.chunk_sent(EVENT).completion.is_some());
        }
        prop_assert_eq!(delivered, usize::from(completed));
        prop_assert!(told <= 1);
        if given_up {
            prop_assert_eq!(Arc::strong_count(&keep), 1);
        }
    }

    #[test]
    fn a_download_completes_once_when_all_is_there_and_nobody_is_in_it(steps in steps()) {
        let mut table = TransferTable::default();
        prop_assert!(table.add_download(EVENT, region()));
        let (mut received, mut inside, mut status, mut delivered) = (0, 0, None, 0);
        for step in steps {
            match step {
                Step::Data(offset, length) => match table.handle_data(EVENT, offset, length) {
                    Destination::Memory(_) => {
                        prop_assert!(offset + length <= TOTAL && received + length <= TOTAL);
                        prop_assert_eq!(delivered, 0);
                        received += length;
                        inside += 1;
                    }
                    Destination::Impossible => {
                        prop_assert!(offset + length > TOTAL || received + length > TOTAL);
                    }
                    Destination::Nowhere => prop_assert!(status.is_some()),
                },
                Step::Done if inside > 0 => {
                    inside -= 1;
                    let outcome = table.data_done(EVENT, None);
                    delivered += usize::from(outcome.completion.is_some());
                }
                Step::Complete(code) if status.is_none() => {
                    status = Some(code);
                    let outcome = table.handle_completion(EVENT, completion(code));
                    delivered += usize::from(outcome.completion.is_some());
                }
                _ => {}
            }
            let over = status.is_some_and(|code| code < 0 || received == TOTAL) && inside == 0;
            prop_assert_eq!(delivered, usize::from(over));
            prop_assert_eq!(table.is_quiet(), inside == 0);
        }
    }
}

#[test]
fn a_withdrawn_transfer_is_entered_no_more_and_tells_who_is_inside() {
    let mut table = TransferTable::default();
    let keep: Keep = Arc::new(());
    table.add_upload(EVENT, region(), &mut Some(keep.clone()), None);
    table.handle_credit(EVENT, TOTAL);
    let chunk = table.next_chunk().unwrap();
    let (inside, kept) = table.withdraw(EVENT);
    assert!(inside && kept.is_some());
    assert!(table.next_chunk().is_none());
    assert!(!table.is_quiet());
    assert!(table.chunk_sent(chunk.event).completion.is_none());
    assert!(table.is_quiet());

    table.add_download(EventId(2), region());
    assert!(matches!(
        table.handle_data(EventId(2), 0, 1),
        Destination::Memory(_)
    ));
    assert!(table.withdraw(EventId(2)).0);
    assert!(matches!(
        table.handle_data(EventId(2), 1, 1),
        Destination::Nowhere
    ));
    assert!(!table.is_quiet());
    table.data_done(EventId(2), None);
    assert!(table.is_quiet());
    assert!(!table.withdraw(EventId(3)).0);
}

#[test]
fn nothing_begins_in_a_closed_table() {
    let mut table = TransferTable::default();
    let mut keep = Some(Arc::new(()) as Keep);
    table.add_upload(EVENT, region(), &mut keep.clone(), None);
    table.add_download(EventId(2), region());
    table.handle_credit(EVENT, 10);
    table.close();
    assert!(table.next_chunk().is_none());
    assert_eq!(table.handle_credit(EVENT, 20), 0);
    assert!(matches!(
        table.handle_data(EventId(2), 0, 1),
        Destination::Nowhere
    ));
    assert!(!table.add_upload(EventId(3), region(), &mut keep, None));
    assert!(keep.is_some(), "the caller drops it without locks");
    assert!(!table.add_download(EventId(4), region()));
}

#[test]
fn an_eager_upload_is_sent_once_though_its_completion_comes_first() {
    let mut table = TransferTable::default();
    let keep: Keep = Arc::new(());
    let total = BULK_CHUNK as u64;
    // SAFETY: the table only measures the region; its bytes are never accessed.
    #[allow(unsafe_code)]
    let region =
        || unsafe { HostRegion::new(std::ptr::null_mut(), Region::linear(0, total).unwrap()) };
    let credit = StandingCredit::default();
    for claimed in [true, false] {
        let grant = credit.take(total);
        assert!(table.add_upload(EVENT, region(), &mut Some(keep.clone()), grant));
        assert_eq!(table.ready(), 1);
        assert!(
            table
                .handle_completion(EVENT, completion(-5))
                .completion
                .is_none()
        );
        let chunk = if claimed {
            table.claim(EVENT)
        } else {
            table.next_chunk()
        };
        let chunk = chunk.unwrap();
        assert!(chunk.eager);
        assert_eq!((chunk.offset, chunk.length), (0, total));
        assert!(table.claim(EVENT).is_none() && table.next_chunk().is_none());
        let outcome = table.chunk_sent(EVENT);
        assert_eq!(outcome.completion.unwrap().status, -5);
    }
    assert!(table.add_upload(EVENT, region(), &mut Some(keep), None));
    assert!(table.claim(EVENT).is_none(), "not without a grant");
}
