//! The tie between a stub and the handle that the application holds.
//!
//! A stub knows its handle as a number only, to hand it back in info answers; what the number means is
//! the business of `api::handle`. Invariant: a stub has at most one handle in its life, and the handle
//! is told exactly once that its stub is gone.

use std::sync::OnceLock;

/// Part of every stub that an application can hold.
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
    /// Ties the stub to `handle`; `unbind` is called with it when the stub is dropped.
    ///
    /// Later calls change nothing: the first handle stays.
    pub fn bind(&self, handle: usize, unbind: fn(usize)) {
        let _ = self.bound.set(Bound { handle, unbind });
    }

    /// The handle, once there is one.
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
