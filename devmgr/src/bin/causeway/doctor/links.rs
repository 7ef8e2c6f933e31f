//! Kept figures of links: a pair that is far slower than the others often uses a wrong network.

use causeway::config::{self, Settings};
use causeway_devmgr::listing::LinkReport;

use super::finding::Finding;
use crate::context::Context;
use crate::links::{Figures, Hosts, bandwidth, slow};

const CHECK: &str = "links";

/// Judges the kept figures, and those of the device manager's nodes. Nothing is measured. There is no finding without figures.
pub(super) fn links(context: &Context, settings: &Settings) -> Vec<Finding> {
    // Who measures has figures of this machine, too. Others need not wait for the nodes once more.
    let own = config::link_memory().map(|memory| memory.table());
    let has_none = own.is_none_or(|own| own.is_ok_and(|table| table.entries().is_empty()));
    if has_none && settings.manager.is_none() {
        return Vec::new();
    }
    // Nodes that do not answer have findings of their own, and so has the manager.
    let Ok((hosts, _)) = Hosts::find(context, settings, &[], None) else {
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
    let note = |link: &LinkReport| {
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
