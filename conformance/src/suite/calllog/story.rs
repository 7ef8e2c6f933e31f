//! The story of a log: a form in which the same calls look the same, whoever made them.
//!
//! Objects are named by the order in which the application made them, commands by their place in their queue.
//! Only `teller` and `commands` omit the differences that [`PUT_ASIDE`](super::PUT_ASIDE) lists. Invariant: a
//! call that is neither on that list nor known here is kept literally, so that it shows as a difference.

use std::collections::BTreeMap;
use std::fmt;

use super::bytes::Transfer;
use super::line::Call;
use super::teller::Teller;

/// The owner of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogOwner {
    /// The log has the application's own calls.
    Native,
    /// The log has a worker's calls.
    Node,
}

/// A log in comparable form.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// Contexts, queues and buffers, in order.
    pub(super) made: Vec<String>,
    /// Programs and the operations on them, sorted.
    pub(super) programs: Vec<String>,
    /// Contents at creation, by buffer.
    pub(super) contents: BTreeMap<String, String>,
    /// Each queue's name, and its commands in order.
    pub(super) queues: Vec<(String, Vec<Command>)>,
    /// Releases, sorted.
    pub(super) released: Vec<String>,
}

/// A command of a queue.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) text: String,
    pub(super) waits: Vec<String>,
    /// The transfer of the command, or a piece of one.
    pub(super) transfer: Option<Transfer>,
}

impl Story {
    /// Converts a log.
    pub(crate) fn of(calls: &[Call], place: LogOwner) -> Self {
        let mut teller = Teller::new(calls, place);
        for call in calls {
            teller.tell(call);
        }
        teller.finish()
    }

    /// Returns the released objects, sorted.
    pub(super) fn released(&self) -> &[String] {
        &self.released
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.made {
            writeln!(f, "{line}")?;
        }
        for (memory, contents) in &self.contents {
            writeln!(f, "contents of {memory}: {contents}")?;
        }
        for line in &self.programs {
            writeln!(f, "{line}")?;
        }
        for (queue, commands) in &self.queues {
            for (number, command) in commands.iter().enumerate() {
                let (text, waits) = (&command.text, command.waits.join(","));
                writeln!(f, "{queue}[{number}]: {text} waits=[{waits}]")?;
            }
        }
        for line in &self.released {
            writeln!(f, "released {line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(place: LogOwner, log: &str) -> String {
        let calls: Option<Vec<Call>> = log.lines().map(|line| Call::parse(line.trim())).collect();
        Story::of(&calls.unwrap(), place).to_string()
    }

    const NATIVE: &str = "\
        clCreateContext(devices=[device#1]) = context#1
        clCreateCommandQueue(device=device#1, properties=0x0) = queue#1
        clCreateBuffer(flags=0x8, size=64, host_ptr=ptr) = mem#1; data=64:07
        clCreateUserEvent(context=context#1) = event#1
        clEnqueueWriteBuffer(command_queue=queue#1, buffer=mem#1, blocking_write=1, offset=4, \
            size=3, event_wait_list=[event#1], event=event#2) = CL_SUCCESS; data=3:0a
        clEnqueueMarkerWithWaitList(command_queue=queue#1, event_wait_list=[event#2], \
            event=null) = CL_SUCCESS
        clReleaseMemObject(memobj=mem#1) = CL_SUCCESS";

    const NODE: &str = "\
        clGetPlatformIDs(num_entries=0) = CL_SUCCESS
        clCreateContext(devices=[device#1]) = context#1
        clCreateCommandQueueWithProperties(device=device#1, properties=[]) = queue#1
        clCreateBuffer(flags=0x11, size=99, host_ptr=null) = mem#1
        clCreateBuffer(flags=0x1, size=64, host_ptr=ptr) = mem#2; data=64:07
        clEnqueueWriteBuffer(command_queue=queue#1, buffer=mem#2, blocking_write=0, offset=4, \
            size=3, event_wait_list=null, event=event#1) = CL_SUCCESS; data=3:0a
        clEnqueueMarkerWithWaitList(command_queue=queue#1, event_wait_list=null, event=event#9) \
            = CL_SUCCESS
        clReleaseMemObject(memobj=mem#2) = CL_SUCCESS";

    #[test]
    fn what_is_put_aside_makes_no_difference() {
        let node = NODE.replace(
            "event_wait_list=null, event=event#9",
            "event_wait_list=[event#1], event=event#9",
        );
        // On a node, a marker right after a transfer that waits for it alone closes the transfer.
        let native = NATIVE.replace("event_wait_list=[event#2]", "event_wait_list=null");
        assert_eq!(told(LogOwner::Native, &native), told(LogOwner::Node, NODE));
        assert_ne!(told(LogOwner::Native, NATIVE), told(LogOwner::Node, &node));
    }

    #[test]
    fn pieces_in_any_order_are_one_transfer() {
        let piece = |offset: u32, event: u32| {
            format!(
                "clEnqueueReadBuffer(command_queue=queue#1, buffer=mem#1, offset={offset}, size=8, \
                 event_wait_list=null, event=event#{event}) = CL_SUCCESS"
            )
        };
        let head = "clCreateCommandQueue(device=device#1, properties=0x0) = queue#1\n\
                    clCreateBuffer(flags=0x0, size=64, host_ptr=null) = mem#1\n";
        let tail = "clEnqueueMarkerWithWaitList(command_queue=queue#1, \
                    event_wait_list=[event#3,event#1], event=event#9) = CL_SUCCESS\n\
                    clEnqueueBarrierWithWaitList(command_queue=queue#1, \
                    event_wait_list=[event#9], event=event#10) = CL_SUCCESS";
        let pieces = [piece(24, 1), piece(8, 2), piece(16, 3)].join("\n");
        let told = told(LogOwner::Node, &format!("{head}{pieces}\n{tail}"));
        assert!(
            told.contains("queue#1[0]: read mem#1 8+24 waits=[]\n"),
            "{told}"
        );
        assert!(
            told.contains("queue#1[1]: barrier waits=[queue#1[0]]\n"),
            "{told}"
        );
    }

    #[test]
    fn every_other_change_shows() {
        let before = told(LogOwner::Node, NODE);
        for (from, to) in [
            ("offset=4", "offset=5"),
            ("size=3", "size=2"),
            ("3:0a", "3:0b"),
            ("64:07", "64:08"),
            ("size=64", "size=65"),
            ("flags=0x1,", "flags=0x4,"),
            ("properties=[]", "properties=[0x1093:0x2,]"),
            ("clReleaseMemObject(memobj=mem#2)", "clFlush()"),
            (
                "clEnqueueMarkerWithWaitList",
                "clEnqueueBarrierWithWaitList",
            ),
            ("clGetPlatformIDs", "clSomethingNew"),
            ("devices=[device#1]", "devices=[device#2]"),
        ] {
            let log = NODE.replace(from, to);
            assert_ne!(log, NODE, "{from}");
            assert_ne!(told(LogOwner::Node, &log), before, "{from} -> {to}");
        }
    }
}
