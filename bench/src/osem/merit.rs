//! The quality of an image: its likelihood, its contrast of hot and cold places, and its difference to the phantom.
//!
//! Pure. Invariant: the figures of hot and cold places and the error do not change when an image is
//! multiplied by a number. The likelihood does, but the iterations keep an image's sum.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use super::phantom::{HOT, Scanner, Tissue};
use super::siddon::{self, Point};
use crate::png::Picture;

/// Figures of an image.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Merit {
    /// Mean logarithm of the image's sums along the events' lines, which the iterations raise.
    pub(crate) likelihood: f64,
    /// Mean of the hot voxels over the mean of the background; the phantom has 4.
    pub(crate) hot: f64,
    /// Mean of the cold voxels over the mean of the background; the phantom has 0.
    pub(crate) cold: f64,
    /// Root mean square difference to the phantom within the object, over the background; both are
    /// scaled to the same sum.
    pub(crate) error: f64,
}

impl Merit {
    /// The merit of an image of the phantom, reconstructed from `events`.
    pub(crate) fn of(scanner: &Scanner, image: &[f32], events: &[f32]) -> Merit {
        let mean = |tissue: Tissue| {
            let (mut sum, mut count) = (0.0, 0u32);
            for (voxel, value) in image.iter().enumerate() {
                if scanner.tissue_of(voxel) == tissue {
                    sum += f64::from(*value);
                    count += 1;
                }
            }
            sum / f64::from(count.max(1))
        };
        let background = mean(Tissue::Background);
        Merit {
            likelihood: likelihood(scanner, image, events),
            hot: mean(Tissue::Hot) / background,
            cold: mean(Tissue::Cold) / background,
            error: error(scanner, image),
        }
    }
}

/// Number of events for the likelihood; at most about twice as many are used.
const LOOKED_AT: usize = 100_000;

fn likelihood(scanner: &Scanner, image: &[f32], events: &[f32]) -> f64 {
    let every = (events.len() / 8 / LOOKED_AT).max(1);
    let logarithms: Vec<f64> = events
        .chunks_exact(8)
        .step_by(every)
        .map(|event| {
            let (from, to) = ends(event);
            f64::from(siddon::sum(scanner.size, image, from, to))
        })
        // An event on a line without activity would have an infinite weight.
        .filter(|sum| *sum > 0.0)
        .map(f64::ln)
        .collect();
    logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64
}

/// The two points of an event.
pub(crate) fn ends(event: &[f32]) -> (Point, Point) {
    (
        [event[0], event[1], event[2]],
        [event[4], event[5], event[6]],
    )
}

fn error(scanner: &Scanner, image: &[f32]) -> f64 {
    let inside: Vec<(f64, f64)> = image
        .iter()
        .enumerate()
        .filter(|(voxel, _)| scanner.tissue_of(*voxel) != Tissue::Air)
        .map(|(voxel, value)| {
            let truth = scanner.tissue_of(voxel).activity();
            (f64::from(*value), f64::from(truth))
        })
        .collect();
    let total = |pick: fn(&(f64, f64)) -> f64| inside.iter().map(pick).sum::<f64>();
    let scale = total(|pair| pair.1) / total(|pair| pair.0);
    let squares: f64 = inside
        .iter()
        .map(|(value, truth)| (value * scale - truth).powi(2))
        .sum();
    (squares / inside.len().max(1) as f64).sqrt()
}

/// The largest difference of two images, divided by the largest value of the second; infinite if that is not defined.
pub(crate) fn difference(ours: &[f32], theirs: &[f32]) -> f64 {
    let most = theirs.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
    let pairs = ours.iter().zip(theirs);
    let differences = || pairs.clone().map(|(ours, theirs)| (ours - theirs).abs());
    if ours.len() != theirs.len() || differences().any(f32::is_nan) {
        return f64::INFINITY;
    }
    f64::from(differences().fold(0.0, f32::max) / most)
}

/// The middle slices of images side by side, each scaled so that the phantom's hot places are white;
/// a voxel becomes `zoom` × `zoom` pixels.
pub(crate) fn pictures(scanner: &Scanner, images: &[Vec<f32>], zoom: usize) -> Picture {
    let [nx, ny, nz] = scanner.size;
    let middle = nz / 2 * nx * ny;
    let scales: Vec<f32> = images.iter().map(|image| white(scanner, image)).collect();
    let mut bytes = Vec::with_capacity(images.len() * nx * ny * zoom * zoom);
    for line in 0..ny * zoom {
        for (image, scale) in images.iter().zip(&scales) {
            let row = middle + line / zoom * nx;
            for value in &image[row..row + nx] {
                let grey = (255.0 * value / scale).clamp(0.0, 255.0) as u8;
                bytes.extend(std::iter::repeat_n(grey, zoom));
            }
        }
    }
    Picture {
        width: images.len() * nx * zoom,
        channels: 1,
        bytes,
    }
}

/// The value of white: [`HOT`] times the background's expected mean.
fn white(scanner: &Scanner, image: &[f32]) -> f32 {
    let truth: f32 = (0..image.len())
        .map(|voxel| scanner.tissue_of(voxel).activity())
        .sum();
    let total: f32 = image.iter().sum();
    (HOT * total / truth).max(f32::MIN_POSITIVE)
}

/// The phantom as an image.
pub(crate) fn truth(scanner: &Scanner) -> Vec<f32> {
    (0..scanner.voxels())
        .map(|voxel| scanner.tissue_of(voxel).activity())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phantom_itself_is_perfect() {
        let scanner = Scanner::new(32);
        let image: Vec<f32> = truth(&scanner).iter().map(|value| value * 7.0).collect();
        let events = scanner.events(2000, 3);
        let merit = Merit::of(&scanner, &image, &events);
        assert!((merit.hot - 4.0).abs() < 1e-6 && merit.cold == 0.0 && merit.error < 1e-6);
        let total: f32 = image.iter().sum();
        let flat = vec![total / scanner.voxels() as f32; scanner.voxels()];
        let flat = Merit::of(&scanner, &flat, &events);
        assert!(flat.likelihood < merit.likelihood);
        assert!((flat.hot - 1.0).abs() < 1e-6 && flat.error > 0.1);
    }

    #[test]
    fn differences_are_found() {
        assert_eq!(difference(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(difference(&[1.0, 3.0], &[1.0, 2.0]), 0.5);
        assert_eq!(difference(&[f32::NAN], &[1.0]), f64::INFINITY);
        assert_eq!(difference(&[1.0], &[1.0, 2.0]), f64::INFINITY);
    }
}
