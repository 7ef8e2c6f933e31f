//! Suppresses log lines of threads whose thread-local values are already destroyed.
//!
//! A program's static destructors call OpenCL after the main thread's thread-local values are gone. One of
//! them is the buffer in which `tracing-subscriber` formats a line, and it would panic. So log lines of
//! such a thread are dropped. The calls themselves work.
//!
//! Invariant: the mark is set before that buffer is destroyed, because the value that sets the mark is
//! created after the buffer.
#![forbid(unsafe_code)]

use std::cell::Cell;

use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::LevelFilter;

use crate::stderr::Stderr;

thread_local! {
    // This value has no destructor, so it can be read until the thread ends.
    static OVER: Cell<bool> = const { Cell::new(false) };
    static MARKER: Marker = const { Marker };
}

struct Marker;

impl Drop for Marker {
    fn drop(&mut self) {
        OVER.set(true);
    }
}

/// The writer for log lines. The subscriber asks for it when the line's buffer exists already. Thread-local
/// values are destroyed in the opposite order of their creation.
pub(super) fn stderr() -> Stderr {
    // If the marker is destroyed already, so is the buffer, and `OVER` is set.
    let _ = MARKER.try_with(|_| ());
    Stderr
}

/// A subscriber that ignores events of such threads.
pub(super) struct Guarded<S>(pub(super) S);

impl<S: Subscriber> Subscriber for Guarded<S> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !OVER.get() && self.0.enabled(metadata)
    }

    fn event(&self, event: &Event<'_>) {
        if !OVER.get() {
            self.0.event(event);
        }
    }

    fn event_enabled(&self, event: &Event<'_>) -> bool {
        !OVER.get() && self.0.event_enabled(event)
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.0.register_callsite(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.0.max_level_hint()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.0.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.0.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.0.record_follows_from(span, follows);
    }

    fn enter(&self, span: &Id) {
        self.0.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.0.exit(span);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.0.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.0.try_close(id)
    }
}
