//! Whether a connection counts as a stranger's or as a known caller's.
//!
//! A call may keep a stranger's connection open while it is served. This module does not authenticate. Invariant: a
//! connection has at most one place, either among the strangers' or among those of known callers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::admission::{Admission, Permit};

/// The limits for connections. Clones share their counts.
#[derive(Clone)]
pub struct Places {
    /// For connections without authentication.
    pub strangers: Admission,
    /// For connections over which a caller has authenticated.
    pub known: Admission,
}

/// There is no place for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many connections")]
pub struct Full;

/// The standing of one connection.
pub struct Standing {
    address: IpAddr,
    places: Places,
    place: Mutex<GatePlace>,
    kept: Mutex<Kept>,
}

/// The calls that keep a stranger's connection open.
#[derive(Default)]
struct Kept {
    calls: usize,
    /// When the last of them ended.
    ended: Option<Instant>,
}

/// Keeps a connection open, also a stranger's, until this is dropped and the answer can be sent.
pub struct KeptOpen(Arc<Standing>);

impl Drop for KeptOpen {
    fn drop(&mut self) {
        let mut kept = self.0.kept.lock();
        kept.calls -= 1;
        kept.ended = Some(Instant::now());
    }
}

/// The place that is given back when the connection ends.
enum GatePlace {
    /// `None`: the connection has become a stranger's again, and found no place there. Its deadline closes
    /// it soon.
    Stranger(Option<Permit>),
    Known(Permit),
}

impl Standing {
    /// The standing of a new connection.
    ///
    /// # Errors
    /// [`Full`] when there is no place.
    pub fn new(address: SocketAddr, is_known: bool, places: &Places) -> Result<Standing, Full> {
        let address = address.ip();
        let place = match is_known {
            true => GatePlace::Known(places.known.admit(address).ok_or(Full)?),
            false => GatePlace::Stranger(Some(places.strangers.admit(address).ok_or(Full)?)),
        };
        Ok(Standing {
            address,
            places: places.clone(),
            place: Mutex::new(place),
            kept: Mutex::default(),
        })
    }

    /// Records that a caller has authenticated over the connection.
    ///
    /// # Errors
    /// [`Full`] when there is no place among the known callers' at present.
    pub fn let_in(&self) -> Result<(), Full> {
        let mut place = self.place.lock();
        if let GatePlace::Stranger(_) = *place {
            *place = GatePlace::Known(self.places.known.admit(self.address).ok_or(Full)?);
        }
        settled(&mut place)
    }

    /// Records a call. A known caller's connection is not silent any more, so nobody can displace it.
    ///
    /// # Errors
    /// [`Full`] when settled connections fill a limit at present.
    pub fn called(&self) -> Result<(), Full> {
        settled(&mut self.place.lock())
    }

    /// Records that the caller is no longer authenticated.
    pub fn turn_out(&self) {
        let mut place = self.place.lock();
        if let GatePlace::Known(_) = *place {
            *place = GatePlace::Stranger(self.places.strangers.admit(self.address));
        }
    }

    /// Keeps the connection open beyond the deadline for strangers. For calls that take long, and whose callers have proved
    /// that they may make them. The connection stays a stranger's.
    #[must_use]
    pub fn keep_open(self: &Arc<Self>) -> KeptOpen {
        self.kept.lock().calls += 1;
        KeptOpen(Arc::clone(self))
    }

    /// Until when calls keep the connection open, if each has so much time for its answer. `None`: none does now.
    pub(super) fn kept_until(&self, answered_within: Duration, now: Instant) -> Option<Instant> {
        let kept = self.kept.lock();
        let since = match kept.calls {
            0 => kept.ended?,
            _ => now,
        };
        Some(since + answered_within).filter(|until| *until > now)
    }

    /// Ready when the connection must close for a newcomer.
    pub(super) fn poll_displaced(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self.place.lock() {
            GatePlace::Stranger(Some(permit)) | GatePlace::Known(permit) => {
                permit.poll_displaced(cx)
            }
            GatePlace::Stranger(None) => Poll::Pending,
        }
    }

    /// Waits until the connection must close for a newcomer.
    pub async fn displaced(&self) {
        std::future::poll_fn(|cx| self.poll_displaced(cx)).await;
    }

    /// Whether a caller has authenticated over the connection.
    #[must_use]
    pub fn is_known(&self) -> bool {
        matches!(*self.place.lock(), GatePlace::Known(_))
    }
}

fn settled(place: &mut GatePlace) -> Result<(), Full> {
    match place {
        GatePlace::Known(permit) => permit.settle().map_err(|_| Full),
        GatePlace::Stranger(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        Places {
            strangers: Admission::new(1, 1),
            known: Admission::new(1, 1),
        }
    }

    #[test]
    fn strangers_take_no_place_of_those_who_are_known() {
        let places = places();
        let open = |is_known| Standing::new("127.0.0.1:1".parse().unwrap(), is_known, &places);
        let first = open(false).ok().unwrap();
        assert!(!first.is_known());
        first.called().unwrap();
        assert!(!first.is_known());
        first.let_in().unwrap();
        first.let_in().unwrap();
        assert!(first.is_known());
        // Another stranger takes its place among the strangers, but finds none among the known callers'.
        let second = open(false).ok().unwrap();
        assert_eq!((second.let_in(), open(true).err()), (Err(Full), Some(Full)));
        assert!(!second.is_known());
        drop(first);
        second.let_in().unwrap();
    }

    #[test]
    fn who_is_turned_out_leaves_his_place_to_others() {
        let places = places();
        let open = |is_known| Standing::new("127.0.0.1:1".parse().unwrap(), is_known, &places);
        let first = open(true).ok().unwrap();
        first.called().unwrap();
        assert_eq!(open(true).err(), Some(Full), "it has settled");
        first.turn_out();
        assert!(!first.is_known());
        let second = open(true).ok().unwrap();
        second.turn_out();
        assert!(!second.is_known());
        let _third = open(true).ok().unwrap();
        drop((first, second));
        open(false).ok().unwrap();
    }
}
