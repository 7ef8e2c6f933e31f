//! One direction between two hosts: the time at which each packet arrives, or that it is lost.
//!
//! Pure: time is passed in and randomness comes from a seed, so the same packets get the same result.
//! Invariant: a packet leaves no earlier than `delay` after its arrival. Packets keep their order, except
//! those chosen to be late.

use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::segments::Packet;
use crate::shape::Shape;

/// Statistics of the packets of one direction. Segments of a run count one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fate {
    /// Packets that went through, including late ones.
    pub passed: u64,
    /// Packets that were lost at random.
    pub lost: u64,
    /// Packets that were held back so that others overtake them.
    pub late: u64,
    /// Packets that found the queue of the rate limit full.
    pub overflowed: u64,
}

/// One direction between two hosts.
pub(super) struct Way {
    shape: Shape,
    chance: SmallRng,
    /// The time at which the rate limit has sent everything it has.
    busy_until: Option<Instant>,
    /// The time at which the last packet in order arrives.
    last: Option<Instant>,
    fate: Fate,
}

impl Way {
    pub(super) fn new(shape: Shape, seed: u64) -> Self {
        Self {
            shape,
            chance: SmallRng::seed_from_u64(seed),
            busy_until: None,
            last: None,
            fate: Fate::default(),
        }
    }

    pub(super) fn reshape(&mut self, shape: Shape) {
        self.shape = shape;
        self.busy_until = None;
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    pub(super) fn fate(&self) -> Fate {
        self.fate
    }

    /// Takes a packet that came at `now`. Passes each piece of it that will arrive to `out`, with its time.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        packet: Packet,
        mut out: impl FnMut(Instant, Packet),
    ) {
        let segments = packet.segments();
        let Some(sent) = self.send(now, packet.len() as u64) else {
            self.fate.overflowed += segments as u64;
            return;
        };
        let mut due = sent + self.shape.delay + self.jitter();
        if let Some(last) = self.last {
            due = due.max(last);
        }
        self.last = Some(due);
        if self.shape.loss <= 0.0 && self.shape.reorder <= 0.0 {
            self.fate.passed += segments as u64;
            return out(due, packet);
        }
        // Runs of segments that are neither lost nor late stay together.
        let mut whole_from = 0;
        for segment in 0..segments {
            let lost = self.happens(self.shape.loss);
            let late = !lost && self.happens(self.shape.reorder);
            if !lost && !late {
                self.fate.passed += 1;
                continue;
            }
            if whole_from < segment {
                out(due, packet.cut(whole_from..segment));
            }
            whole_from = segment + 1;
            if late {
                self.fate.late += 1;
                self.fate.passed += 1;
                out(due + self.shape.late, packet.cut(segment..segment + 1));
            } else {
                self.fate.lost += 1;
            }
        }
        if whole_from < segments {
            out(due, packet.cut(whole_from..segments));
        }
    }

    /// Returns when the last bit of `bytes` has left the rate limit; `None` if its queue is full.
    fn send(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        let Some(rate) = self.shape.rate else {
            return Some(now);
        };
        let free = self.busy_until.map_or(now, |until| until.max(now));
        let waiting = rate.bytes_in(free - now);
        if waiting.saturating_add(bytes) > self.shape.queue_bytes() {
            return None;
        }
        let sent = free + rate.time_for(bytes);
        self.busy_until = Some(sent);
        Some(sent)
    }

    fn jitter(&mut self) -> Duration {
        if self.shape.jitter.is_zero() {
            return Duration::ZERO;
        }
        self.shape.jitter.mul_f64(self.chance.random::<f64>())
    }

    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.chance.random::<f64>() < share
    }
}

#[cfg(test)]
mod tests {
    use super::super::segments::tests::run;
    use super::*;
    use crate::units::Rate;

    const MS: Duration = Duration::from_millis(1);

    fn through(way: &mut Way, now: Instant, packet: &Packet) -> Vec<(Instant, Packet)> {
        let mut out = Vec::new();
        way.admit(now, packet.clone(), |due, piece| out.push((due, piece)));
        out
    }

    #[test]
    fn a_delay_is_exact_and_jitter_keeps_the_order() {
        let now = Instant::now();
        let packet = run(100, 0);
        let mut way = Way::new(Shape::delayed(10 * MS), 1);
        assert_eq!(
            through(&mut way, now, &packet),
            [(now + 10 * MS, packet.clone())]
        );

        way.reshape(Shape {
            jitter: 5 * MS,
            ..Shape::delayed(10 * MS)
        });
        let mut last = now;
        for number in 0..200 {
            let come = now + MS * number / 10;
            let (due, _) = through(&mut way, come, &packet).remove(0);
            assert!(due >= last && due >= come + 10 * MS);
            last = due;
        }
    }

    #[test]
    fn a_rate_spaces_packets_and_its_queue_overflows() {
        let now = Instant::now();
        let packet = run(960, 0);
        let rate = Some(Rate::mbit(8));
        let mut way = Way::new(
            Shape {
                rate,
                queue: Some(2500),
                ..Shape::default()
            },
            1,
        );
        let due: Vec<_> = (0..3).map(|_| through(&mut way, now, &packet)).collect();
        assert_eq!((due[0][0].0, due[1][0].0), (now + MS, now + 2 * MS));
        assert!(due[2].is_empty());
        assert_eq!(
            way.fate(),
            Fate {
                passed: 2,
                overflowed: 1,
                ..Fate::default()
            }
        );
        // Idle time earns no credit.
        let later = now + 50 * MS;
        assert_eq!(through(&mut way, later, &packet)[0].0, later + MS);
    }

    #[test]
    fn losses_hit_single_segments_and_follow_the_seed() {
        let now = Instant::now();
        let packet = run(40_000, 1000);
        let shape = Shape {
            loss: 0.1,
            ..Shape::default()
        };
        let fates = [7, 7, 8].map(|seed| {
            let mut way = Way::new(shape, seed);
            let mut bytes = 0;
            for _ in 0..250 {
                bytes += through(&mut way, now, &packet)
                    .iter()
                    .map(|(_, piece)| piece.len() - 40)
                    .sum::<usize>();
            }
            let fate = way.fate();
            assert_eq!(
                (fate.passed + fate.lost, fate.passed * 1000),
                (10_000, bytes as u64)
            );
            assert!((800..1200).contains(&fate.lost), "{fate:?}");
            fate
        });
        assert_eq!(fates[0], fates[1]);
        assert_ne!(fates[0], fates[2]);
    }

    #[test]
    fn late_segments_come_late_and_the_others_in_time() {
        let now = Instant::now();
        let shape = Shape {
            reorder: 0.2,
            late: 3 * MS,
            ..Shape::delayed(10 * MS)
        };
        let mut way = Way::new(shape, 3);
        let pieces = through(&mut way, now, &run(40_000, 1000));
        let late = pieces
            .iter()
            .filter(|(due, _)| *due == now + 13 * MS)
            .count();
        assert_eq!(late as u64, way.fate().late);
        assert!(
            late > 0
                && pieces
                    .iter()
                    .all(|(due, _)| *due == now + 10 * MS || *due == now + 13 * MS)
        );
        assert_eq!(
            pieces
                .iter()
                .map(|(_, piece)| piece.segments())
                .sum::<usize>(),
            40
        );
    }
}
