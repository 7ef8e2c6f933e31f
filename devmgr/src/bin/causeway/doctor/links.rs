//! Kept figures of links: a pair that is far slower than the others often uses a wrong network.

use causeway::config::{self, Settings};

use super::finding::Finding;
use crate::links::{Figures, Hosts, bandwidth, slow};

const CHECK: &str = "links";

/// Judges the kept figures. Nothing is measured. There is no finding without figures.
pub(super) fn links(settings: &Settings) -> Vec<Finding> {
    // Who measures has figures of this machine, too. Others need not wait for the nodes once more.
    let own = config::link_memory().map(|memory| memory.table());
    if own.is_none_or(|own| own.is_ok_and(|table| table.entries().is_empty())) {
        return Vec::new();
    }
    // Nodes that do not answer have findings of their own.
    let Ok((hosts, _)) = Hosts::find(settings, &[]) else {
        return Vec::new();
    };
    let figures = Figures::of(&hosts.names(), hosts.links().0);
    let Some((median, slow)) = slow(&figures) else {
        return Vec::new();
    };
    if slow.is_empty() {
        let count = figures.links().len();
        return vec![Finding::ok(
            CHECK,
            format!("no link of {count} is far slower than the others"),
        )];
    }
    let note = |link: &crate::links::LinkReport| {
        Finding::note(
            CHECK,
            format!(
                "{} ({}) and {} ({}) reach each other with {}, and the median of all pairs is {}",
                link.from,
                link.from_address,
                link.to,
                link.to_address,
                bandwidth(link.slower()),
                bandwidth(median),
            ),
            "look whether these addresses belong to the right network; `advertise` in daemon.toml and `address` in \
             servers.toml choose another one; then measure again: causeway links --measure",
        )
    };
    slow.into_iter().map(note).collect()
}
