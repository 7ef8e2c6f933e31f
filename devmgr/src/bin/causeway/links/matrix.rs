//! The kept figures, as a list and as a matrix, and the pairs that are much slower than others.
//!
//! Pure, but for the time of now. Invariants: of two figures between two nodes, the newer counts. Of this machine's figures for
//! several addresses of a node, all are listed, and the fastest counts. Hosts have clocks of their own: a figure of far in the
//! future is the oldest of all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;

use causeway_devmgr::listing::{CLOCKS_DIFFER, LinkReport};
use causeway_links::LinkEntry;

use crate::text::printable;

/// A pair is slow if the median of all pairs is so many times faster.
const SLOWER: u64 = 5;
/// Number of pairs from which a median says something.
const ENOUGH: usize = 3;

/// One who takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    /// 32 hexadecimal digits; empty: this machine.
    pub(crate) id: String,
}

/// A kept figure, with the id of the host that keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) owner: String,
    pub(crate) of: LinkEntry,
}

/// The figures of all links between hosts.
#[derive(Debug)]
pub(crate) struct Figures {
    hosts: Vec<Host>,
    links: Vec<LinkReport>,
    /// The place in `links` of the figure that counts, by the ids of the host that has measured and of the other one.
    places: HashMap<(String, String), usize>,
}

impl Figures {
    /// The figures of links between these hosts.
    pub(crate) fn of(hosts: &[Host], kept: Vec<Shown>) -> Figures {
        Figures::at(hosts, kept, causeway_links::seconds_now())
    }

    fn at(hosts: &[Host], kept: Vec<Shown>, now: u64) -> Figures {
        let names: HashMap<&str, &str> = (hosts.iter().map(|of| (&*of.id, &*of.name))).collect();
        let name = |id: &str| names.get(id).map(|of| (*of).to_owned());
        let mut pairs: BTreeMap<(String, String, Option<IpAddr>), Shown> = BTreeMap::new();
        for mut shown in kept {
            if shown.of.when > now + CLOCKS_DIFFER {
                shown.of.when = 0;
            }
            if name(&shown.owner).is_none() || name(&shown.of.peer).is_none() {
                continue;
            }
            let mut pair = [shown.owner.clone(), shown.of.peer.clone()];
            pair.sort();
            let [one, other] = pair;
            let is_own = shown.owner.is_empty();
            let key = (one, other, is_own.then(|| shown.of.to.ip()));
            let known = pairs.get(&key);
            if known.is_none_or(|known| known.of.when < shown.of.when) {
                pairs.insert(key, shown);
            }
        }
        let links = pairs.into_values().map(|Shown { owner, of }| {
            let from = name(&owner).unwrap_or_default();
            let to = name(&of.peer).unwrap_or_default();
            let owner = Some(owner).filter(|id| !id.is_empty());
            LinkReport::new((from, owner), (to, of.peer.clone()), &of, now)
        });
        let links: Vec<LinkReport> = links.collect();
        let mut places = HashMap::new();
        for (place, of) in links.iter().enumerate() {
            let from = of.from_id.clone().unwrap_or_default();
            let counts = places.entry((from, of.to_id.clone())).or_insert(place);
            let worth = |of: &LinkReport| (!of.old, of.slower());
            if worth(&links[*counts]) < worth(of) {
                *counts = place;
            }
        }
        Figures {
            hosts: hosts.to_vec(),
            places,
            links,
        }
    }

    pub(crate) fn links(&self) -> &Vec<LinkReport> {
        &self.links
    }

    pub(crate) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The link between two hosts, with the bytes per second from the first to the second.
    pub(crate) fn between(&self, from: &Host, to: &Host) -> Option<(&LinkReport, u64)> {
        let link = |from: &Host, to: &Host| {
            let place = self.places.get(&(from.id.clone(), to.id.clone()))?;
            self.links.get(*place)
        };
        let there = link(from, to).map(|of| (of, of.outward_bytes_per_second));
        there.or_else(|| link(to, from).map(|of| (of, of.inward_bytes_per_second)))
    }
}

/// The median of all pairs' bandwidths, and the links that are far slower: each address of a node is judged, because
/// programs may use all of them. For the median, the fastest of a pair counts. Old figures do not count.
pub(crate) fn slow(figures: &Figures) -> Option<(u64, Vec<&LinkReport>)> {
    let counting: BTreeSet<usize> = figures.places.values().copied().collect();
    let counting = counting.into_iter().map(|place| &figures.links[place]);
    let mut rates: Vec<u64> = counting
        .filter(|link| !link.old)
        .map(LinkReport::slower)
        .collect();
    rates.sort_unstable();
    if rates.len() < ENOUGH {
        return None;
    }
    let median = rates[rates.len() / 2];
    let is_slow = |link: &&LinkReport| !link.old && link.slower().saturating_mul(SLOWER) <= median;
    Some((median, figures.links.iter().filter(is_slow).collect()))
}

/// A bandwidth for people.
pub(crate) fn bandwidth(bytes_per_second: u64) -> String {
    let bits = bytes_per_second as f64 * 8.0;
    match bits {
        _ if bits >= 1e9 => format!("{:.2} Gbit/s", bits / 1e9),
        _ if bits >= 1e6 => format!("{:.0} Mbit/s", bits / 1e6),
        _ => format!("{:.0} kbit/s", bits / 1e3),
    }
}

/// A round trip for people.
pub(crate) fn round_trip(ns: u64) -> String {
    format!("{:.2} ms", ns as f64 / 1e6)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.links.is_empty() {
            return writeln!(f, "no figures are kept: causeway links --measure");
        }
        let cell = |from: &Host, to: &Host| match self.between(from, to) {
            _ if from == to => "·".to_owned(),
            None => "-".to_owned(),
            Some((link, rate)) => {
                let old = if link.old { " (old)" } else { "" };
                let trip = round_trip(link.round_trip_median_ns);
                format!("{}, {trip}{old}", bandwidth(rate))
            }
        };
        let mut rows = vec![vec!["FROM \\ TO".to_owned()]];
        rows[0].extend(self.hosts.iter().map(|of| printable(&of.name)));
        for from in &self.hosts {
            let cells = self.hosts.iter().map(|to| cell(from, to));
            rows.push(
                std::iter::once(printable(&from.name))
                    .chain(cells)
                    .collect(),
            );
        }
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..rows[0].len())
            .map(|of| width(of).unwrap_or(0))
            .collect();
        for row in &rows {
            let cells = row.iter().zip(&widths);
            let line: Vec<String> = cells
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn hosts(count: u128) -> Vec<Host> {
        let of = |number: u128| match number {
            0 => Host {
                name: "this machine".to_owned(),
                id: String::new(),
            },
            _ => Host {
                name: format!("gpu{number}"),
                id: format!("{number:032x}"),
            },
        };
        (0..count).map(of).collect()
    }

    pub(crate) fn kept(owner: &Host, peer: &Host, outward: u64, inward: u64, when: u64) -> Shown {
        Shown {
            owner: owner.id.clone(),
            of: LinkEntry {
                name: peer.name.clone(),
                median_ns: 210_000,
                outward,
                inward,
                when,
                ..LinkEntry::unmeasured(
                    peer.id.clone(),
                    [10, 0, 0, 1].into(),
                    ([10, 0, 0, 2], 7079).into(),
                )
            },
        }
    }

    pub(crate) fn figures(hosts: &[Host], kept: Vec<Shown>, now: u64) -> Figures {
        Figures::at(hosts, kept, now)
    }

    #[test]
    fn the_newer_figure_of_a_pair_counts_whoever_keeps_it() {
        let hosts = hosts(3);
        let links = vec![
            kept(&hosts[1], &hosts[2], 125_000_000, 100_000_000, 50),
            kept(&hosts[2], &hosts[1], 12_500_000, 25_000_000, 60),
            kept(&hosts[0], &hosts[1], 1_250_000_000, 125_000, 10),
        ];
        let figures = Figures::at(&hosts, links, 100);
        assert_eq!(figures.links().len(), 2);
        let rate =
            |from: usize, to: usize| figures.between(&hosts[from], &hosts[to]).map(|of| of.1);
        assert_eq!(
            (rate(1, 2), rate(2, 1)),
            (Some(25_000_000), Some(12_500_000))
        );
        assert_eq!(
            (rate(0, 1), rate(1, 0), rate(0, 2)),
            (Some(1_250_000_000), Some(125_000), None)
        );
        let text = figures.to_string();
        for part in [
            "10.00 Gbit/s, 0.21 ms",
            "1 Mbit/s, 0.21 ms",
            "200 Mbit/s",
            "-",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn each_address_of_a_node_is_listed_and_judged_and_the_fastest_counts() {
        let hosts = hosts(4);
        let at = |host: u8, rate, when| {
            let mut shown = kept(&hosts[0], &hosts[1], rate, rate, when);
            shown.of.to = ([10, 0, 0, host], 7079).into();
            shown
        };
        let now = 5_000_000;
        let ways = vec![at(2, 100, now), at(3, 1_000, now), at(4, 50, 0)];
        let others = [
            kept(&hosts[1], &hosts[2], 1_000, 1_000, now),
            kept(&hosts[2], &hosts[3], 1_000, 1_000, now),
        ];
        let figures = Figures::at(&hosts, [ways, others.to_vec()].concat(), now);
        assert_eq!(figures.links().len(), 5);
        let (link, rate) = figures.between(&hosts[0], &hosts[1]).unwrap();
        assert_eq!((&*link.to_address, rate), ("10.0.0.3:7079", 1_000));
        // Both addresses of the slow network are named. An old figure is not judged.
        let (median, slow) = slow(&figures).unwrap();
        let named = slow.iter().map(|of| (&*of.from_address, &*of.to_address));
        let named: Vec<_> = named.collect();
        assert_eq!(
            (median, &named[..]),
            (1_000, &[("10.0.0.1", "10.0.0.2:7079")][..])
        );
    }

    #[test]
    fn a_clock_that_is_before_does_not_win_for_ever() {
        let hosts = hosts(3);
        let (one, other) = (&hosts[1], &hosts[2]);
        let wrong = kept(one, other, 7, 7, 20_000_000);
        let shown = figures(&hosts, vec![wrong.clone()], 10_000_000);
        assert!(shown.links()[0].old);
        let right = kept(other, one, 8, 8, 9_900_000);
        for both in [
            vec![wrong.clone(), right.clone()],
            vec![right.clone(), wrong.clone()],
        ] {
            let shown = figures(&hosts, both, 10_000_000);
            assert_eq!(shown.links()[0].slower(), 8);
        }
        // A little is no mistake.
        let ahead = kept(one, other, 9, 9, 10_000_000 + CLOCKS_DIFFER);
        let shown = figures(&hosts, vec![ahead, right], 10_000_000);
        assert_eq!(
            (shown.links()[0].slower(), shown.links()[0].old),
            (9, false)
        );
    }

    #[test]
    fn a_host_that_takes_no_part_is_not_shown() {
        let hosts = hosts(3);
        let links = vec![kept(&hosts[1], &hosts[2], 1, 1, 50)];
        assert_eq!(Figures::at(&hosts[..2], links, 60).links().len(), 0);
    }

    #[test]
    fn a_pair_far_below_the_median_is_slow_and_an_old_one_is_not() {
        let hosts = hosts(4);
        let links = |slow_when| {
            vec![
                kept(&hosts[1], &hosts[2], 100, 110, 5_000_000),
                kept(&hosts[1], &hosts[3], 100, 110, 5_000_000),
                kept(&hosts[0], &hosts[1], 100, 110, 5_000_000),
                kept(&hosts[2], &hosts[3], 90, 20, slow_when),
            ]
        };
        let now = 5_000_000;
        let figures = Figures::at(&hosts, links(now), now);
        let (median, slow_pairs) = slow(&figures).unwrap();
        assert_eq!(median, 100);
        assert_eq!(slow_pairs.len(), 1);
        assert_eq!((&*slow_pairs[0].from, &*slow_pairs[0].to), ("gpu2", "gpu3"));
        let figures = Figures::at(&hosts, links(0), now);
        assert!(slow(&figures).unwrap().1.is_empty());
        let few = Figures::at(&hosts, links(now)[2..].to_vec(), now);
        assert!(slow(&few).is_none());
    }
}
