//! The pure parts' times.
//!
//! [`Time`] comes with every event, from a clock that never jumps; all decisions use it. [`Wall`] is only
//! for times that must keep their meaning across a restart. Invariant: only [`Calendar`], which each
//! start sets anew, converts between the two.

use serde::{Deserialize, Serialize};

/// Milliseconds of the manager's monotonic clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time(pub u64);

/// Milliseconds since 1970 by the host's clock; the form that is stored.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Wall(pub u64);

/// A duration in milliseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Span(pub u64);

impl Span {
    /// A duration of this many seconds.
    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds * 1000)
    }
}

impl Time {
    /// The time `span` later; saturates.
    #[must_use]
    pub fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The duration since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Wall {
    /// The duration since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// One moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Calendar {
    /// By the monotonic clock.
    pub time: Time,
    /// By the host's clock.
    pub wall: Wall,
}

impl Calendar {
    /// The host's clock at `time`.
    #[must_use]
    pub fn wall_at(&self, time: Time) -> Wall {
        let later = time.0.saturating_sub(self.time.0);
        let earlier = self.time.0.saturating_sub(time.0);
        Wall(self.wall.0.saturating_add(later).saturating_sub(earlier))
    }

    /// The duration from `wall` until this moment; zero if `wall` is in the future.
    #[must_use]
    pub fn since(&self, wall: Wall) -> Span {
        self.wall.since(wall)
    }
}
