//! The plots: throughput over size, and latencies side by side, as SVG.

use std::error::Error;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::{Figures, Report, Side};
use crate::rows::Unit;

type Pick = fn(&Figures) -> Option<Side>;

const SIDES: [(&str, Pick, RGBColor); 3] = [
    ("native", |row| row.native, RGBColor(120, 120, 120)),
    ("bare TCP", |row| row.socket, RGBColor(70, 130, 180)),
    ("Causeway", |row| row.causeway, RGBColor(200, 60, 40)),
];

/// Draws what the report has rows for; the files made.
pub(crate) fn draw(report: &Report, folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for (upload, title, name) in [
        (true, "blocking write", "write.svg"),
        (false, "blocking read", "read.svg"),
    ] {
        let rows: Vec<&Figures> = report
            .figures
            .iter()
            .filter(|row| row.bytes > 0 && row.upload == upload && row.name.starts_with("blocking"))
            .collect();
        if rows.len() > 1 {
            let file = folder.join(name);
            throughput(&rows, title, &file)?;
            files.push(file);
        }
    }
    let rows: Vec<&Figures> = report
        .figures
        .iter()
        .filter(|row| {
            row.unit == Unit::Nanoseconds && row.causeway.is_some_and(|side| side.median < 1e6)
        })
        .collect();
    if !rows.is_empty() {
        let file = folder.join("latency.svg");
        latency(&rows, &file)?;
        files.push(file);
    }
    Ok(files)
}

fn throughput(rows: &[&Figures], title: &str, file: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(file, (800, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let mebibytes = |row: &Figures| row.bytes as f64 / f64::from(1 << 20);
    let most = rows
        .iter()
        .flat_map(|row| SIDES.iter().filter_map(|(_, pick, _)| pick(row)))
        .map(|side| side.median / 1e9)
        .fold(0.1, f64::max);
    let (first, last) = (mebibytes(rows[0]), mebibytes(rows[rows.len() - 1]));
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{title}, GB/s over size"), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d((first..last).log_scale(), 0.0..most * 1.1)?;
    chart.configure_mesh().x_desc("MiB").y_desc("GB/s").draw()?;
    for (name, pick, colour) in SIDES {
        let points: Vec<(f64, f64)> = rows
            .iter()
            .filter_map(|row| pick(row).map(|side| (mebibytes(row), side.median / 1e9)))
            .collect();
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
}

// Bars by hand: three to a row, on a logarithmic axis from 0.1 µs to 1 ms.
fn latency(rows: &[&Figures], file: &Path) -> Result<(), Box<dyn Error>> {
    const LABELS: i32 = 260;
    const WIDTH: i32 = 460;
    const ROW: i32 = 54;
    let area =
        SVGBackend::new(file, (800, (rows.len() as i32 * ROW + 60) as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let style = ("sans-serif", 13).into_font();
    area.draw(&Text::new(
        "median, µs, logarithmic",
        (LABELS, 8),
        style.clone(),
    ))?;
    for (place, row) in (0i32..).zip(rows) {
        let top = 40 + place * ROW;
        area.draw(&Text::new(row.name.clone(), (8, top + 12), style.clone()))?;
        let sides = SIDES
            .iter()
            .filter_map(|(name, pick, colour)| pick(row).map(|side| (name, side, colour)));
        for (bar, (name, side, colour)) in (0i32..).zip(sides) {
            let us = side.median / 1e3;
            let length = ((us.max(0.1).log10() + 1.0) / 4.0 * f64::from(WIDTH)) as i32;
            let y = top + bar * 15;
            bar_with_text(
                &area,
                (LABELS, y),
                length.max(2),
                *colour,
                &format!("{name} {us:.2}"),
            )?;
        }
    }
    area.present()?;
    Ok(())
}

fn bar_with_text(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    (x, y): (i32, i32),
    length: i32,
    colour: RGBColor,
    text: &str,
) -> Result<(), Box<dyn Error>> {
    area.draw(&Rectangle::new(
        [(x, y), (x + length, y + 12)],
        colour.filled(),
    ))?;
    area.draw(&Text::new(
        text.to_owned(),
        (x + length + 6, y),
        ("sans-serif", 11).into_font(),
    ))?;
    Ok(())
}
