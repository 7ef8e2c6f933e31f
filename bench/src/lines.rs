//! Line charts, as SVG: measured points, and curves of a model.
//!
//! Not for the rows' throughput, which [`plot`](crate::plot) draws. Invariant: every curve is named in its chart.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

const COLOURS: [RGBColor; 6] = [
    RGBColor(70, 130, 180),
    RGBColor(200, 60, 40),
    RGBColor(0, 140, 90),
    RGBColor(230, 159, 0),
    RGBColor(120, 80, 160),
    RGBColor(120, 120, 120),
];

/// How a curve is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// A line with its points.
    Measured,
    /// A thin line without points.
    Model,
    /// A dashed line without points.
    Limit,
}

/// A named curve.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    /// The name in the legend.
    pub(crate) name: String,
    /// The number of its colour. Curves that belong together share one.
    pub(crate) colour: usize,
    /// How it is drawn.
    pub(crate) style: Style,
    /// The points, in ascending order of x.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Curve {
    /// The curve of the rows that have a point, by the number of hosts.
    pub(crate) fn by_hosts<Row>(
        (name, colour, style): (&str, usize, Style),
        rows: &[Row],
        point: impl Fn(&Row) -> Option<(u16, f64)>,
    ) -> Curve {
        let points = rows.iter().filter_map(point);
        Curve {
            name: name.to_owned(),
            colour,
            style,
            points: points.map(|(hosts, y)| (f64::from(hosts), y)).collect(),
        }
    }
}

/// One chart of a picture.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    /// The caption above the chart.
    pub(crate) title: String,
    /// The x axis.
    pub(crate) x: &'static str,
    /// The y axis.
    pub(crate) y: &'static str,
    /// The curves. A curve without points is left out, unless it is a missing one.
    pub(crate) curves: Vec<Curve>,
}

/// Draws charts side by side. Their x axes are logarithmic and their y axes begin at 0. A chart without points is an
/// empty frame.
pub(crate) fn draw(charts: &[Chart], file: &Path) -> Result<(), Box<dyn Error>> {
    let width = 40 + 640 * charts.len() as u32;
    let area = SVGBackend::new(file, (width, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    for (chart, panel) in charts
        .iter()
        .zip(area.split_evenly((1, charts.len().max(1))))
    {
        draw_chart(chart, &panel)?;
    }
    area.present()?;
    Ok(())
}

fn draw_chart(
    chart: &Chart,
    panel: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), Box<dyn Error>> {
    let points = || chart.curves.iter().flat_map(|curve| &curve.points);
    let most = points().map(|point| point.1).fold(1e-9, f64::max);
    let first = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let last = points().map(|point| point.0).fold(0.0, f64::max);
    // A single x needs some width. No point at all leaves the first at infinity.
    let (first, last) = match first.is_finite() {
        true => (first * 0.9, last * 1.1),
        false => (1.0, 10.0),
    };
    let mut context = ChartBuilder::on(panel)
        .caption(&chart.title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d((first..last).log_scale(), 0.0..most * 1.45)?;
    context
        .configure_mesh()
        .x_desc(chart.x)
        .x_labels(8)
        .x_label_formatter(&|x| format!("{x}"))
        .y_desc(chart.y)
        .light_line_style(WHITE)
        .draw()?;
    let is_shown = |curve: &&Curve| !curve.points.is_empty();
    for curve in chart.curves.iter().filter(is_shown) {
        let colour = COLOURS[curve.colour % COLOURS.len()];
        let points = curve.points.iter().copied();
        let (width, size) = match curve.style {
            Style::Measured => (2, 3),
            Style::Model | Style::Limit => (1, 0),
        };
        let style = colour.stroke_width(width);
        let drawn = if curve.style == Style::Limit {
            context.draw_series(DashedLineSeries::new(points, 6, 4, style))?
        } else {
            context.draw_series(LineSeries::new(points, style).point_size(size))?
        };
        drawn
            .label(&curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    context
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_are_drawn_with_the_names_of_their_curves() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lines.svg");
        let curve = |name: &str, style, points: &[(f64, f64)]| Curve {
            name: name.to_owned(),
            colour: 1,
            style,
            points: points.to_vec(),
        };
        let chart = |curves| Chart {
            title: "a title".to_owned(),
            x: "nodes",
            y: "s",
            curves,
        };
        let full = chart(vec![
            curve("measured", Style::Measured, &[(1.0, 2.0), (4.0, 1.0)]),
            curve("model", Style::Model, &[(1.0, 2.5)]),
            curve("bound", Style::Limit, &[(1.0, 3.0), (4.0, 3.0)]),
            curve("nothing", Style::Measured, &[]),
        ]);
        draw(&[full, chart(Vec::new())], &file).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        for name in ["a title", "measured", "model", "bound", "nodes"] {
            assert!(text.contains(name), "{name}");
        }
        assert!(!text.contains("nothing"));
    }
}
