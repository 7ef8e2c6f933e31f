//! The marks that rows have to reach: one table, read from top to bottom, by row id.
//!
//! A mark compares Causeway with what was measured beside it in the same rounds. Absolute figures are marks only
//! where the issue names them. Rows without a line here are reported but not judged.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use crate::figures::{Figure, Unit};
use crate::rows::Row;

/// The value that is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Value {
    /// Causeway's median over the native driver's.
    OverNative,
    /// Causeway's mean over the native driver's, which includes pauses.
    MeanOverNative,
    /// Causeway's median over the yardstick's.
    OverBare,
    /// What Causeway takes beyond the native driver, over the yardstick: medians.
    ExtraOverBare,
    /// As [`Value::ExtraOverBare`], of the 99th percentiles. A machine that pauses delays all sides.
    TailExtraOverBare,
    /// What Causeway takes beyond the native driver, over a plain ping-pong of as many bytes: medians.
    ExtraOverPlain,
    /// Causeway's 99th percentile beyond the native driver's median, over that ping-pong's median.
    TailOverPlain,
    /// What Causeway takes beyond the native driver.
    Extra,
    /// What Causeway takes beyond the native driver and the yardstick together.
    ExtraToBoth,
    /// What Causeway takes beyond the yardstick.
    ExtraToBare,
    /// Causeway's median itself.
    Itself,
    /// Causeway's 99th percentile itself.
    Tail,
}

/// The bound of a value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

/// The devices for which a mark counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// All devices.
    All,
    /// CPUs.
    Cpu,
    /// GPUs and other accelerators.
    Accelerator,
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Ids of rows; `*` stands for anything.
    rows: &'static str,
    /// The sizes for which the mark counts, in bytes.
    bytes: (u64, u64),
    on: On,
    value: Value,
    bound: Bound,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const US: f64 = 1e3;
const MS: f64 = 1e6;

use Bound::{AtLeast, AtMost};
use Value::{
    Extra, ExtraOverBare, ExtraOverPlain, ExtraToBare, ExtraToBoth, Itself, MeanOverNative,
    OverBare, OverNative, Tail, TailExtraOverBare, TailOverPlain,
};

/// Time for a build beyond the compiler and one round trip. The worker wakes a thread that builds, which takes
/// about 45 µs on a sleeping core. That thread queries and packs all kernels' names and arguments.
const BUILD_HANDOVER: f64 = 100.0 * US;

/// How far Causeway's threads must scale, relative to those of the fake driver's own program.
const SCALING: f64 = 0.8;

/// Bytes for a transfer of 1 GiB that is cut 20 times: with each cut 16 MiB, and what socket buffers held (8 MiB).
const CUT_GIB: f64 = (GIB + 20 * (16 + 8) * MIB) as f64;

/// The marks of issue 4, and those of sessions that outlive their connections or their process.
const MARKS: &[Mark] = &[
    // PoCL's own enqueue costs "about 2 µs" as a mean, because a median hides its pauses. "Typically" is a median.
    mark("enqueue/*", MeanOverNative, AtMost(1.0)),
    mark("enqueue/*", OverNative, AtMost(1.0)),
    mark("enqueue/*", Itself, AtMost(US)),
    mark("wait/*", ExtraOverBare, AtMost(1.5)).on(On::Cpu),
    mark("wait/*", TailExtraOverBare, AtMost(3.0)).on(On::Cpu),
    // The strict reading of the issue: a ping-pong with nothing in its middle, and its median for the tail, too.
    mark("wait/*", ExtraOverPlain, AtMost(1.5)).on(On::Cpu),
    mark("wait/*", TailOverPlain, AtMost(3.0)).on(On::Cpu),
    mark("wait/launch-finish", Extra, AtMost(20.0 * US)).on(On::Accelerator),
    mark("pipelined", OverNative, AtMost(1.1)),
    mark("commands/one-queue", Itself, AtLeast(500e3)),
    // The issue asks that threads scale, and names no figure. The fake driver shows how far the machine's cores allow
    // it. Where its own threads disturb each other, many threads must still be faster than one.
    mark("contention/scaling", OverNative, AtLeast(SCALING)),
    mark("contention/scaling", Itself, AtLeast(1.0)),
    // Linear is 2; quadratic would be 4.
    mark("growth/*", Itself, AtMost(2.3)),
    mark("write/*/tcp", OverBare, AtLeast(0.7))
        .bytes(64 * KIB, MIB)
        .on(On::Cpu),
    mark("read/*/tcp", OverBare, AtLeast(0.7))
        .bytes(64 * KIB, MIB)
        .on(On::Cpu),
    mark("write/*/tcp", OverBare, AtLeast(0.9))
        .bytes(16 * MIB, 1024 * MIB)
        .on(On::Cpu),
    mark("read/*/tcp", OverBare, AtLeast(0.9))
        .bytes(16 * MIB, 1024 * MIB)
        .on(On::Cpu),
    mark("write/*/host", OverNative, AtLeast(0.8)).bytes(16 * MIB, 1024 * MIB),
    mark("read/*/host", OverNative, AtLeast(0.8)).bytes(16 * MIB, 1024 * MIB),
    mark("map-write/*", OverBare, AtLeast(0.9)),
    mark("map-read/*", OverBare, AtLeast(0.9)),
    mark("unmap-bytes", Itself, AtMost(64.0 * KIB as f64)),
    mark("link/1G-0.2ms/write", OverBare, AtLeast(0.97)),
    mark("link/1G-0.2ms/read", OverBare, AtLeast(0.97)),
    mark("link/10G/*", OverBare, AtLeast(0.97)),
    mark("link/1G-20ms/*", OverBare, AtLeast(0.92)),
    mark("busy/*/write", ExtraToBare, AtMost(2.0 * MS)),
    mark("busy/*/read", ExtraToBare, AtMost(2.0 * MS)),
    // The issue names no figure for the transfer's loss.
    mark("busy/*/goodput", OverBare, AtLeast(0.9)),
    mark("memory/*", Itself, AtMost(64.0 * MIB as f64)),
    // The issue says "flat" and names no figure.
    mark("manager/flat", Itself, AtMost(1.1)),
    mark("start/devices", Itself, AtMost(10.0 * MS)),
    // Two round trips of 20 ms, and the 10 ms that are allowed without a network.
    mark("start/devices/far", OverBare, AtMost(2.5)),
    mark("start/program/warm", Itself, AtMost(20.0 * MS)),
    mark("start/program/host", Itself, AtMost(10.0 * MS)),
    mark("start/unconfigured", Itself, AtMost(MS)),
    mark("start/unconfigured/things", Itself, AtMost(0.0)),
    // A compiler's own times differ by more than a round trip from build to build, so `build/new` is not judged. The
    // fake driver's compiler takes no time, so its row shows that only one round trip is added.
    mark("build/new/fake", ExtraToBoth, AtMost(BUILD_HANDOVER)),
    mark("build/seen", Itself, AtMost(5.0 * MS)),
    // Six round trips on loopback are far below a millisecond.
    mark("resume/reset", Itself, AtMost(50.0 * MS)),
    mark("resume/reset", Tail, AtMost(250.0 * MS)),
    mark("resume/silence", Itself, AtMost(1e3 * MS)),
    mark("resume/silence", Tail, AtMost(2.5e3 * MS)),
    mark("resume/wire/*", Itself, AtMost(CUT_GIB)).bytes(GIB, GIB),
    mark("resume/cost/enqueue", OverBare, AtMost(1.02)),
    mark("resume/cost/pipelined", OverBare, AtMost(1.02)),
    mark("resume/cost/read/*", OverBare, AtLeast(0.97)),
    // A write is copied into the log, and a read is hashed.
    mark("survive/enqueue", OverBare, AtMost(1.1)),
    mark("survive/write/*", OverBare, AtLeast(1.0 / 1.5)).bytes(64 * MIB, 64 * MIB),
    mark("survive/read/*", OverBare, AtLeast(1.0 / 1.25)).bytes(64 * MIB, 64 * MIB),
    mark("survive/1G/*", OverBare, AtLeast(1.0 / 1.02)).bytes(64 * MIB, 64 * MIB),
    mark("survive/10G/*", OverBare, AtLeast(1.0 / 1.1)).bytes(64 * MIB, 64 * MIB),
    mark("nodes/mandelbrot-16", Itself, AtMost(1.05)),
];

const fn mark(rows: &'static str, value: Value, bound: Bound) -> Mark {
    Mark {
        rows,
        bytes: (0, u64::MAX),
        on: On::All,
        value,
        bound,
    }
}

impl Mark {
    const fn bytes(self, from: u64, to: u64) -> Mark {
        Mark {
            bytes: (from, to),
            ..self
        }
    }

    const fn on(self, on: On) -> Mark {
        Mark { on, ..self }
    }

    fn counts_for(&self, row: &Row, accelerator: bool) -> bool {
        let device = match self.on {
            On::All => true,
            On::Cpu => !accelerator,
            On::Accelerator => accelerator,
        };
        device
            && is_like(&row.id, self.rows)
            && (self.bytes.0..=self.bytes.1).contains(&row.bytes())
    }
}

/// Whether an id matches a pattern, in which at most one `*` stands for anything.
fn is_like(id: &str, form: &str) -> bool {
    match form.split_once('*') {
        None => id == form,
        Some((before, after)) => {
            id.len() >= before.len() + after.len() && id.starts_with(before) && id.ends_with(after)
        }
    }
}

/// The marks of a row on a device of this kind.
pub(crate) fn of(row: &Row, accelerator: bool) -> impl Iterator<Item = &'static Mark> {
    let row = row.clone();
    MARKS
        .iter()
        .filter(move |mark| mark.counts_for(&row, accelerator))
}

/// A mark with its result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Judged {
    /// The judged value.
    pub(crate) value: Value,
    /// The bound.
    pub(crate) bound: Bound,
    /// The result.
    pub(crate) reached: f64,
    /// The result of each round.
    pub(crate) rounds: Vec<f64>,
    /// Whether the mark is met.
    pub(crate) met: bool,
}

/// A row's figures, for marks.
pub(crate) struct Sides<'a> {
    /// The node's own driver.
    pub(crate) native: Option<&'a Figure>,
    /// The yardstick.
    pub(crate) bare: Option<&'a Figure>,
    /// A plain ping-pong of as many bytes, where it was measured.
    pub(crate) plain: Option<&'a Figure>,
    /// Causeway.
    pub(crate) causeway: &'a Figure,
}

impl Mark {
    /// Judges a row; `None` if a side that the mark needs was not measured.
    pub(crate) fn judge(&self, sides: &Sides<'_>) -> Option<Judged> {
        let reached = self.value.of(sides)?;
        let met = match self.bound {
            AtMost(bound) => reached <= bound,
            AtLeast(bound) => reached >= bound,
        };
        Some(Judged {
            value: self.value,
            bound: self.bound,
            reached,
            rounds: self.value.rounds(sides),
            met,
        })
    }

    /// The mark in words.
    pub(crate) fn text(&self, unit: Unit) -> String {
        text(self.value, self.bound, unit)
    }
}

impl Value {
    /// The value, from figures of the whole run.
    pub(crate) fn of(self, sides: &Sides<'_>) -> Option<f64> {
        let pick = |figure: &Figure| match self {
            TailExtraOverBare | Tail => figure.p99,
            MeanOverNative => figure.mean,
            _ => figure.median,
        };
        let ours = match self {
            TailOverPlain => sides.causeway.p99,
            _ => pick(sides.causeway),
        };
        self.combine(
            sides.native.map(pick),
            self.yardstick(sides).map(pick),
            ours,
        )
    }

    /// The value of each round. A side with fewer rounds gives its last one.
    pub(crate) fn rounds(self, sides: &Sides<'_>) -> Vec<f64> {
        let at = |list: &[f64], round: usize| list.get(round).or(list.last()).copied();
        let pick = |figure: &Figure, round: usize| {
            let list = match self {
                TailExtraOverBare | Tail => &figure.tails,
                MeanOverNative => &figure.means,
                _ => &figure.rounds,
            };
            at(list, round)
        };
        (0..sides.causeway.rounds.len())
            .filter_map(|round| {
                let ours = match self {
                    TailOverPlain => at(&sides.causeway.tails, round),
                    _ => pick(sides.causeway, round),
                };
                self.combine(
                    sides.native.and_then(|figure| pick(figure, round)),
                    self.yardstick(sides).and_then(|figure| pick(figure, round)),
                    ours?,
                )
            })
            .collect()
    }

    fn yardstick<'a>(self, sides: &Sides<'a>) -> Option<&'a Figure> {
        match self {
            ExtraOverPlain | TailOverPlain => sides.plain,
            _ => sides.bare,
        }
    }

    /// Whether the value is a tail, of which a round has few samples.
    pub(crate) fn is_tail(self) -> bool {
        matches!(self, TailExtraOverBare | TailOverPlain | Tail)
    }

    fn combine(self, native: Option<f64>, bare: Option<f64>, ours: f64) -> Option<f64> {
        Some(match self {
            OverNative | MeanOverNative => ours / native?,
            OverBare => ours / bare?,
            ExtraOverBare | TailExtraOverBare | ExtraOverPlain | TailOverPlain => {
                (ours - native?) / bare?
            }
            Extra => ours - native?,
            ExtraToBare => ours - bare?,
            ExtraToBoth => ours - native? - bare?,
            Itself | Tail => ours,
        })
    }

    /// The value's name in a table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OverNative => "/ native",
            MeanOverNative => "mean / native's",
            OverBare => "/ bare",
            ExtraOverBare => "(− native) / bare",
            TailExtraOverBare => "p99: (− native) / bare",
            ExtraOverPlain => "(− native) / ping-pong",
            TailOverPlain => "(p99 − native) / ping-pong",
            Extra => "− native",
            ExtraToBoth => "− native − bare",
            ExtraToBare => "− bare",
            Itself => "itself",
            Tail => "p99",
        }
    }

    /// The text of a number of this kind. `unit` is the row's.
    pub(crate) fn text(self, value: f64, unit: Unit) -> String {
        match self {
            OverNative | MeanOverNative | OverBare | ExtraOverBare | TailExtraOverBare
            | ExtraOverPlain | TailOverPlain => {
                format!("{value:.2}")
            }
            Extra | ExtraToBare | ExtraToBoth | Itself | Tail => unit.text(value),
        }
    }
}

/// A mark in words: `≤ 1.50 × round trip beyond native`.
pub(crate) fn text(value: Value, bound: Bound, unit: Unit) -> String {
    let (sign, bound) = match bound {
        AtMost(bound) => ('≤', bound),
        AtLeast(bound) => ('≥', bound),
    };
    let amount = value.text(bound, unit);
    match value {
        OverNative => format!("{sign} {amount} × native"),
        MeanOverNative => format!("mean {sign} {amount} × native's"),
        OverBare => format!("{sign} {amount} × bare"),
        ExtraOverBare => format!("− native {sign} {amount} × bare"),
        TailExtraOverBare => format!("p99 − native's {sign} {amount} × bare's"),
        ExtraOverPlain => format!("− native {sign} {amount} × ping-pong"),
        TailOverPlain => format!("p99 − native {sign} {amount} × ping-pong"),
        Extra => format!("− native {sign} {amount}"),
        ExtraToBoth => format!("− native − bare {sign} {amount}"),
        ExtraToBare => format!("− bare {sign} {amount}"),
        Itself => format!("{sign} {amount}"),
        Tail => format!("p99 {sign} {amount}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(rounds: &[f64]) -> Figure {
        let rounds: Vec<Vec<f64>> = rounds.iter().map(|value| vec![*value]).collect();
        Figure::of(&rounds, Unit::Nanoseconds).unwrap()
    }

    #[test]
    fn forms_match_ids() {
        assert!(is_like("write/64KiB/tcp", "write/*/tcp"));
        assert!(!is_like("map-write/64KiB/tcp", "write/*/tcp"));
        assert!(!is_like("start/devices/far", "start/devices"));
        assert!(!is_like("a", "a*a"));
    }

    #[test]
    fn what_is_beyond_native_is_held_against_the_wire() {
        let (native, bare, ours) = (figure(&[10.0, 11.0]), figure(&[4.0]), figure(&[16.0, 15.0]));
        let sides = Sides {
            native: Some(&native),
            bare: Some(&bare),
            plain: None,
            causeway: &ours,
        };
        let judged = mark("", ExtraOverBare, AtMost(1.5)).judge(&sides).unwrap();
        assert!(judged.met);
        assert_eq!(judged.rounds, [1.5, 1.0]);
        assert!(!mark("", OverNative, AtMost(1.0)).judge(&sides).unwrap().met);
        let alone = Sides {
            native: None,
            ..sides
        };
        assert!(mark("", Extra, AtMost(1.0)).judge(&alone).is_none());
    }

    #[test]
    fn by_the_letter_the_tail_is_held_against_medians() {
        let native = figure(&[10.0]);
        let (bare, plain) = (figure(&[100.0]), figure(&[4.0]));
        let mut ours = figure(&[16.0]);
        (ours.p99, ours.tails) = (30.0, vec![30.0]);
        let sides = Sides {
            native: Some(&native),
            bare: Some(&bare),
            plain: Some(&plain),
            causeway: &ours,
        };
        let median = mark("", ExtraOverPlain, AtMost(1.5)).judge(&sides).unwrap();
        assert_eq!((median.reached, median.met), (1.5, true));
        let tail = mark("", TailOverPlain, AtMost(3.0)).judge(&sides).unwrap();
        assert_eq!((tail.reached, tail.met), (5.0, false));
        assert_eq!(tail.rounds, [5.0]);
        assert_eq!(ExtraToBoth.of(&sides), Some(-94.0));
    }

    #[test]
    fn marks_in_words() {
        let text = |value, bound| text(value, bound, Unit::Nanoseconds);
        assert_eq!(text(Itself, AtMost(10.0 * MS)), "≤ 10.0 ms");
        assert_eq!(text(OverBare, AtLeast(0.9)), "≥ 0.90 × bare");
    }
}
