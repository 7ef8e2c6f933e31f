//! Stacked bars in groups, as SVG: the phases of a run.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

/// The parts of a bar, from the bottom.
const PARTS: [(&str, RGBColor); 3] = [
    ("initialisation", RGBColor(230, 159, 0)),
    ("computation", RGBColor(70, 130, 180)),
    ("transfer", RGBColor(200, 60, 40)),
];

/// A bar with its caption and the seconds of each part.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    /// The caption below the bar.
    pub(crate) label: String,
    /// Initialisation, computation, transfer.
    pub(crate) seconds: [f64; 3],
}

/// Bars side by side over one caption.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// The caption below the bars.
    pub(crate) caption: String,
    /// The bars from the left.
    pub(crate) bars: Vec<Bar>,
}

const TOP: i32 = 70;
const BOTTOM: i32 = 410;
const LEFT: i32 = 70;
const BAR: i32 = 44;
const GAP: i32 = 36;

/// Draws groups of bars on one scale.
pub(crate) fn draw(title: &str, groups: &[Group], file: &Path) -> Result<(), Box<dyn Error>> {
    let bars: usize = groups.iter().map(|group| group.bars.len()).sum();
    let width = (LEFT + bars as i32 * BAR + groups.len() as i32 * GAP + 20).max(560);
    let area = SVGBackend::new(file, (width as u32, 470)).into_drawing_area();
    area.fill(&WHITE)?;
    let small = ("sans-serif", 12).into_font();
    area.draw(&Text::new(
        title,
        (LEFT, 14),
        ("sans-serif", 16).into_font(),
    ))?;
    for (place, (name, colour)) in (0i32..).zip(PARTS) {
        let x = LEFT + place * 130;
        area.draw(&Rectangle::new([(x, 40), (x + 12, 52)], colour.filled()))?;
        area.draw(&Text::new(name, (x + 18, 40), small.clone()))?;
    }
    let most = groups
        .iter()
        .flat_map(|group| &group.bars)
        .map(|bar| bar.seconds.iter().sum::<f64>())
        .fold(1e-6, f64::max);
    let y = |seconds: f64| BOTTOM - (seconds / most * f64::from(BOTTOM - TOP - 16)) as i32;
    for tick in ticks(most) {
        area.draw(&PathElement::new(
            [(LEFT - 6, y(tick)), (width - 10, y(tick))],
            RGBColor(220, 220, 220),
        ))?;
        area.draw(&Text::new(
            format!("{tick} s"),
            (8, y(tick) - 6),
            small.clone(),
        ))?;
    }
    let mut x = LEFT + GAP / 2;
    for group in groups {
        area.draw(&Text::new(
            group.caption.clone(),
            (x, BOTTOM + 28),
            small.clone(),
        ))?;
        for bar in &group.bars {
            let mut from = 0.0;
            for (seconds, (_, colour)) in bar.seconds.iter().zip(PARTS) {
                let corners = [(x, y(from + seconds)), (x + BAR - 8, y(from))];
                area.draw(&Rectangle::new(corners, colour.filled()))?;
                from += seconds;
            }
            area.draw(&Text::new(text(from), (x, y(from) - 14), small.clone()))?;
            area.draw(&Text::new(
                bar.label.clone(),
                (x, BOTTOM + 10),
                small.clone(),
            ))?;
            x += BAR;
        }
        x += GAP;
    }
    area.present()?;
    Ok(())
}

/// Round numbers up to `most`, three to six of them.
fn ticks(most: f64) -> Vec<f64> {
    let power = 10f64.powf(most.log10().floor());
    let step = [0.2, 0.5, 1.0, 2.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| most / step < 6.0)
        .unwrap_or(power);
    (0..=6)
        .map(|k| (f64::from(k) * step * 1e6).round() / 1e6)
        .filter(|tick| *tick <= most)
        .collect()
}

fn text(seconds: f64) -> String {
    match seconds {
        s if s >= 10.0 => format!("{s:.1}"),
        s if s >= 1.0 => format!("{s:.2}"),
        s => format!("{s:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round() {
        assert_eq!(ticks(32.1), [0.0, 10.0, 20.0, 30.0]);
        assert_eq!(ticks(0.9), [0.0, 0.2, 0.4, 0.6, 0.8]);
        assert_eq!(ticks(1.0).len(), 6);
    }

    #[test]
    fn a_plot_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bars.svg");
        let group = Group {
            caption: "2 nodes".to_owned(),
            bars: vec![Bar {
                label: "MPI".to_owned(),
                seconds: [0.1, 1.0, 0.2],
            }],
        };
        draw("a title", &[group], &file).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains("1.30") && text.contains("2 nodes"));
    }
}
