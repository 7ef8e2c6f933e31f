//! DOCL's printed rule for peering (its section on the peering protocol), in simulated time. Pure.
//!
//! A host starts with an alarm after 14 s and a random part of up to 5 s. When it finds a published host, it connects to it, and
//! sets the alarm anew: 5 s and up to 5 s. On the alarm it publishes itself. A published host starts no connections. All
//! hosts start at once, and nothing else takes time. Invariant: each pair has one connection.

use crate::random::Random;

/// Seconds until all pairs of hosts are connected.
pub(crate) fn full_mesh(hosts: usize, random: &mut Random) -> f64 {
    let mut alarms: Vec<f64> = (0..hosts).map(|_| 14.0 + 5.0 * random.unit()).collect();
    let mut connected = vec![0; hosts];
    let mut now = 0.0;
    while connected.iter().sum::<usize>() < hosts * (hosts - 1) {
        // The host whose alarm is next publishes itself.
        let next = alarms.iter().enumerate().filter(|(_, at)| at.is_finite());
        let Some((publishing, at)) = next.min_by(|one, other| one.1.total_cmp(other.1)) else {
            break;
        };
        now = *at;
        alarms[publishing] = f64::INFINITY;
        for host in 0..hosts {
            if alarms[host].is_finite() {
                alarms[host] = now + 5.0 + 5.0 * random.unit();
                connected[host] += 1;
                connected[publishing] += 1;
            }
        }
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(hosts: usize) -> f64 {
        let mut random = Random::new(7);
        let runs = 4000;
        (0..runs)
            .map(|_| full_mesh(hosts, &mut random))
            .sum::<f64>()
            / f64::from(runs)
    }

    /// The mean follows from those of the least of several random parts.
    fn expected(hosts: usize) -> f64 {
        let least = |of: usize| 5.0 / (of as f64 + 1.0);
        let steps = (1..hosts - 1).map(|published| 5.0 + least(hosts - published));
        14.0 + least(hosts) + steps.sum::<f64>()
    }

    #[test]
    fn the_simulation_has_the_mean_that_follows_from_the_rule() {
        for hosts in [2, 3, 5, 8, 20] {
            let (mean, expected) = (mean(hosts), expected(hosts));
            assert!((mean - expected).abs() < 0.3, "{hosts}: {mean} {expected}");
        }
        assert!((expected(3) - 21.9).abs() < 0.1 && (expected(8) - 50.7).abs() < 0.1);
    }

    #[test]
    fn the_printed_rule_is_slower_than_the_observed_line() {
        // 3.37 s a host were observed. Each further host costs 5 s and more by the rule.
        assert!((mean(8) - mean(3)) / 5.0 > 5.0);
    }
}
