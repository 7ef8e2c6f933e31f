//! The state of the live view, and how keys and snapshots change it; pure. Times count from the start.
//!
//! Invariant: while the manager cannot be reached, the last snapshot stays visible and is marked as old.

use std::time::Duration;

use causeway_devmgr::rates::{Rate, Rates, Totals};
use causeway_proto::manager::{DeviceInfo, NodeInfo, Snapshot};

/// A list on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Nodes,
    Devices,
    Leases,
    Queue,
}

impl Pane {
    /// All panes, from top to bottom.
    pub(super) const ALL: [Pane; 4] = [Pane::Nodes, Pane::Devices, Pane::Leases, Pane::Queue];
}

/// A user's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAction {
    Quit,
    NextPane,
    /// Scrolls down by this number of rows, or up if it is negative.
    Scroll(isize),
    First,
    Last,
}

/// The state of the connection to the manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// No snapshot has arrived yet.
    Beginning,
    Heard,
    Lost {
        since: Duration,
        reason: String,
    },
}

/// The state of the view. See the module.
#[derive(Debug)]
pub(super) struct View {
    /// The manager's address.
    pub(super) manager: String,
    pub(super) link: Link,
    pub(super) snapshot: Snapshot,
    pub(super) focus: Pane,
    rates: Rates,
    lease_rates: Rates,
    device_rates: Rates,
    /// The first row shown, by pane. [`View::first_row`] moves it back to the last full screen.
    scrolled: [usize; Pane::ALL.len()],
}

impl View {
    pub(super) fn new(manager: String) -> View {
        View {
            manager,
            link: Link::Beginning,
            snapshot: Snapshot::default(),
            focus: Pane::Nodes,
            rates: Rates::default(),
            lease_rates: Rates::default(),
            device_rates: Rates::default(),
            scrolled: [0; Pane::ALL.len()],
        }
    }

    /// Takes over a new snapshot.
    pub(super) fn take(&mut self, at: Duration, snapshot: Snapshot) {
        let connected = || snapshot.nodes.iter().filter(|node| node.connected);
        let moved = connected().map(|node| {
            let totals = Totals {
                bytes: node.bytes,
                commands: node.commands,
                busy_ns: 0,
            };
            (node.node_uuid.to_vec(), totals)
        });
        self.rates.take(at, moved);
        let busy = connected().flat_map(|node| {
            let uses = node.devices.iter().filter_map(|of| Some((of, of.r#use?)));
            uses.map(|(of, usage)| {
                let totals = Totals {
                    bytes: 0,
                    commands: 0,
                    busy_ns: usage.busy_ns,
                };
                (device_key(node, of), totals)
            })
        });
        self.device_rates.take(at, busy);
        let moved = snapshot.leases.iter().map(|lease| {
            let totals = Totals {
                bytes: lease.bytes,
                commands: lease.commands,
                busy_ns: lease.busy_ns,
            };
            (lease.lease_id.to_vec(), totals)
        });
        self.lease_rates.take(at, moved);
        self.snapshot = snapshot;
        self.link = Link::Heard;
    }

    /// Records that the manager cannot be reached.
    pub(super) fn lose(&mut self, at: Duration, reason: String) {
        let since = match self.link {
            Link::Lost { since, .. } => since,
            _ => at,
        };
        self.link = Link::Lost { since, reason };
    }

    /// Carries out an action. Returns whether the view ends.
    pub(super) fn apply(&mut self, key_action: KeyAction) -> bool {
        let rows = self.rows(self.focus);
        let first = &mut self.scrolled[self.focus as usize];
        match key_action {
            KeyAction::Quit => return true,
            KeyAction::NextPane => {
                let next = (self.focus as usize + 1) % Pane::ALL.len();
                self.focus = Pane::ALL[next];
            }
            KeyAction::Scroll(by) => *first = first.saturating_add_signed(by).min(rows),
            KeyAction::First => *first = 0,
            KeyAction::Last => *first = rows,
        }
        false
    }

    /// Number of a pane's rows.
    pub(super) fn rows(&self, pane: Pane) -> usize {
        match pane {
            Pane::Nodes => self.snapshot.nodes.len(),
            Pane::Devices => self.snapshot.nodes.iter().map(|of| of.devices.len()).sum(),
            Pane::Leases => self.snapshot.leases.len(),
            Pane::Queue => self.snapshot.queue.iter().map(|of| of.requests.len()).sum(),
        }
    }

    /// The first row to show of a pane that has room for this many rows. Keys count from there on, so that each one shows
    /// other rows.
    pub(super) fn first_row(&mut self, pane: Pane, room: usize) -> usize {
        let most = self.rows(pane).saturating_sub(room);
        let first = &mut self.scrolled[pane as usize];
        *first = (*first).min(most);
        *first
    }

    /// The rate of a node.
    pub(super) fn rate(&self, node: &[u8]) -> Option<Rate> {
        self.rates.of(node)
    }

    /// The rate of a lease's sessions.
    pub(super) fn lease_rate(&self, lease: &[u8]) -> Option<Rate> {
        self.lease_rates.of(lease)
    }

    /// The rate of a device of a node.
    pub(super) fn device_rate(&self, node: &NodeInfo, device: &DeviceInfo) -> Option<Rate> {
        self.device_rates.of(&device_key(node, device))
    }

    /// The sum of all known rates of nodes.
    pub(super) fn rate_in_all(&self) -> Rate {
        let rates = self.snapshot.nodes.iter();
        let rates = rates.filter_map(|node| self.rate(&node.node_uuid));
        rates.fold(Rate::default(), |all, of| Rate {
            bytes_per_second: all.bytes_per_second + of.bytes_per_second,
            commands_per_second: all.commands_per_second + of.commands_per_second,
            busy: all.busy + of.busy,
        })
    }
}

/// The id of a node's device among the rates.
fn device_key(node: &NodeInfo, device: &DeviceInfo) -> Vec<u8> {
    let (platform, index) = (device.platform.to_be_bytes(), device.device.to_be_bytes());
    [&node.node_uuid[..], &platform, &index].concat()
}

/// Distributes `lines` over the panes, each including its title and header. Each gets what it wants, as
/// far as the others have their share. Panes without room for a single row are left out, the last ones
/// first.
pub(super) fn heights(lines: u16, wanted: [u16; Pane::ALL.len()]) -> [u16; Pane::ALL.len()] {
    const LEAST: u16 = 3;
    let shown = usize::from(lines / LEAST).min(wanted.len());
    let mut heights = [0; Pane::ALL.len()];
    let mut left = lines;
    // One line at a time to every pane that wants more.
    loop {
        let before = left;
        for (height, wanted) in heights.iter_mut().zip(wanted).take(shown) {
            if left > 0 && *height < wanted.max(LEAST) {
                *height += 1;
                left -= 1;
            }
        }
        if left == before {
            return heights;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(nodes: usize) -> Snapshot {
        let node = NodeInfo {
            devices: vec![DeviceInfo::default(); 2],
            ..NodeInfo::default()
        };
        Snapshot {
            nodes: vec![node; nodes],
            ..Snapshot::default()
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_was_heard_stays_while_the_manager_is_away() {
        let mut view = View::new("m:1".to_owned());
        assert_eq!(view.link, Link::Beginning);
        view.take(at(1), snapshot(3));
        view.lose(at(2), "gone".to_owned());
        view.lose(at(3), "still gone".to_owned());
        let lost = Link::Lost {
            since: at(2),
            reason: "still gone".to_owned(),
        };
        assert_eq!(view.link, lost);
        assert_eq!(view.rows(Pane::Devices), 6);
        view.take(at(4), snapshot(1));
        assert_eq!(
            (view.link.clone(), view.rows(Pane::Nodes)),
            (Link::Heard, 1)
        );
    }

    #[test]
    fn scrolling_stays_within_what_there_is() {
        let mut view = View::new(String::new());
        view.take(at(0), snapshot(10));
        assert!(!view.apply(KeyAction::Scroll(-3)));
        assert_eq!(view.first_row(Pane::Nodes, 4), 0);
        view.apply(KeyAction::Scroll(2));
        assert_eq!(view.first_row(Pane::Nodes, 4), 2);
        view.apply(KeyAction::Last);
        assert_eq!(view.first_row(Pane::Nodes, 4), 6);
        view.apply(KeyAction::Scroll(-1));
        assert_eq!(view.first_row(Pane::Nodes, 4), 5);
        assert_eq!(view.first_row(Pane::Nodes, 40), 0);
        assert_eq!(view.first_row(Pane::Devices, 4), 0);
        view.apply(KeyAction::NextPane);
        view.apply(KeyAction::Scroll(100));
        assert_eq!(view.first_row(Pane::Devices, 5), 15);
        // The new snapshot has fewer rows.
        view.take(at(1), snapshot(1));
        assert_eq!(view.first_row(Pane::Devices, 1), 1);
        for _ in 0..3 {
            view.apply(KeyAction::NextPane);
        }
        assert_eq!(view.focus, Pane::Nodes);
        view.apply(KeyAction::First);
        assert_eq!(view.first_row(Pane::Nodes, 1), 0);
        assert!(view.apply(KeyAction::Quit));
    }

    #[test]
    fn panes_share_what_lines_there_are() {
        assert_eq!(heights(40, [5, 6, 3, 3]), [5, 6, 3, 3]);
        assert_eq!(heights(16, [100, 100, 3, 3]), [5, 5, 3, 3]);
        assert_eq!(heights(7, [9, 9, 9, 9]), [4, 3, 0, 0]);
        assert_eq!(heights(2, [9, 9, 9, 9]), [0; 4]);
        assert_eq!(heights(0, [9, 9, 9, 9]), [0; 4]);
    }
}
