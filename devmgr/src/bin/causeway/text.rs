//! Text for people: tables, durations, sizes, times.
//!
//! Invariant: text from others reaches the terminal as printable characters only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use causeway_proto::manager::NodeInfo;

use crate::json::{NodeShare, Unit, id};

/// Quotes a word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@/+,=".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A table. Columns are as wide as their widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these headings.
    pub(crate) fn new<const N: usize>(headings: [&str; N]) -> Table {
        Table {
            rows: vec![headings.map(str::to_owned).to_vec()],
        }
    }

    /// Adds a row at the end.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows
            .push(cells.iter().map(|cell| printable(cell)).collect());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(widest).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line += &format!("{cell:width$}  ");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Formats shares: `node1: 0.0 Big GPU, 0.1#2 Small GPU; node2: …`, with platform, device, share and
/// name.
pub(crate) fn shares(nodes: &[NodeShare], names: &NodeNames) -> String {
    let unit = |unit: &Unit| {
        let share = match unit.share {
            0 => String::new(),
            share => format!("#{share}"),
        };
        let text = format!("{}.{}{share} {}", unit.platform, unit.device, unit.name);
        text.trim_end().to_owned()
    };
    let node = |node: &NodeShare| {
        let units: Vec<String> = node.units.iter().map(unit).collect();
        let name = names.label(&node.node, &node.name);
        format!("{name}: {}", units.join(", "))
    };
    let nodes: Vec<String> = nodes.iter().map(node).collect();
    nodes.join("; ")
}

/// Distinguishes nodes: by name, and several nodes of one name by the beginnings of their ids as well.
#[derive(Debug)]
pub(crate) struct NodeNames(BTreeMap<String, BTreeSet<String>>);

impl NodeNames {
    /// All nodes that can occur, with ids in the form of `json`, and names.
    pub(crate) fn of<'a>(nodes: impl IntoIterator<Item = (String, &'a str)>) -> NodeNames {
        let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (id, name) in nodes {
            names.entry(name.to_owned()).or_default().insert(id);
        }
        NodeNames(names)
    }

    /// These nodes of a device manager.
    pub(crate) fn of_infos(nodes: &[NodeInfo]) -> NodeNames {
        NodeNames::of(nodes.iter().map(|of| (id(&of.node_uuid), of.name.as_str())))
    }

    /// The nodes of these shares.
    pub(crate) fn of_shares<'a>(shares: impl IntoIterator<Item = &'a NodeShare>) -> NodeNames {
        let named = shares
            .into_iter()
            .map(|of| (of.node.clone(), of.name.as_str()));
        NodeNames::of(named)
    }

    fn is_shared(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|ids| ids.len() > 1)
    }

    /// A node's name for people.
    pub(crate) fn label(&self, id: &str, name: &str) -> String {
        let begins = id.get(..8).unwrap_or(id);
        match self.is_shared(name) {
            // A node that was forgotten has no name.
            _ if name.is_empty() => begins.to_owned(),
            true => format!("{name} {begins}"),
            false => name.to_owned(),
        }
    }

    /// A node's name or id, as the verbs take it.
    pub(crate) fn exact(&self, id: &str, name: &str) -> String {
        match self.is_shared(name) {
            true => id.to_owned(),
            false => quoted(name),
        }
    }

    /// Names that several nodes have, with the number of nodes.
    pub(crate) fn shared(&self) -> impl Iterator<Item = (&str, usize)> {
        let all = self.0.iter().map(|(name, ids)| (name.as_str(), ids.len()));
        all.filter(|(_, count)| *count > 1)
    }
}

/// A node's state for people.
pub(crate) fn node_state(connected: bool, draining: bool, stopping: bool) -> &'static str {
    match (connected, draining, stopping) {
        (true, _, true) => "stopping",
        (true, false, false) => "connected",
        (true, true, false) => "draining",
        (false, false, _) => "lost",
        (false, true, _) => "lost, draining",
    }
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}

/// A duration, in its two largest units.
pub(crate) fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// A size, in the largest unit that fits.
pub(crate) fn bytes(size: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut last = None;
    for (unit, shift) in units.into_iter().zip([10, 20, 30, 40]) {
        if size >> shift > 0 {
            last = Some(format!(
                "{:.1} {unit}",
                size as f64 / (1u64 << shift) as f64
            ));
        }
    }
    last.unwrap_or_else(|| format!("{size} bytes"))
}

/// A count, in thousands or larger units if it is large.
pub(crate) fn count(count: u64) -> String {
    let units = [" T", " G", " M", " k"];
    let steps = [1e12, 1e9, 1e6, 1e3];
    let of = count as f64;
    let largest = units.into_iter().zip(steps).find(|(_, step)| of >= *step);
    largest.map_or_else(
        || count.to_string(),
        |(unit, step)| format!("{:.1}{unit}", of / step),
    )
}

/// A Unix time in RFC 3339 form.
pub(crate) fn moment(unix_ms: u64) -> String {
    /// The year 10000, for which RFC 3339 has no form.
    const TOO_FAR: Duration = Duration::from_secs(253_402_300_800);
    let since = Duration::from_millis(unix_ms);
    if since >= TOO_FAR {
        return "after 9999".to_owned();
    }
    let moment = SystemTime::UNIX_EPOCH + since;
    humantime::format_rfc3339_seconds(moment).to_string()
}

/// Text from others, without control characters.
pub(crate) fn printable(said: &str) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    said.chars().map(shown).collect()
}

/// Several lines from others, without other control characters.
pub(crate) fn printable_lines(said: &str) -> String {
    let lines: Vec<String> = said.lines().map(printable).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_proposed_can_be_pasted() {
        for (word, pasted) in [
            ("ann", "ann"),
            ("a@b.c", "a@b.c"),
            ("we ird", "'we ird'"),
            ("o'neil", r"'o'\''neil'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), pasted);
        }
    }

    #[test]
    fn nodes_of_one_name_are_told_apart_by_their_ids() {
        let [one, other] = ["0123456789", "abcdef0123"].map(str::to_owned);
        let names = NodeNames::of([
            (one.clone(), "a"),
            (one.clone(), "a"),
            (other.clone(), "b c"),
        ]);
        assert_eq!(
            (names.label(&one, "a"), names.exact(&other, "b c")),
            ("a".to_owned(), "'b c'".to_owned())
        );
        assert_eq!(names.shared().count(), 0);
        let names = NodeNames::of([(one.clone(), "a"), (other.clone(), "a")]);
        assert_eq!(
            (names.label(&one, "a"), names.exact(&other, "a")),
            ("a 01234567".to_owned(), other)
        );
        assert_eq!(names.shared().collect::<Vec<_>>(), [("a", 2)]);
        assert_eq!(names.label("0123456789", ""), "01234567");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["A", "LONG", "C"]);
        table.row(["wide".to_owned(), "é".to_owned(), "last one".to_owned()]);
        table.row(["x".to_owned(), "y".to_owned(), String::new()]);
        assert_eq!(
            table.to_string(),
            "A     LONG  C\nwide  é     last one\nx     y\n"
        );
    }

    #[test]
    fn sizes_have_the_largest_unit() {
        let said = [1023, 1024, 3 << 29, 141 << 30].map(bytes);
        assert_eq!(said, ["1023 bytes", "1.0 KiB", "1.5 GiB", "141.0 GiB"]);
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let said = [999, 59_999, 61_000, 3_660_000, 90_000_000].map(duration);
        assert_eq!(said, ["0 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn counts_and_moments_are_short() {
        let said = [0, 999, 12_345, 2_000_000].map(count);
        assert_eq!(said, ["0", "999", "12.3 k", "2.0 M"]);
        assert_eq!(moment(1_798_761_600_000), "2027-01-01T00:00:00Z");
        assert_eq!(moment(u64::MAX), "after 9999");
    }

    #[test]
    fn a_name_does_not_command_the_terminal() {
        let mut table = Table::new(["A"]);
        table.row(["a\u{1b}[2Jb\nc".to_owned()]);
        assert_eq!(table.to_string(), "A\na\u{fffd}[2Jb\u{fffd}c\n");
    }

    #[test]
    fn nobody_commands_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb\u{fffd}c");
        assert_eq!(printable_lines("a\u{7}\nb\r"), "a\u{fffd}\nb\u{fffd}");
    }
}
