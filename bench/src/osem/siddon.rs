//! Siddon's method to follow a line through the voxels of an image, on the host.
//!
//! It takes the same steps as `programs/osem.cl`, to check a device's sums. Invariant: the lengths of a line's voxels add
//! up to its length within the image.
#![forbid(unsafe_code)]

/// Voxels along each axis. They have side 1 and are centred on the origin.
pub(crate) type Size = [usize; 3];

/// A point.
pub(crate) type Point = [f32; 3];

/// The next plane of an axis, and the voxel behind it.
struct Axis {
    index: i64,
    step: i64,
    next: f32,
    delta: f32,
}

impl Axis {
    fn new(from: f32, way: f32, size: usize, begin: f32) -> Axis {
        let half = 0.5 * size as f32;
        let index = ((from + begin * way + half).floor() as i64).clamp(0, size as i64 - 1);
        let plane = (index + i64::from(way > 0.0)) as f32 - half;
        let still = way == 0.0;
        Axis {
            index,
            step: if way > 0.0 { 1 } else { -1 },
            next: if still {
                f32::INFINITY
            } else {
                (plane - from) / way
            },
            delta: if still {
                f32::INFINITY
            } else {
                1.0 / way.abs()
            },
        }
    }
}

/// The positions from 0 to 1 at which a line enters and leaves the image.
fn clip(size: Size, from: Point, way: Point) -> (f32, f32) {
    let (mut begin, mut end) = (0.0f32, 1.0f32);
    for axis in 0..3 {
        let half = 0.5 * size[axis] as f32;
        if way[axis] == 0.0 {
            if from[axis].abs() >= half {
                end = -1.0;
            }
            continue;
        }
        let a = (-half - from[axis]) / way[axis];
        let b = (half - from[axis]) / way[axis];
        begin = begin.max(a.min(b));
        end = end.min(a.max(b));
    }
    (begin, end)
}

/// Visits the voxels on the line between two points, each with the length within it.
pub(crate) fn walk(size: Size, from: Point, to: Point, mut visit: impl FnMut(usize, f32)) {
    let way: Point = std::array::from_fn(|axis| to[axis] - from[axis]);
    let (mut at, end) = clip(size, from, way);
    let mut axes: [Axis; 3] =
        std::array::from_fn(|axis| Axis::new(from[axis], way[axis], size[axis], at));
    let length = way.iter().map(|part| part * part).sum::<f32>().sqrt();
    let inside = |axes: &[Axis; 3]| (0..3).all(|a| (0..size[a] as i64).contains(&axes[a].index));
    while at < end && inside(&axes) {
        let until = axes.iter().map(|axis| axis.next).fold(end, f32::min);
        let [x, y, z] = axes.each_ref().map(|axis| axis.index as usize);
        visit(
            (z * size[1] + y) * size[0] + x,
            (until - at).max(0.0) * length,
        );
        if let Some(axis) = axes.iter_mut().find(|axis| axis.next == until) {
            axis.index += axis.step;
            axis.next += axis.delta;
        }
        at = until;
    }
}

/// The sum of an image along a line.
pub(crate) fn sum(size: Size, image: &[f32], from: Point, to: Point) -> f32 {
    let mut sum = 0.0;
    walk(size, from, to, |voxel, length| sum += length * image[voxel]);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const SIZE: Size = [7, 5, 4];

    /// Returns the lengths by sampling very many points of the line.
    fn by_force(from: Point, to: Point) -> Vec<f64> {
        const POINTS: usize = 200_000;
        let way: [f64; 3] = std::array::from_fn(|a| f64::from(to[a]) - f64::from(from[a]));
        let length = way.iter().map(|part| part * part).sum::<f64>().sqrt();
        let mut lengths = vec![0.0; SIZE.iter().product()];
        for point in 0..POINTS {
            let at = (point as f64 + 0.5) / POINTS as f64;
            let index: [f64; 3] = std::array::from_fn(|a| {
                (f64::from(from[a]) + at * way[a] + 0.5 * SIZE[a] as f64).floor()
            });
            if (0..3).all(|a| index[a] >= 0.0 && index[a] < SIZE[a] as f64) {
                let [x, y, z] = index.map(|i| i as usize);
                lengths[(z * SIZE[1] + y) * SIZE[0] + x] += length / POINTS as f64;
            }
        }
        lengths
    }

    fn compare(from: Point, to: Point) {
        let mut lengths = vec![0.0f64; SIZE.iter().product()];
        walk(SIZE, from, to, |voxel, length| {
            lengths[voxel] += f64::from(length);
        });
        for (voxel, (ours, theirs)) in lengths.iter().zip(by_force(from, to)).enumerate() {
            assert!(
                (ours - theirs).abs() < 1e-3,
                "{from:?} to {to:?}, voxel {voxel}: {ours} for {theirs}"
            );
        }
    }

    #[test]
    fn lengths_are_those_of_brute_force() {
        let mut random = Random::new(5);
        for _ in 0..60 {
            let point = |random: &mut Random| -> Point {
                std::array::from_fn(|_| 16.0 * random.unit() as f32 - 8.0)
            };
            compare(point(&mut random), point(&mut random));
        }
    }

    #[test]
    fn lines_along_axes_and_outside_are_right() {
        compare([-9.0, 0.3, 0.4], [9.0, 0.3, 0.4]);
        compare([9.0, 0.3, 0.4], [-9.0, 0.3, 0.4]);
        compare([0.2, -9.0, 1.3], [0.2, 9.0, 1.3]);
        compare([-9.0, 7.0, 0.0], [9.0, 7.0, 0.0]);
        // This line ends within the image.
        compare([0.1, 0.2, 0.3], [1.7, -1.1, 0.9]);
    }
}
