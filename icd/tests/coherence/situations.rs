//! Tests of the planner in named situations: what moves, from where, and what waits.

use std::cell::Cell;

use causeway::coherence::*;
use causeway_proto::id::{EventId, MemoryId, QueueId};
use causeway_proto::region::Region;

const MIB: u64 = 1 << 20;
const BUFFER: MemoryId = MemoryId(1);

/// A context, the number of its next event, and the number up to which all events have ended.
struct Program {
    coherence: Coherence,
    next: Cell<u64>,
    done: Cell<u64>,
}

/// The effect of a command.
#[derive(Debug)]
struct Ran {
    event: EventId,
    transfers: Vec<(Transfer, TransferEvents)>,
    waits: Vec<Wait>,
}

impl Ran {
    /// Source, destination and bytes of everything that moved.
    fn moved(&self) -> Vec<(Place, Place, u64)> {
        let of = |(t, _): &(Transfer, _)| (t.source, t.destination, t.region.packed_length());
        self.transfers.iter().map(of).collect()
    }

    fn waits_for(&self, event: EventId) -> Option<Needs> {
        let found = self.waits.iter().find(|wait| wait.event == event);
        found.map(|wait| wait.needs)
    }
}

fn site(index: u16) -> Place {
    Place::Site(SiteIndex(index))
}

fn bytes(start: u64, end: u64) -> Region {
    Region::linear(start, end - start).unwrap()
}

fn access(region: Region, mode: Mode) -> Access {
    Access {
        buffer: BUFFER,
        region,
        mode,
    }
}

impl Program {
    fn new(size: u64, contents: Contents) -> Program {
        let mut coherence = Coherence::new();
        coherence.add_buffer(BUFFER, size, contents);
        Program {
            coherence,
            next: Cell::new(1),
            done: Cell::new(0),
        }
    }

    fn event(&self) -> EventId {
        self.next.set(self.next.get() + 1);
        EventId(self.next.get())
    }

    /// Ends everything sent so far.
    fn finish(&self) {
        self.done.set(self.next.get());
    }

    fn run(&mut self, place: Place, accesses: &[Access]) -> Ran {
        self.try_run(place, accesses).unwrap()
    }

    fn try_run(&mut self, place: Place, accesses: &[Access]) -> Result<Ran, Lost> {
        let done = self.done.get();
        let is_done = move |event: EventId| event.0 <= done;
        let command = Command {
            place,
            in_order: Some(QueueId(match place {
                Place::Client => 0,
                Place::Site(site) => u64::from(site.0) + 1,
            })),
            after: &[],
            accesses,
        };
        let plan = self.coherence.plan(&command, &is_done)?;
        let events: Vec<TransferEvents> = plan
            .transfers()
            .iter()
            .map(|transfer| match (transfer.source, transfer.destination) {
                (Place::Site(_), Place::Site(_)) => TransferEvents {
                    sent: self.event(),
                    received: self.event(),
                },
                _ => TransferEvents::one(self.event()),
            })
            .collect();
        let event = self.event();
        self.coherence.commit(&plan, &events, event, &is_done);
        let mut waits = plan.waits().to_vec();
        waits.extend(events.iter().map(|events| Wait {
            event: events.received,
            needs: Needs::Success,
        }));
        Ok(Ran {
            event,
            transfers: plan.transfers().iter().cloned().zip(events).collect(),
            waits,
        })
    }
}

#[test]
fn what_was_never_written_does_not_move() {
    let mut program = Program::new(64, Contents::Undefined);
    for index in 0..3 {
        let read = program.run(site(index), &[access(bytes(0, 64), Mode::Read)]);
        assert!(read.transfers.is_empty() && read.waits.is_empty());
    }
}

#[test]
fn halves_written_by_two_sites_stay_where_they_are() {
    let mut program = Program::new(64, Contents::AtClient);
    for _ in 0..3 {
        program.run(site(0), &[access(bytes(0, 32), Mode::Write)]);
        program.run(site(1), &[access(bytes(32, 64), Mode::Write)]);
    }
    program.run(site(0), &[access(bytes(0, 32), Mode::ReadWrite)]);
    let read = program.run(site(0), &[access(bytes(16, 64), Mode::Read)]);
    assert_eq!(read.moved(), [(site(1), site(0), 32)]);
}

#[test]
fn columns_of_a_matrix_move_as_one_rectangle() {
    let mut program = Program::new(64 * 16, Contents::Undefined);
    let column = |at| Region::rect(at, [8, 64, 1], 16, 1024).unwrap();
    program.run(site(0), &[access(column(0), Mode::Write)]);
    program.run(site(1), &[access(column(8), Mode::Write)]);
    let read = program.run(site(0), &[access(bytes(0, 1024), Mode::Read)]);
    assert_eq!(read.transfers.len(), 1);
    assert_eq!(read.transfers[0].0.region, column(8));
}

#[test]
fn ping_pong_never_passes_the_client() {
    let mut program = Program::new(64 * MIB, Contents::Undefined);
    program.run(site(0), &[access(bytes(0, 64 * MIB), Mode::Write)]);
    for step in 0..10 {
        let (here, there) = (site(1 - step % 2), site(step % 2));
        let ran = program.run(here, &[access(bytes(0, 64 * MIB), Mode::ReadWrite)]);
        assert_eq!(ran.moved(), [(there, here, 16 * MIB); 4]);
    }
}

#[test]
fn many_readers_form_a_chain_and_the_client_sends_once() {
    let mut program = Program::new(64 * MIB, Contents::AtClient);
    let all = [access(bytes(0, 64 * MIB), Mode::Read)];
    let mut from_client = 0;
    let mut fan_out = std::collections::HashMap::new();
    for index in 0..8 {
        for (source, _, moved) in program.run(site(index), &all).moved() {
            if source == Place::Client {
                from_client += moved;
            }
            *fan_out.entry(source).or_insert(0) += moved;
        }
    }
    assert_eq!(from_client, 64 * MIB);
    assert!(
        fan_out.values().all(|sent| *sent <= 64 * MIB),
        "{fan_out:?}"
    );
}

#[test]
fn a_small_buffer_fans_out_from_where_it_is() {
    let mut program = Program::new(4096, Contents::Undefined);
    program.run(site(0), &[access(bytes(0, 4096), Mode::Write)]);
    for index in 1..8 {
        let ran = program.run(site(index), &[access(bytes(0, 4096), Mode::Read)]);
        assert_eq!(ran.moved(), [(site(0), site(index), 4096)]);
    }
}

#[test]
fn a_transfer_waits_at_both_ends_and_is_waited_for_at_both() {
    let mut program = Program::new(64, Contents::Undefined);
    let all = |mode| [access(bytes(0, 64), mode)];
    let wrote = program.run(site(0), &all(Mode::Write));
    let first = program.run(site(1), &all(Mode::Read));
    let overwrote = program.run(site(0), &all(Mode::Write));
    let second = program.run(site(1), &all(Mode::Read));

    let end = |event| Wait {
        event,
        needs: Needs::End,
    };
    let (transfer, events) = &first.transfers[0];
    assert_eq!(transfer.source_waits.as_slice(), [end(wrote.event)]);
    assert!(transfer.destination_waits.is_empty());
    assert_eq!(first.waits_for(events.received), Some(Needs::Success));
    assert_eq!(overwrote.waits, [end(events.sent)]);

    let (transfer, _) = &second.transfers[0];
    assert!(transfer.source_waits.contains(&end(overwrote.event)));
    assert!(transfer.destination_waits.contains(&end(first.event)));
}

#[test]
fn no_edges_between_commands_of_one_site() {
    let mut program = Program::new(64, Contents::AtPlace(site(0)));
    for mode in [Mode::ReadWrite, Mode::Read, Mode::Write, Mode::ReadWrite] {
        let ran = program.run(site(0), &[access(bytes(0, 64), mode)]);
        assert!(ran.waits.is_empty() && ran.transfers.is_empty());
    }
}

#[test]
fn a_write_needs_nothing_that_was_there() {
    let mut program = Program::new(64, Contents::AtPlace(site(0)));
    let ran = program.run(site(1), &[access(bytes(0, 64), Mode::Write)]);
    assert!(ran.transfers.is_empty());
    let read = program.run(site(1), &[access(bytes(0, 64), Mode::Read)]);
    assert!(read.transfers.is_empty());
}

#[test]
fn a_gather_takes_each_piece_from_where_it_is() {
    let mut program = Program::new(40, Contents::AtClient);
    program.run(site(0), &[access(bytes(0, 10), Mode::Write)]);
    program.run(site(1), &[access(bytes(10, 20), Mode::Write)]);
    program.run(site(2), &[access(bytes(20, 30), Mode::Write)]);
    let all = Span::new(0, 40);
    let gather = program
        .coherence
        .gather(BUFFER, all, SiteIndex(0), &|_| true)
        .unwrap();
    let places: Vec<_> = gather
        .pieces()
        .iter()
        .map(|p| (p.span.start, p.place))
        .collect();
    let expected = [
        (0, site(0)),
        (10, site(1)),
        (20, site(2)),
        (30, Place::Client),
    ];
    assert_eq!(places, expected);
}

#[test]
fn a_copy_runs_where_fewest_bytes_move() {
    let mut program = Program::new(64, Contents::Undefined);
    let destination = MemoryId(2);
    program
        .coherence
        .add_buffer(destination, 64, Contents::Undefined);
    program.run(site(1), &[access(bytes(0, 20), Mode::Write)]);
    program.run(site(2), &[access(bytes(20, 64), Mode::Write)]);
    let copy = |end| Access::copy((BUFFER, bytes(0, end)), (destination, bytes(0, end)));
    let place = |end, own| {
        program
            .coherence
            .place_for_copy(&copy(end), SiteIndex(own))
            .0
    };
    assert_eq!(place(64, 0), 2);
    assert_eq!(place(30, 0), 1);
    assert_eq!(place(40, 2), 2);
    assert_eq!(place(40, 1), 1);
}

#[test]
fn what_was_lost_is_told_for_that_range_only_until_it_is_overwritten() {
    let mut program = Program::new(64, Contents::AtClient);
    program.run(site(0), &[access(bytes(0, 64), Mode::Read)]);
    program.run(site(0), &[access(bytes(16, 32), Mode::Write)]);
    program.finish();
    program.coherence.site_lost(SiteIndex(0), &|_| true);

    let lost = program.try_run(site(1), &[access(bytes(0, 64), Mode::Read)]);
    let span = Span::new(16, 32);
    assert_eq!(
        lost.unwrap_err(),
        Lost {
            buffer: BUFFER,
            span
        }
    );
    let gone = program
        .coherence
        .gather(BUFFER, Span::new(20, 24), SiteIndex(1), &|_| true);
    assert!(gone.is_err());
    program.run(site(1), &[access(bytes(0, 16), Mode::Read)]);
    program.run(site(1), &[access(bytes(32, 64), Mode::ReadWrite)]);
    program.run(site(1), &[access(bytes(16, 32), Mode::Write)]);
    let all = program.run(site(2), &[access(bytes(0, 64), Mode::Read)]);
    assert_eq!(all.moved(), [(site(1), site(2), 64)]);
}

#[test]
fn a_failed_transfer_leaves_the_older_copies() {
    let mut program = Program::new(64, Contents::AtPlace(site(0)));
    let all = [access(bytes(0, 64), Mode::Read)];
    let first = program.run(site(1), &all);
    let broken = first.transfers[0].1.received;
    program
        .coherence
        .failed(broken, Failure::Broken, &|_| false);
    program.finish();
    let second = program.run(site(1), &all);
    assert_eq!(second.moved(), [(site(0), site(1), 64)]);
}

#[test]
fn what_is_unmapped_is_at_the_site_and_at_the_client() {
    let mut program = Program::new(64, Contents::AtPlace(site(0)));
    let map = program.run(Place::Client, &[access(bytes(0, 64), Mode::MapWrite)]);
    assert_eq!(map.moved(), [(site(0), Place::Client, 64)]);
    let unmap = program.run(site(1), &[access(bytes(0, 64), Mode::Upload)]);
    assert!(unmap.transfers.is_empty());
    // Mapping again fetches nothing, but must not change what the unmap is still taking.
    let again = program.run(Place::Client, &[access(bytes(0, 64), Mode::MapWrite)]);
    assert!(again.transfers.is_empty());
    assert_eq!(again.waits_for(unmap.event), Some(Needs::End));
    let read = program.run(site(0), &[access(bytes(0, 64), Mode::Read)]);
    assert_eq!(read.moved(), [(site(1), site(0), 64)]);
}

#[test]
fn a_site_without_direct_way_gets_the_clients_copy() {
    let mut program = Program::new(64, Contents::AtClient);
    let all = [access(bytes(0, 64), Mode::Read)];
    program
        .coherence
        .set_route(SiteIndex(0), SiteIndex(1), Route::ViaClient);
    program.run(site(0), &all);
    assert_eq!(
        program.run(site(1), &all).moved(),
        [(Place::Client, site(1), 64)]
    );
    program.run(site(0), &[access(bytes(0, 64), Mode::Write)]);
    let relayed = program.run(site(1), &all);
    assert_eq!(relayed.moved(), [(site(0), site(1), 64)]);
    assert_eq!(relayed.transfers[0].0.route, Route::ViaClient);
}

#[test]
fn a_broken_link_takes_no_data_with_it() {
    let mut program = Program::new(64, Contents::AtPlace(site(0)));
    // A launch that will not run, because its bytes do not arrive.
    let launch = program.run(site(1), &[access(bytes(0, 64), Mode::ReadWrite)]);
    let back = program.run(site(0), &[access(bytes(0, 64), Mode::Read)]);
    let broken = launch.transfers[0].1.received;
    let coherence = &mut program.coherence;
    coherence.failed(broken, Failure::Broken, &|_| false);
    coherence.failed(launch.event, Failure::Cancelled, &|_| false);
    coherence.failed(back.transfers[0].1.received, Failure::Cancelled, &|_| false);
    program.finish();
    let read = program.run(site(2), &[access(bytes(0, 64), Mode::Read)]);
    assert_eq!(read.moved(), [(site(0), site(2), 64)]);
}

#[test]
fn what_ran_ahead_of_a_failure_is_waited_for_again() {
    let mut program = Program::new(64, Contents::AtPlace(site(0)));
    let all = |mode| [access(bytes(0, 64), mode)];
    let slow = program.run(site(1), &all(Mode::Read));
    let wrote = program.run(site(0), &all(Mode::Write));
    // This write waits for the slow reader. Later commands need not. But it fails before the reader ends.
    let second = program.run(site(1), &all(Mode::Read));
    let (transfer, events) = &second.transfers[0];
    let waits_for = |t: &Transfer, event| t.destination_waits.iter().any(|w| w.event == event);
    assert!(waits_for(transfer, slow.event));
    let failed = events.received;
    program
        .coherence
        .failed(failed, Failure::Cancelled, &|_| false);
    program
        .coherence
        .failed(second.event, Failure::Cancelled, &|_| false);
    let third = program.run(site(1), &all(Mode::Read));
    assert!(waits_for(&third.transfers[0].0, slow.event));
    assert!(
        third.transfers[0]
            .0
            .source_waits
            .iter()
            .any(|w| w.event == wrote.event)
    );
}

#[test]
fn a_program_far_ahead_of_its_devices_has_short_wait_lists() {
    let mut program = Program::new(64, Contents::AtPlace(site(0)));
    let all = |mode| [access(bytes(0, 64), mode)];
    for step in 0..2000 {
        let read = program.run(site(1), &all(Mode::Read));
        let write = program.run(site(0), &all(Mode::ReadWrite));
        let ping = program.run(site(step % 3), &all(Mode::ReadWrite));
        for ran in [read, write, ping] {
            let of_transfers = ran
                .transfers
                .iter()
                .map(|(t, _)| t.source_waits.len().max(t.destination_waits.len()));
            let most = of_transfers.max().unwrap_or(0).max(ran.waits.len());
            assert!(most <= 8, "{most} waits after {step} steps: {ran:?}");
        }
    }
    assert_eq!(program.coherence.footprint().0, 1);
    program.finish();
    program.coherence.prune(&|_| true);
    assert_eq!(program.coherence.footprint(), (1, 0));
}

#[test]
fn scattered_writes_of_a_long_program_leave_few_ranges() {
    let mut program = Program::new(4096, Contents::Undefined);
    for step in 0..5000u64 {
        let start = step * 37 % 4000;
        let at = site((step % 4) as u16);
        program.run(at, &[access(bytes(start, start + 50), Mode::ReadWrite)]);
        if step % 100 == 99 {
            program.finish();
            program.run(site(0), &[access(bytes(0, 4096), Mode::ReadWrite)]);
        }
    }
    program.finish();
    program.run(site(0), &[access(bytes(0, 4096), Mode::ReadWrite)]);
    assert_eq!(program.coherence.footprint().0, 1);
}

#[test]
fn a_rectangle_of_a_million_rows_is_planned_as_its_extent() {
    let size = 4 << 20;
    let mut program = Program::new(size, Contents::AtPlace(site(0)));
    let rows = Region::rect(0, [2, 1 << 20, 1], 4, size).unwrap();
    let write = program.run(site(1), &[Access::write(BUFFER, rows)]);
    // The bytes between the rows move too, in one transfer, and are not lost.
    let extent = size - 2;
    assert_eq!(write.moved(), [(site(0), site(1), extent)]);
    assert!(program.coherence.footprint().0 <= 2);
}

/// Counts the queries of events while all commands of a lost site fail, with this number of other buffers.
fn looks_of_a_loss(buffers: u64, commands: u64) -> u64 {
    let mut coherence = Coherence::new();
    for buffer in 1..=2 * buffers {
        coherence.add_buffer(MemoryId(buffer), 64, Contents::Undefined);
    }
    let (done, looks) = (Cell::new(0), Cell::new(0));
    let is_done = |event: EventId| {
        looks.set(looks.get() + 1);
        event.0 <= done.get()
    };
    // Another site is busy with the same number of other buffers.
    let of_lost = (1..=commands).map(|command| (command, 1, command % buffers + 1));
    let of_other = (1..=buffers).map(|buffer| (commands + buffer, 2, buffers + buffer));
    for (command, at, buffer) in of_lost.chain(of_other) {
        let accesses = [Access {
            buffer: MemoryId(buffer),
            region: bytes(0, 64),
            mode: Mode::ReadWrite,
        }];
        let command_of_site = Command {
            place: site(at),
            in_order: Some(QueueId(at.into())),
            after: &[],
            accesses: &accesses,
        };
        let plan = coherence.plan(&command_of_site, &is_done).unwrap();
        coherence.commit(&plan, &[], EventId(command), &is_done);
    }
    coherence.site_lost(SiteIndex(1), &is_done);
    looks.set(0);
    for command in 1..=commands {
        coherence.failed(EventId(command), Failure::Broken, &is_done);
        done.set(command);
    }
    looks.get()
}

#[test]
fn a_loss_costs_what_was_under_way_whatever_else_there_is() {
    let few = looks_of_a_loss(4, 400);
    let many = looks_of_a_loss(400, 400);
    assert!(
        many <= 4 * few.max(400),
        "{few} looks, beside more buffers {many}"
    );
    let later = looks_of_a_loss(400, 1600);
    assert!(
        later <= 8 * many.max(400),
        "{many} looks, of more commands {later}"
    );
}

/// Maps and unmaps a box of a million rows.
#[test]
fn a_million_rows_take_little() {
    let (width, rows) = (64, 1 << 20);
    let size = width * rows;
    let slices = Region::rect(8, [16, 1024, 1000], width, width * 1024).unwrap();
    for region in [
        slices,
        Region::rect(8, [16, rows - 5, 1], width, size).unwrap(),
    ] {
        let mut program = Program::new(size, Contents::AtPlace(site(0)));
        let map = program.run(Place::Client, &[access(region, Mode::MapWrite)]);
        let moved: u64 = map.moved().iter().map(|(_, _, bytes)| bytes).sum();
        assert_eq!(moved, region.packed_length());
        assert!(
            map.transfers.len() <= 4,
            "{} transfers",
            map.transfers.len()
        );
        let unmap = program.run(site(1), &[access(region, Mode::Upload)]);
        let moved: u64 = unmap.moved().iter().map(|(_, _, bytes)| bytes).sum();
        assert_eq!(moved, region.end() - region.offset());
        assert!(program.coherence.footprint().0 < 10);
        // The rows, and the bytes between them, are at one site alone now.
        let read = program.run(site(0), &[access(bytes(0, 64), Mode::Read)]);
        assert_eq!(read.moved(), [(site(1), site(0), 56)]);
    }
}

#[test]
fn what_is_lost_between_rows_does_not_refuse_them() {
    let many = Region::rect(0, [8, 5000, 1], 16, 80_000).unwrap();
    for mode in [Mode::Upload, Mode::Write, Mode::Read] {
        let mut program = Program::new(80_000, Contents::AtPlace(site(0)));
        // Bytes between two rows, valid only at the site that will be lost.
        program.run(site(2), &[access(bytes(24, 32), Mode::Write)]);
        program.finish();
        program.coherence.site_lost(SiteIndex(2), &|_| true);
        program.run(site(1), &[access(many, mode)]);
        let lost = program.try_run(site(1), &[access(bytes(16, 32), Mode::Read)]);
        assert_eq!(lost.unwrap_err().span, Span::new(24, 32));
        program.run(site(1), &[access(bytes(32, 80_000), Mode::Read)]);
    }
}
