//! The cluster as a picture: hosts on a circle, and links whose width shows their bandwidth.
//!
//! Pure. Invariant: names are escaped, because nodes choose them.

use std::f64::consts::TAU;
use std::fmt::Write as _;

use causeway_devmgr::listing::LinkReport;

use super::matrix::{Figures, bandwidth, round_trip};

const SIZE: f64 = 800.0;
const RADIUS: f64 = 290.0;

/// The picture.
pub(crate) fn svg(figures: &Figures) -> String {
    let hosts = figures.hosts();
    let at = |number: usize| {
        let angle = TAU * number as f64 / hosts.len().max(1) as f64 - TAU / 4.0;
        (
            SIZE / 2.0 + RADIUS * angle.cos(),
            SIZE / 2.0 + RADIUS * angle.sin(),
        )
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIZE} {SIZE}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut labels = String::new();
    for (one, from) in hosts.iter().enumerate() {
        for (other, to) in hosts.iter().enumerate().skip(one + 1) {
            let Some((link, there)) = figures.between(from, to) else {
                continue;
            };
            let back = figures.between(to, from).map_or(0, |of| of.1);
            let (line, label) = drawn((at(one), at(other)), link, (there, back));
            svg += &line;
            labels += &label;
        }
    }
    svg += &labels;
    for (number, host) in hosts.iter().enumerate() {
        let (x, y) = at(number);
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"9\" fill=\"#303030\"/>\n<text x=\"{x:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\" font-weight=\"bold\">{}</text>",
            y - 16.0,
            escaped(&host.name),
        );
    }
    svg + "</svg>\n"
}

/// A link as a line, and its label.
fn drawn(
    ((x1, y1), (x2, y2)): ((f64, f64), (f64, f64)),
    link: &LinkReport,
    (there, back): (u64, u64),
) -> (String, String) {
    // 1 Mbit/s is 1 wide, and each ten times more is 2 wider.
    let slower = there.min(back);
    let width = 1.0 + 2.0 * (slower as f64 * 8.0 / 1e6).max(1.0).log10();
    let colour = if link.old { "#c0c0c0" } else { "#4878a8" };
    let trip = round_trip(link.round_trip_median_ns);
    let line = format!(
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" \
         stroke-width=\"{width:.1}\"><title>{} there, {} back, {trip}</title></line>\n",
        bandwidth(there),
        bandwidth(back),
    );
    // Not in the middle, where the links of a large cluster cross.
    let (x, y) = (x1 + 0.36 * (x2 - x1), y1 + 0.36 * (y2 - y1));
    let label = format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" paint-order=\"stroke\" stroke=\"white\" \
         stroke-width=\"4\">{}, {trip}</text>\n",
        bandwidth(slower),
    );
    (line, label)
}

fn escaped(text: &str) -> String {
    let plain = text.chars().filter(|of| !of.is_control());
    plain.fold(String::new(), |mut escaped, of| {
        match of {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            other => escaped.push(other),
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::super::matrix::tests::{figures, hosts, kept};
    use super::*;

    #[test]
    fn every_link_is_drawn_and_names_cannot_add_elements() {
        let mut hosts = hosts(3);
        hosts[2].name = "<script>\"&".to_owned();
        let links = vec![
            kept(&hosts[0], &hosts[1], 125_000_000, 125_000_000, 5),
            kept(&hosts[1], &hosts[2], 1_250_000, 125_000, 5),
        ];
        let svg = svg(&figures(&hosts, links, 5));
        assert_eq!(svg.matches("<line").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("&lt;script&gt;&quot;&amp;") && !svg.contains("<script"));
        assert!(
            svg.contains("stroke-width=\"7.0\"") && svg.contains("1 Mbit/s"),
            "{svg}"
        );
        assert!(svg.ends_with("</svg>\n"));
    }
}
