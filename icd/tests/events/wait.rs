//! Tests that a wait returns when its event has ended, whichever thread ends the events of a lost session.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ThreadId;
use std::time::Duration;

use causeway::error::{ClResult, Status};
use causeway::stub::{
    Command, Context, Enqueue, Event, EventSpec, Hold, NodeCommand, Platform, Queue,
};
use cl_headers::types::CL_COMMAND_MARKER;

use crate::frames::fake_node::{FakeNode, Faults, PATIENCE};
use crate::frames::opencl::configure;

/// Time in which a wait must not return. A faulty wait returns at once.
const STILL: Duration = Duration::from_millis(50);

/// A thread that has begun to end the event of this number, and waits for the test.
type Ending = (usize, ThreadId, Sender<()>);

/// Runs when an event ends, before anybody can see that.
type Ends = Box<dyn FnOnce(Status, &bytes::Bytes) + Send>;

fn marker(
    queue: &Arc<Queue>,
    number: usize,
    endings: Option<&Sender<Ending>>,
) -> ClResult<Arc<Event>> {
    let finisher = endings.cloned().map(|endings| {
        let ends: Ends = Box::new(move |_, _| {
            let (go_on, told) = channel();
            let _ = endings.send((number, std::thread::current().id(), go_on));
            let _ = told.recv();
        });
        ends
    });
    let event = EventSpec {
        note: None,
        event_type: CL_COMMAND_MARKER,
        wait: Vec::new(),
        hold: Hold::new(),
        finisher,
        visible: true,
    };
    let command = Command::Node(NodeCommand::Marker);
    Ok(queue.enqueue(Enqueue { command, event })?.event)
}

/// Calls on another thread. The channel gets the result.
fn beside<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (said, says) = channel();
    std::thread::spawn(move || said.send(call()));
    says
}

#[test]
fn a_wait_outlasts_the_session_until_another_thread_has_ended_the_event() {
    own_process!();
    let fake = FakeNode::start(Faults::default());
    configure(&fake.address.to_string());
    let platform = Platform::get().expect("a node is configured");
    let context = Context::new(platform.devices(), Vec::new(), None).expect("a context");
    let worker = fake.worker();
    let queue =
        Queue::new(context.clone(), context.devices()[0].clone(), 0, Vec::new()).expect("a queue");
    let (began, endings) = channel();
    let events: Vec<_> = (0..2)
        .map(|number| marker(&queue, number, Some(&began)).expect("a marker"))
        .collect();
    queue.flush().expect("a live session");

    // The reading thread notices the loss, and ends one of the two events.
    worker.die();
    let (of_reader, reader, reader_goes_on) = endings.recv_timeout(PATIENCE).unwrap();
    // A thread that enqueues now finds the session lost, and ends the other event.
    let enqueuing = queue.clone();
    let enqueued = beside(move || marker(&enqueuing, 2, None).map(drop));
    let (other, enqueuer, enqueuer_goes_on) = endings.recv_timeout(PATIENCE).unwrap();
    assert_eq!(of_reader + other, 1);
    assert_ne!(reader, enqueuer);

    // The reading thread finds nothing else to end.
    reader_goes_on.send(()).unwrap();
    let session = context.site().session().clone();
    session.wait_until(&|| false).unwrap_err();
    let awaited = events[other].clone();
    assert!(!awaited.is_done(), "the enqueuing thread has not ended it");
    let waited = beside(move || (awaited.wait(), awaited.status()));
    let finishing = queue.clone();
    let finished = beside(move || finishing.finish());
    let returned = waited.recv_timeout(STILL);
    assert!(returned.is_err(), "returned too early: {returned:?}");
    assert!(finished.try_recv().is_err(), "clFinish returned too early");

    enqueuer_goes_on.send(()).unwrap();
    let (result, status) = waited.recv_timeout(PATIENCE).unwrap();
    assert_eq!(result, Err(Status::WAIT_LIST_FAILED));
    assert_eq!(Status(status), Status::DEVICE_NOT_AVAILABLE);
    let finished = finished.recv_timeout(PATIENCE).unwrap();
    assert_eq!(finished, Err(Status::DEVICE_NOT_AVAILABLE));
    assert!(enqueued.recv_timeout(PATIENCE).unwrap().is_err());
}
