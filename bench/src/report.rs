//! The report of a run: the table and the JSON.
//!
//! [`compare`](crate::compare) reads the JSON. Its `version` changes when older reports can no longer be read.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::figures::{Figure, Samples, Side, Unit};
use crate::marks::{self, Judged, Sides};
use crate::options::Options;
use crate::rows::{Base, Direction, Group, Row, Task};

/// The version of the JSON.
const VERSION: u32 = 1;

/// Why a row has no figures, or not all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Trouble {
    /// This machine or device cannot measure the row.
    Skipped(String),
    /// The measurement failed.
    Failed(String),
}

/// A row with its samples.
#[derive(Debug)]
pub(crate) struct Line {
    /// The row.
    pub(crate) row: Row,
    /// The samples.
    pub(crate) samples: Samples,
    /// Why the row was not measured.
    pub(crate) trouble: Option<Trouble>,
    /// A remark for the table.
    pub(crate) note: Option<String>,
}

impl Line {
    /// Nothing measured yet.
    pub(crate) fn new(row: Row) -> Line {
        Line {
            row,
            samples: Samples::default(),
            trouble: None,
            note: None,
        }
    }

    /// Judges the row on a device of this kind.
    fn figures(self, accelerator: bool) -> Figures {
        let unit = self.row.unit;
        let side = |side| self.samples.figure(side, unit);
        let (native, bare) = (side(Side::Native), side(Side::Bare));
        let (causeway, peer) = (side(Side::Causeway), side(Side::Peer));
        let plain = side(Side::Plain);
        let sides = causeway.as_ref().map(|causeway| Sides {
            native: native.as_ref(),
            bare: bare.as_ref(),
            plain: plain.as_ref(),
            causeway,
        });
        let marks = sides
            .iter()
            .flat_map(|sides| marks::of(&self.row, accelerator).filter_map(|m| m.judge(sides)))
            .collect();
        let transfer = matches!(self.row.task, Task::Write(_) | Task::Read(_));
        Figures {
            bytes: self.row.bytes(),
            direction: self.row.direction(),
            transfer,
            group: self.row.group,
            base: self.row.base,
            id: self.row.id,
            name: self.row.name,
            unit,
            native,
            bare,
            plain,
            causeway,
            peer,
            marks,
            trouble: self.trouble,
            note: self.note,
        }
    }
}

/// A row of the report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) group: Group,
    /// The unit of its figures.
    pub(crate) unit: Unit,
    /// Whether the row is a blocking write or read.
    pub(crate) transfer: bool,
    /// Bytes that the row moves.
    pub(crate) bytes: u64,
    /// The direction of these bytes.
    pub(crate) direction: Direction,
    /// The kind of yardstick in `bare`.
    pub(crate) base: Base,
    /// The node's own driver.
    pub(crate) native: Option<Figure>,
    /// The yardstick.
    pub(crate) bare: Option<Figure>,
    /// A plain ping-pong of as many bytes. Older reports have none.
    #[serde(default)]
    pub(crate) plain: Option<Figure>,
    /// Causeway.
    pub(crate) causeway: Option<Figure>,
    /// Another platform.
    pub(crate) peer: Option<Figure>,
    pub(crate) marks: Vec<Judged>,
    /// Why figures are missing.
    pub(crate) trouble: Option<Trouble>,
    /// A remark for the table.
    pub(crate) note: Option<String>,
}

impl Figures {
    /// The sides, if Causeway was measured.
    pub(crate) fn sides(&self) -> Option<Sides<'_>> {
        self.causeway.as_ref().map(|causeway| Sides {
            native: self.native.as_ref(),
            bare: self.bare.as_ref(),
            plain: self.plain.as_ref(),
            causeway,
        })
    }
}

/// All rows of a run, with the machine's devices.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    version: u32,
    /// The native device.
    pub(crate) device: String,
    /// Whether the native device is anything else than a CPU.
    pub(crate) accelerator: bool,
    /// The peer's device.
    pub(crate) peer: Option<String>,
    carrier: String,
    rounds: u16,
    cores: usize,
    kernel: String,
    congestion_control: String,
    /// The rows.
    pub(crate) rows: Vec<Figures>,
}

/// A report cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The file cannot be read.
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    /// The file is not a report.
    #[error("{0} is no report of this benchmark: {1}")]
    Form(String, serde_json::Error),
    /// Another version has written the file.
    #[error("{0} has version {1} of the report's form, this benchmark {VERSION}")]
    Version(String, u32),
}

impl Report {
    /// Nothing measured yet.
    pub(crate) fn new(options: &Options) -> Report {
        let read = |path| {
            std::fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        Report {
            version: VERSION,
            device: String::new(),
            accelerator: false,
            peer: None,
            carrier: options.carrier.clone(),
            rounds: options.rounds,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read("/proc/sys/kernel/osrelease"),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            rows: Vec::new(),
        }
    }

    /// Adds measured rows.
    pub(crate) fn add(&mut self, lines: Vec<Line>) {
        let accelerator = self.accelerator;
        self.rows
            .extend(lines.into_iter().map(|line| line.figures(accelerator)));
    }

    /// The number of marks that were met, and the names of those that were missed or could not be judged.
    pub(crate) fn verdict(&self) -> (usize, Vec<&str>) {
        let marks = self.rows.iter().flat_map(|row| &row.marks);
        let met = marks.filter(|mark| mark.met).count();
        let bad = |row: &&Figures| {
            row.marks.iter().any(|mark| !mark.met)
                || matches!(row.trouble, Some(Trouble::Failed(_)))
        };
        let missed = self.rows.iter().filter(bad).map(|row| row.id.as_str());
        (met, missed.collect())
    }

    /// As JSON.
    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Reads what [`Report::to_json`] wrote.
    pub(crate) fn read(path: &Path) -> Result<Report, ReadError> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| ReadError::File(name.clone(), e))?;
        let form = |error| ReadError::Form(name.clone(), error);
        let head: Head = serde_json::from_str(&text).map_err(form)?;
        if head.version != VERSION {
            return Err(ReadError::Version(name, head.version));
        }
        serde_json::from_str(&text).map_err(form)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "device: {}", self.device)?;
        let peer = if let Some(peer) = &self.peer {
            writeln!(f, "peer: {peer}")?;
            true
        } else {
            false
        };
        writeln!(
            f,
            "{} cores, Linux {}, {} rounds in turn, carrier {}, TCP {}; median, p99 in brackets\n",
            self.cores, self.kernel, self.rounds, self.carrier, self.congestion_control
        )?;
        let (head, rule) = if peer { ("peer | ", "---|") } else { ("", "") };
        writeln!(
            f,
            "| what | native | bare | Causeway | {head}/ native | / bare | mark | reached | |"
        )?;
        writeln!(f, "|---|---|---|---|{rule}---|---|---|---|---|")?;
        for row in &self.rows {
            row.write(f, peer)?;
        }
        let (met, missed) = self.verdict();
        writeln!(f, "\n{met} marks met, {} rows missed theirs", missed.len())?;
        for id in missed {
            writeln!(f, "  missed: {id}")?;
        }
        Ok(())
    }
}

impl Figures {
    /// Writes a line for each mark. The figures are in the first one.
    fn write(&self, f: &mut fmt::Formatter<'_>, with_peer: bool) -> fmt::Result {
        let cell = |figure: &Option<Figure>| {
            figure.as_ref().map_or("–".to_owned(), |figure| {
                let (median, tail) = (self.unit.text(figure.median), self.unit.text(figure.p99));
                if median == tail {
                    median
                } else {
                    format!("{median} ({tail})")
                }
            })
        };
        let ratio = |base: &Option<Figure>| match (&self.causeway, base) {
            (Some(ours), Some(base)) if base.median != 0.0 => {
                format!("{:.2}", ours.median / base.median)
            }
            _ => "–".to_owned(),
        };
        let mut bare = cell(&self.bare);
        if self.bare.is_some() && !self.base.name().is_empty() {
            bare = format!("{} {bare}", self.base.name());
        }
        write!(
            f,
            "| {} | {} | {bare} | {} |",
            self.name,
            cell(&self.native),
            cell(&self.causeway)
        )?;
        let gap = if with_peer {
            write!(f, " {} |", cell(&self.peer))?;
            "| ″ | | | | | | |"
        } else {
            "| ″ | | | | | |"
        };
        write!(f, " {} | {} |", ratio(&self.native), ratio(&self.bare))?;
        match &self.trouble {
            Some(Trouble::Skipped(why)) => return writeln!(f, " – | – | skipped: {why} |"),
            Some(Trouble::Failed(why)) => return writeln!(f, " – | – | **failed**: {why} |"),
            None => {}
        }
        let note = self
            .note
            .as_ref()
            .map_or(String::new(), |note| format!(" ({note})"));
        if self.marks.is_empty() {
            return writeln!(f, " – | – |{note} |");
        }
        for (place, mark) in self.marks.iter().enumerate() {
            if place > 0 {
                write!(f, "{gap}")?;
            }
            writeln!(
                f,
                " {} | {} | {}{note} |",
                marks::text(mark.value, mark.bound, self.unit),
                mark.value.text(mark.reached, self.unit),
                if mark.met { "met" } else { "**missed**" },
            )?;
        }
        Ok(())
    }
}
