//! The connection between a stub and the handle that the application has.
//!
//! A stub knows its handle only as a number, which info queries return; `api::handle` interprets the
//! number. Invariant: a stub has at most one handle in its life, and the handle is notified exactly once
//! when the stub is dropped.

use std::sync::OnceLock;

/// Part of every stub that can have a handle.
#[derive(Debug, Default)]
pub struct Binding {
    bound: OnceLock<Bound>,
}

#[derive(Debug)]
struct Bound {
    handle: usize,
    unbind: fn(usize),
}

impl Binding {
    /// Sets the stub's handle; `unbind` is called with it when the stub is dropped.
    ///
    /// Only the first call has an effect.
    pub fn bind(&self, handle: usize, unbind: fn(usize)) {
        let _ = self.bound.set(Bound { handle, unbind });
    }

    /// Returns the handle, if there is one.
    #[must_use]
    pub fn handle(&self) -> Option<usize> {
        self.bound.get().map(|bound| bound.handle)
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        if let Some(bound) = self.bound.take() {
            (bound.unbind)(bound.handle);
        }
    }
}
