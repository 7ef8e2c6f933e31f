//! Time as the core has it.
//!
//! [`Time`] comes in with every event, from a clock that never jumps; all decisions are made by it.
//! [`Wall`] is only for what must mean something after a restart. Invariant: the two are never
//! mixed but by [`Calendar`], which a restart sets anew.

use serde::{Deserialize, Serialize};

/// Milliseconds of the manager's monotonic clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time(pub u64);

/// Milliseconds since 1970, by the host's clock: what is stored.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Wall(pub u64);

/// A length of time, in milliseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Span(pub u64);

impl Span {
    /// So many seconds.
    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds * 1000)
    }
}

impl Time {
    /// So much later; the end of time if there is no such time.
    #[must_use]
    pub fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// How long after `earlier`; nothing if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Wall {
    /// How long after `earlier`; nothing if it is not.
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
    /// By the host's.
    pub wall: Wall,
}

impl Calendar {
    /// What the host's clock shows at `time`.
    #[must_use]
    pub fn wall_at(&self, time: Time) -> Wall {
        let later = time.0.saturating_sub(self.time.0);
        let earlier = self.time.0.saturating_sub(time.0);
        Wall(self.wall.0.saturating_add(later).saturating_sub(earlier))
    }

    /// How long it is from this moment until `wall`; nothing if that is past.
    #[must_use]
    pub fn until(&self, wall: Wall) -> Span {
        Span(wall.0.saturating_sub(self.wall.0))
    }

    /// How long ago `wall` was at this moment; nothing if it is to come.
    #[must_use]
    pub fn since(&self, wall: Wall) -> Span {
        self.wall.since(wall)
    }
}
