//! A run: opens each stage once, measures a round of each of its rows in turn, and reports.
//!
//! Invariant: a row that fails is reported as failed, and the others go on.
#![forbid(unsafe_code)]

use std::io::Write;

use crate::marks;
use crate::options::Options;
use crate::plot;
use crate::report::{Line, Report, Trouble};
use crate::rows::{Group, Row, RowPlace};
use crate::stages;

type Error = Box<dyn std::error::Error>;

/// The order in which stages are opened.
const PLACES: [RowPlace; 10] = [
    RowPlace::Loopback,
    RowPlace::Fake,
    RowPlace::Growth,
    RowPlace::Fresh,
    RowPlace::Programs,
    RowPlace::Memory,
    RowPlace::Links,
    RowPlace::Cost,
    RowPlace::Resume,
    RowPlace::Experiments,
];

/// Measures the groups and reports. Returns whether all marks were met.
pub(crate) fn run(options: &Options, groups: &[Group]) -> Result<bool, Error> {
    let rows = groups.iter().flat_map(|group| group.rows(options));
    let rows: Vec<Row> = rows
        .filter(|row| row.is_asked_for(&options.filters))
        .collect();
    if rows.is_empty() {
        return Err(format!("no row contains {}", options.filters.join(" or ")).into());
    }
    if options.list {
        list(&rows);
        return Ok(true);
    }
    let mut report = Report::new(options);
    let order: Vec<String> = rows.iter().map(|row| row.id.clone()).collect();
    for place in PLACES {
        let here = rows.iter().filter(|row| row.place == place);
        let lines: Vec<Line> = here.cloned().map(Line::new).collect();
        if !lines.is_empty() {
            let lines = measure(place, options, lines, &mut report);
            report.add(lines);
        }
    }
    // Rows are printed in the order of the groups, not of the stages.
    report
        .rows
        .sort_by_key(|row| order.iter().position(|id| *id == row.id));
    print!("{report}");
    if let Some(path) = &options.json {
        std::fs::write(path, report.to_json()?)?;
    }
    std::fs::create_dir_all(&options.plots)?;
    for file in plot::draw(&report, &options.plots)? {
        println!("plot: {}", file.display());
    }
    Ok(report.verdict().1.is_empty())
}

fn list(rows: &[Row]) {
    for row in rows {
        let marks = [false, true].map(|accelerator| {
            let marks = marks::of(row, accelerator).map(|mark| mark.text(row.unit));
            marks.collect::<Vec<_>>().join("; ")
        });
        let [cpu, gpu] = marks;
        let gpu = if gpu == cpu {
            String::new()
        } else {
            format!(" [GPU: {gpu}]")
        };
        println!("{:<28} {:<52} {cpu}{gpu}", row.id, row.name);
    }
}

fn measure(
    place: RowPlace,
    options: &Options,
    mut lines: Vec<Line>,
    report: &mut Report,
) -> Vec<Line> {
    let mut stage = match stages::open(place, options) {
        Ok(stage) => stage,
        Err(error) => {
            let trouble = Trouble::from(error);
            for line in &mut lines {
                line.trouble = Some(trouble.clone());
            }
            return lines;
        }
    };
    let cast = stage.cast();
    if let Some((device, accelerator)) = cast.device
        && (report.device.is_empty() || place == RowPlace::Loopback)
    {
        report.device = device;
        report.accelerator = accelerator;
    }
    report.peer = report.peer.take().or(cast.peer);
    let rounds = if options.quick {
        options.rounds.min(2)
    } else {
        options.rounds
    };
    for round in 0..rounds {
        for line in &mut lines {
            if line.trouble.is_some() || round >= line.row.most_rounds {
                continue;
            }
            eprint!("\rround {} of {rounds}: {:<60}", round + 1, line.row.name);
            let _ = std::io::stderr().flush();
            if let Err(error) = stage.round(line) {
                line.trouble = Some(error.into());
            }
        }
    }
    eprint!("\r{:90}\r", "");
    lines
}
