//! The scanned object, a warm cylinder with hot spheres and a cold one, and its events.
//!
//! Pure and deterministic: a seed gives the same events everywhere. Lengths are in voxels. A decay's two photons leave
//! along one line. An event is the pair of points where that line meets the scanner's cylinder. There is no event if an
//! end misses it, no attenuation and no scatter. Invariant: both ends of every event are on the cylinder.
#![forbid(unsafe_code)]

use super::siddon::{Point, Size};
use crate::random::Random;

/// The activity of hot places; the background has 1.
pub(crate) const HOT: f32 = 4.0;

/// The tissue at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tissue {
    /// Outside of the object.
    Air,
    /// The warm cylinder.
    Background,
    /// A sphere of [`HOT`] times the activity.
    Hot,
    /// A sphere without activity.
    Cold,
}

impl Tissue {
    /// Decays per volume, relative to the background.
    pub(crate) fn activity(self) -> f32 {
        match self {
            Tissue::Air | Tissue::Cold => 0.0,
            Tissue::Background => 1.0,
            Tissue::Hot => HOT,
        }
    }
}

/// An image's size, and the scanner around it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scanner {
    /// The image.
    pub(crate) size: Size,
    /// Radius of the cylinder.
    pub(crate) radius: f32,
    /// Half of the cylinder's length.
    pub(crate) half_length: f32,
}

impl Scanner {
    /// A scanner for an image of `side` × `side` × `side / 4` voxels.
    pub(crate) fn new(side: usize) -> Scanner {
        let depth = (side / 4).max(1);
        Scanner {
            size: [side, side, depth],
            radius: 0.75 * side as f32,
            half_length: depth as f32,
        }
    }

    /// Voxels of the image.
    pub(crate) fn voxels(&self) -> usize {
        self.size.iter().product()
    }

    /// The tissue at a point.
    pub(crate) fn tissue(&self, point: Point) -> Tissue {
        let side = self.size[0] as f32;
        let [x, y, z] = point.map(|part| part / side);
        let within = |cx: f32, cy: f32, radius: f32| {
            (x - cx).powi(2) + (y - cy).powi(2) + z * z < radius * radius
        };
        if within(0.2, 0.0, 0.09) || within(-0.1, 0.17, 0.07) || within(-0.1, -0.17, 0.05) {
            Tissue::Hot
        } else if within(-0.02, 0.0, 0.08) {
            Tissue::Cold
        } else if x * x + y * y < 0.16 && z.abs() < 0.115 {
            Tissue::Background
        } else {
            Tissue::Air
        }
    }

    /// The tissue in the middle of a voxel.
    pub(crate) fn tissue_of(&self, voxel: usize) -> Tissue {
        let [nx, ny, nz] = self.size;
        let index = [voxel % nx, voxel / nx % ny, voxel / (nx * ny)];
        let size = [nx, ny, nz];
        self.tissue(std::array::from_fn(|a| {
            index[a] as f32 + 0.5 - 0.5 * size[a] as f32
        }))
    }

    /// Makes `count` events, eight floats each: two points of four, the fourths 0.
    pub(crate) fn events(&self, count: usize, seed: u64) -> Vec<f32> {
        let mut random = Random::new(seed);
        let mut events = Vec::with_capacity(8 * count);
        while events.len() < 8 * count {
            let point: Point =
                std::array::from_fn(|a| ((random.unit() - 0.5) * self.size[a] as f64) as f32);
            if random.unit() as f32 * HOT >= self.tissue(point).activity() {
                continue;
            }
            let z = 2.0 * random.unit() - 1.0;
            let angle = std::f64::consts::TAU * random.unit();
            let across = (1.0 - z * z).sqrt();
            let way = [across * angle.cos(), across * angle.sin(), z];
            if let Some([from, to]) = self.ends(point.map(f64::from), way) {
                for end in [from, to] {
                    events.extend_from_slice(&[end[0] as f32, end[1] as f32, end[2] as f32, 0.0]);
                }
            }
        }
        events
    }

    /// Where a line through a point meets the cylinder, if both ends do.
    fn ends(&self, point: [f64; 3], way: [f64; 3]) -> Option<[[f64; 3]; 2]> {
        let a = way[0] * way[0] + way[1] * way[1];
        let b = point[0] * way[0] + point[1] * way[1];
        let radius = f64::from(self.radius);
        let c = point[0] * point[0] + point[1] * point[1] - radius * radius;
        let root = (b * b - a * c).sqrt();
        let ends = [(-b - root) / a, (-b + root) / a]
            .map(|at| std::array::from_fn::<f64, 3, _>(|axis| point[axis] + at * way[axis]));
        ends.iter()
            .all(|end| end[2].abs() <= f64::from(self.half_length))
            .then_some(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_end_on_the_cylinder_and_cross_the_object() {
        let scanner = Scanner::new(32);
        let events = scanner.events(500, 1);
        assert_eq!(events.len(), 4000);
        for end in events.chunks_exact(4) {
            let radius = end[0].hypot(end[1]);
            assert!((radius - scanner.radius).abs() < 1e-3);
            assert!(end[2].abs() <= scanner.half_length);
        }
        assert_eq!(events, scanner.events(500, 1));
        assert_ne!(events, scanner.events(500, 2));
    }

    #[test]
    fn the_phantom_has_all_tissues() {
        let scanner = Scanner::new(32);
        for tissue in [Tissue::Air, Tissue::Background, Tissue::Hot, Tissue::Cold] {
            assert!((0..scanner.voxels()).any(|voxel| scanner.tissue_of(voxel) == tissue));
        }
    }
}
