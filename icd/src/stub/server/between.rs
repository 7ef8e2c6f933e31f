//! What is known of the link between two devices: `clGetLinkInfoWWU`.
//!
//! Figures of this process's own transfers come first, then those that the user has had measured. Nothing is measured here.
//! Invariant: the figures are those of the route that bytes take now.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::peer;
use crate::coherence::Route;
use crate::error::ClResult;
use crate::fork;
use crate::stub::{Device, SessionLink};
use crate::transport::Node;
use crate::transport::figures::{self, Figures};

/// The way of bytes from one device to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRoute {
    /// Both devices are of one server, so no network is between them.
    SameServer,
    /// Between the two servers. Also before a transfer has shown whether they reach each other.
    Direct,
    /// Through this process.
    ViaClient,
}

/// A bandwidth, and its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bytes per second; not 0.
    pub rate: u64,
    /// How long ago it was learnt or measured.
    pub age: Duration,
}

/// Returns the route between two devices. Does not wait.
///
/// # Errors
/// In a child of `fork`.
pub fn route(from: &Device, to: &Device) -> ClResult<LinkRoute> {
    fork::check()?;
    if Arc::ptr_eq(from.node(), to.node()) {
        return Ok(LinkRoute::SameServer);
    }
    let ends = [from, to].map(|device| SessionLink::of(device.node()));
    let known = match &ends {
        [Some(one), Some(other)] => peer::route(one, other),
        _ => Route::Direct,
    };
    Ok(match known {
        Route::Direct => LinkRoute::Direct,
        Route::ViaClient => LinkRoute::ViaClient,
    })
}

/// Returns the shortest round trip between two devices; `None` if it is not known. For two servers that reach each other, this
/// may wait a second for each of them.
///
/// # Errors
/// In a child of `fork`.
pub fn round_trip(from: &Device, to: &Device) -> ClResult<Option<Duration>> {
    Ok(match route(from, to)? {
        LinkRoute::SameServer => None,
        LinkRoute::Direct => kept(from.node(), to.node()).map(|of| of.round_trip),
        LinkRoute::ViaClient => sum([from, to].map(|device| device.node().gauge().round_trip())),
    })
}

/// Returns the bandwidth from one device to another one; `None` if it is not known. Waits as [`round_trip`] does, unless
/// transfers have shown the bandwidth.
///
/// # Errors
/// In a child of `fork`.
pub fn bandwidth(from: &Device, to: &Device) -> ClResult<Option<Bandwidth>> {
    Ok(match route(from, to)? {
        LinkRoute::SameServer => None,
        LinkRoute::Direct => direct(from.node(), to.node()),
        LinkRoute::ViaClient => {
            let [from, to] = [(from, Leg::ToClient), (to, Leg::FromClient)]
                .map(|(device, leg)| of_client(device.node(), leg));
            slower(from, to)
        }
    })
}

/// One half of the way through this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leg {
    ToClient,
    FromClient,
}

fn kept(from: &Node, to: &Node) -> Option<Figures> {
    figures::between(&from.link_end()?, &to.link_end()?)
}

fn direct(from: &Node, to: &Node) -> Option<Bandwidth> {
    if let Some(learnt) = peer::learnt_rate(&from.uuid()?, &to.uuid()?) {
        return Some(Bandwidth {
            rate: learnt.rate,
            age: learnt.when.elapsed(),
        });
    }
    let kept = kept(from, to).filter(|of| of.bandwidth > 0)?;
    Some(Bandwidth {
        rate: kept.bandwidth,
        age: kept.age,
    })
}

fn of_client(node: &Node, leg: Leg) -> Option<Bandwidth> {
    let gauge = node.gauge();
    let own = (gauge.bandwidth() > 0).then(|| Bandwidth {
        rate: gauge.bandwidth(),
        age: gauge
            .measured()
            .as_ref()
            .map_or(Duration::ZERO, Instant::elapsed),
    });
    own.or_else(|| {
        let kept = figures::kept_of(&node.link_end()?)?;
        let rate = match leg {
            Leg::ToClient => kept.inward,
            Leg::FromClient => kept.outward,
        };
        let age = figures::age_of(kept.when);
        (rate > 0).then_some(Bandwidth { rate, age })
    })
}

/// A message through the client goes one half of each round trip, and its answer the other half.
fn sum(round_trips: [Option<Duration>; 2]) -> Option<Duration> {
    let [one, other] = round_trips;
    Some(one? + other?)
}

/// Bytes through the client are as fast as the slower part of the way. The older figure says how old both are.
fn slower(one: Option<Bandwidth>, other: Option<Bandwidth>) -> Option<Bandwidth> {
    let (one, other) = (one?, other?);
    Some(Bandwidth {
        rate: one.rate.min(other.rate),
        age: one.age.max(other.age),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_through_the_client_needs_both_parts() {
        let of = |rate, seconds| {
            let age = Duration::from_secs(seconds);
            Some(Bandwidth { rate, age })
        };
        assert_eq!(slower(of(5, 1), of(7, 9)), of(5, 9));
        assert_eq!(slower(of(5, 1), None), None);
        let ms = |of| Some(Duration::from_millis(of));
        assert_eq!(sum([ms(3), ms(4)]), ms(7));
        assert_eq!(sum([None, ms(4)]), None);
    }
}
