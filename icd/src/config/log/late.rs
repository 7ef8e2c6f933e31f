//! Nothing is logged by a thread that has given up what it had for itself.
//!
//! A program's static destructors call OpenCL after the main thread's own values are gone, and among these is the
//! buffer in which `tracing-subscriber` puts a line together: it would panic there. What such a thread says is lost;
//! what it does is done.
//!
//! Invariant: the mark is set before that buffer goes, because the value that sets it was made after it.
#![forbid(unsafe_code)]

use std::cell::Cell;

use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::LevelFilter;

use crate::stderr::Stderr;

thread_local! {
    // Without a destructor: it can be read for as long as the thread runs.
    static OVER: Cell<bool> = const { Cell::new(false) };
    static MARKER: Marker = const { Marker };
}

struct Marker;

impl Drop for Marker {
    fn drop(&mut self) {
        OVER.set(true);
    }
}

/// Where lines go. Asked for once the line's buffer is there: values of a thread go in the opposite order.
pub(super) fn stderr() -> Stderr {
    // If it is gone, so is the line.
    let _ = MARKER.try_with(|_| ());
    Stderr
}

/// A subscriber that hears nothing of such threads.
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
