//! The calls of the application's threads, and the waits inside of them.
//!
//! Invariant: calls of one thread do not overlap. A call inside of a call of the library's own is not reported.

use std::cell::Cell;

use causeway_trace::record::{self, Moment, Record};

use super::{is_on, report};
use crate::host_clock::host_ns;

thread_local! {
    // The system's id of this thread, once it has been reported.
    static ID: Cell<u32> = const { Cell::new(0) };
    static IS_IN_CALL: Cell<bool> = const { Cell::new(false) };
}

/// A call that has begun.
#[derive(Debug)]
pub(crate) struct Call {
    name: &'static str,
    begin: Moment,
}

/// A wait that has begun. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct Waiting {
    thread: u32,
    begin: Moment,
}

/// Begins a call, if the program is traced and the thread is not in a call.
pub(crate) fn call(name: &'static str) -> Option<Call> {
    if !is_on() || IS_IN_CALL.replace(true) {
        return None;
    }
    let begin = host_ns();
    Some(Call { name, begin })
}

impl Call {
    /// Ends the call, with 0 or its error code.
    pub(crate) fn end(self, status: i32) {
        IS_IN_CALL.set(false);
        report(Record::Call(record::Call {
            thread: this_thread(),
            name: self.name,
            span: [self.begin, host_ns()],
            status,
        }));
    }
}

/// Begins a wait for a node, if the thread is in a call that is traced.
pub(crate) fn waiting() -> Option<Waiting> {
    let thread = thread_in_call()?;
    Some(Waiting {
        thread,
        begin: host_ns(),
    })
}

impl Drop for Waiting {
    fn drop(&mut self) {
        report(Record::Wait {
            thread: self.thread,
            span: [self.begin, host_ns()],
        });
    }
}

/// Returns the calling thread, if it is in a call that is traced.
pub(crate) fn thread_in_call() -> Option<u32> {
    (is_on() && IS_IN_CALL.get()).then(this_thread)
}

fn this_thread() -> u32 {
    if ID.get() == 0 {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        let name = rustix::thread::name().unwrap_or_default();
        ID.set(id.unsigned_abs());
        report(Record::Thread {
            thread: ID.get(),
            name: name.to_string_lossy().into_owned(),
        });
    }
    ID.get()
}
