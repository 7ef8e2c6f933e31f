//! The speeds of a server's addresses: as the drivers of the interfaces at both ends tell them, and as transfers measure.
//!
//! Pure. Invariants: of two ends, the slower one counts, and an end that tells nothing counts for nothing. Only the time
//! in which a rail moves bytes counts for its measured speed, so a rail with less to do is not slow.
#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::time::{Duration, Instant};

use causeway_proto::control::LinkSpeed;

use crate::config::Address;

/// Number of bytes of one measurement. Fewer bytes would only fill buffers on the way.
const WINDOW: u64 = 8 << 20;

/// Measures a rail, on which several lanes may move bytes at the same time.
#[derive(Debug, Default)]
pub(super) struct RailGauge {
    moving: u32,
    since: Option<Instant>,
    busy: Duration,
    bytes: u64,
    speed: u64,
}

impl RailGauge {
    /// The speed in bytes a second; 0 if it was not measured.
    pub(super) fn speed(&self) -> u64 {
        self.speed
    }

    /// Records that a lane begins to move bytes.
    pub(super) fn begin(&mut self, now: Instant) {
        self.moving += 1;
        self.since.get_or_insert(now);
    }

    /// Records that a lane has moved bytes. Newer measurements count a quarter.
    pub(super) fn end(&mut self, now: Instant, bytes: u64) {
        let since = self.since.take().unwrap_or(now);
        self.busy += now.saturating_duration_since(since);
        self.moving = self.moving.saturating_sub(1);
        self.since = (self.moving > 0).then_some(now);
        self.bytes += bytes;
        if self.bytes < WINDOW {
            return;
        }
        let nanoseconds = self.busy.as_nanos().max(1);
        let speed = u128::from(self.bytes) * 1_000_000_000 / nanoseconds;
        let speed = u64::try_from(speed).unwrap_or(u64::MAX).max(1);
        self.speed = match self.speed {
            0 => speed,
            known => known - known / 4 + speed / 4,
        };
        (self.bytes, self.busy) = (0, Duration::ZERO);
    }

    /// Forgets what was measured, because the rail did not work.
    pub(super) fn forget(&mut self) {
        (self.bytes, self.busy, self.speed) = (0, Duration::ZERO, 0);
    }
}

/// Bytes a second of one Mbit/s.
const MBIT: u64 = 125_000;

/// The speed of each address in bytes a second; `None` if neither end tells one. `own` returns the speed of this host's
/// interface towards an address, in Mbit/s. `theirs` are the speeds that the node has told.
pub(super) fn told<'a>(
    addresses: impl Iterator<Item = &'a Address>,
    theirs: &[LinkSpeed],
    own: impl Fn(IpAddr, Option<&str>) -> Option<u32>,
) -> Vec<Option<u64>> {
    let speed = |address: &Address| {
        let host: IpAddr = address.host_without_zone().parse().ok()?;
        let zone = address.host().split_once('%').map(|(_, zone)| zone);
        let bytes = match host {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let told = theirs.iter().find(|of| of.address == bytes);
        let told = told.map(|of| of.mbits).filter(|mbits| *mbits > 0);
        let slower = own(host, zone).into_iter().chain(told).min()?;
        Some(u64::from(slower) * MBIT)
    };
    addresses.map(speed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_in_which_bytes_move_counts() {
        let (mut gauge, begun) = (RailGauge::default(), Instant::now());
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        // Two lanes at the same time, then nothing for a while.
        gauge.begin(at(0));
        gauge.begin(at(20));
        gauge.end(at(40), WINDOW / 4);
        gauge.end(at(60), WINDOW / 4);
        assert_eq!(gauge.speed(), 0);
        gauge.begin(at(5_000));
        gauge.end(at(5_040), WINDOW / 2);
        assert_eq!(gauge.speed(), WINDOW * 10);
        gauge.forget();
        assert_eq!(gauge.speed(), 0);
    }

    #[test]
    fn the_slower_end_counts_and_an_unknown_one_does_not() {
        let addresses = ["10.0.0.7", "10.1.0.7", "[fe80::7%eth1]", "10.2.0.7", "gpu1"];
        let addresses: Vec<Address> = addresses.iter().map(|of| of.parse().unwrap()).collect();
        let theirs = [
            ([10, 0, 0, 7], 10_000),
            ([10, 1, 0, 7], 2_500),
            ([10, 2, 0, 7], 0),
        ];
        let theirs = theirs.map(|(address, mbits)| LinkSpeed {
            address: address.to_vec().into(),
            mbits,
        });
        let own = |host: IpAddr, zone: Option<&str>| match (host.to_string().as_str(), zone) {
            ("10.0.0.7", None) => Some(1_000),
            ("fe80::7", Some("eth1")) => Some(40_000),
            _ => None,
        };
        let told = told(addresses.iter(), &theirs, own);
        let expected = [Some(1_000), Some(2_500), Some(40_000), None, None];
        assert_eq!(told, expected.map(|of| of.map(|mbits| mbits * MBIT)));
    }
}
