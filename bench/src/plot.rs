//! The plots, as SVG: throughput over size, and each group's results relative to its marks.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::{Path, PathBuf};

use plotters::prelude::*;

use crate::figures::Figure;
use crate::marks::{self, Bound, Judged};
use crate::report::{Figures, Report};
use crate::rows::{Direction, Group};

const GREY: RGBColor = RGBColor(120, 120, 120);
const STEEL: RGBColor = RGBColor(70, 130, 180);
const BRICK: RGBColor = RGBColor(200, 60, 40);
const LEAF: RGBColor = RGBColor(0, 140, 90);
const OCHRE: RGBColor = RGBColor(230, 159, 0);

/// Draws the plots for which the report has rows; the files.
pub(crate) fn draw(report: &Report, folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for (direction, title, name) in [
        (Direction::Up, "blocking write", "write.svg"),
        (Direction::Down, "blocking read", "read.svg"),
    ] {
        let rows = report.rows.iter().filter(|row| {
            row.group == Group::Bandwidth && row.transfer && row.direction == direction
        });
        let curves = curves(&rows.collect::<Vec<_>>());
        if curves.iter().any(|curve| curve.points.len() > 1) {
            let file = folder.join(name);
            throughput(&curves, title, &file)?;
            files.push(file);
        }
    }
    for group in Group::ALL {
        let rows = report.rows.iter().filter(|row| row.group == group);
        let bars: Vec<Bar> = rows.flat_map(bars).collect();
        if !bars.is_empty() {
            let title = format!("{group:?}: what was reached of the marks");
            let file = folder.join(format!("marks-{}.svg", format!("{group:?}").to_lowercase()));
            reached(&bars, &title, &file)?;
            files.push(file);
        }
    }
    Ok(files)
}

/// Throughput over size of one side: MiB, GB/s.
struct Curve {
    name: &'static str,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

fn curves(rows: &[&Figures]) -> Vec<Curve> {
    type Pick = fn(&Figures) -> Option<&Figure>;
    let kinds: [(&str, &str, RGBColor, Pick); 5] = [
        ("native", "", GREY, |row| row.native.as_ref()),
        ("bare TCP", "/tcp", STEEL, |row| row.bare.as_ref()),
        ("Causeway, TCP", "/tcp", BRICK, |row| row.causeway.as_ref()),
        ("Causeway, same host", "/host", LEAF, |row| {
            row.causeway.as_ref()
        }),
        ("peer", "/host", OCHRE, |row| row.peer.as_ref()),
    ];
    let point = |row: &Figures, pick: Pick| {
        let size = row.bytes as f64 / f64::from(1 << 20);
        pick(row).map(|figure| (size, figure.median / 1e9))
    };
    let curve = |(name, end, colour, pick): (&'static str, &str, RGBColor, Pick)| {
        let of_kind = rows.iter().filter(|row| row.id.ends_with(end));
        let mut points: Vec<(f64, f64)> = of_kind.filter_map(|row| point(row, pick)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by(|a, b| a.0 == b.0);
        Curve {
            name,
            colour,
            points,
        }
    };
    let curves = kinds.into_iter().map(curve);
    curves.filter(|curve| !curve.points.is_empty()).collect()
}

fn throughput(curves: &[Curve], title: &str, file: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(file, (800, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let most = points().map(|point| point.1).fold(0.1, f64::max);
    let first = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let last = points().map(|point| point.0).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{title}, GB/s over size"), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d((first..last).log_scale(), 0.0..most * 1.1)?;
    chart.configure_mesh().x_desc("MiB").y_desc("GB/s").draw()?;
    for curve in curves {
        let style = curve.colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(curve.points.iter().copied(), style).point_size(3))?
            .label(curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
}

/// One mark of a row.
struct Bar {
    name: String,
    text: String,
    /// The result divided by the bound.
    share: f64,
    met: bool,
}

fn bars(row: &Figures) -> Vec<Bar> {
    let bar = |mark: &Judged| {
        let (Bound::AtMost(bound) | Bound::AtLeast(bound)) = mark.bound;
        let reached = mark.value.text(mark.reached, row.unit);
        // A result cannot be divided by a bound of 0.
        (bound != 0.0).then(|| Bar {
            name: row.name.clone(),
            text: format!(
                "{reached}; mark: {}",
                marks::text(mark.value, mark.bound, row.unit)
            ),
            share: mark.reached / bound,
            met: mark.met,
        })
    };
    row.marks.iter().filter_map(bar).collect()
}

// A bar for each mark, on a logarithmic axis from an eighth of the mark to eight times the mark.
fn reached(bars: &[Bar], title: &str, file: &Path) -> Result<(), Box<dyn Error>> {
    const LABELS: i32 = 330;
    const WIDTH: i32 = 300;
    const ROW: i32 = 20;
    let height = bars.len() as i32 * ROW + 64;
    let area = SVGBackend::new(file, (960, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let style = ("sans-serif", 12).into_font();
    area.draw(&Text::new(title, (8, 8), ("sans-serif", 16).into_font()))?;
    let x = |share: f64| {
        let octaves = share.clamp(0.125, 8.0).log2() + 3.0;
        LABELS + (octaves / 6.0 * f64::from(WIDTH)) as i32
    };
    for octave in -3..=3 {
        let share = 2f64.powi(octave);
        let line = if octave == 0 {
            BLACK
        } else {
            RGBColor(220, 220, 220)
        };
        area.draw(&PathElement::new(
            [(x(share), 44), (x(share), height - 8)],
            line,
        ))?;
        area.draw(&Text::new(
            format!("{share}"),
            (x(share) - 4, 30),
            style.clone(),
        ))?;
    }
    for (place, bar) in (0i32..).zip(bars) {
        let top = 50 + place * ROW;
        let colour = if bar.met { LEAF } else { BRICK };
        area.draw(&Text::new(bar.name.clone(), (8, top), style.clone()))?;
        let corners = [(LABELS, top), (x(bar.share).max(LABELS + 2), top + 13)];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
        let text = (LABELS + WIDTH + 8, top);
        area.draw(&Text::new(bar.text.clone(), text, style.clone()))?;
    }
    area.present()?;
    Ok(())
}
