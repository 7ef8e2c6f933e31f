//! What the farm's master and a worker send each other through pipes: rows of a matrix, with their name.
//!
//! Both are processes of one program on one machine, so the bytes have no version. Invariant: a frame is read whole or
//! is an error.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};

use super::farm::Name;

/// Rows, from the master work, and from a worker a result. A worker that is ready sends a frame without rows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame {
    /// The name of the work.
    pub(super) name: Name,
    /// Whole rows.
    pub(super) rows: Vec<f32>,
}

impl Frame {
    /// The first frame of a worker.
    pub(super) fn ready() -> Frame {
        Frame {
            name: Name { round: 0, row: 0 },
            rows: Vec::new(),
        }
    }

    /// Writes the frame.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        for word in [self.name.round, self.name.row, self.rows.len() as u64] {
            to.write_all(&word.to_le_bytes())?;
        }
        write_floats(to, &self.rows)?;
        to.flush()
    }

    /// Reads a frame of `most` elements at most; `None` at the end.
    pub(super) fn read(from: &mut impl Read, most: usize) -> io::Result<Option<Frame>> {
        let mut head = [0; 24];
        // The other side closes its pipe between two frames when it has nothing more to say.
        let first = from.read(&mut head)?;
        if first == 0 {
            return Ok(None);
        }
        from.read_exact(&mut head[first..])?;
        let word = |at: usize| {
            let bytes = head[8 * at..8 * at + 8].try_into().unwrap_or_default();
            u64::from_le_bytes(bytes)
        };
        let count = usize::try_from(word(2)).ok().filter(|count| *count <= most);
        let count = count.ok_or_else(|| {
            io::Error::other(format!(
                "a frame has {} elements; at most {most} were expected",
                word(2)
            ))
        })?;
        Ok(Some(Frame {
            name: Name {
                round: word(0),
                row: word(1),
            },
            rows: read_floats(from, count)?,
        }))
    }
}

/// Writes elements.
pub(super) fn write_floats(to: &mut impl Write, values: &[f32]) -> io::Result<()> {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    to.write_all(&bytes)
}

/// Reads elements.
pub(super) fn read_floats(from: &mut impl Read, count: usize) -> io::Result<Vec<f32>> {
    let mut bytes = vec![0; 4 * count];
    from.read_exact(&mut bytes)?;
    let (words, _) = bytes.as_chunks();
    Ok(words.iter().map(|word| f32::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_written() {
        let frame = Frame {
            name: Name { round: 3, row: 64 },
            rows: vec![1.0, 60.0, 0.0],
        };
        let mut bytes = Vec::new();
        frame.write(&mut bytes).unwrap();
        Frame::ready().write(&mut bytes).unwrap();
        let mut from = &bytes[..];
        assert_eq!(Frame::read(&mut from, 3).unwrap(), Some(frame));
        assert_eq!(Frame::read(&mut from, 3).unwrap(), Some(Frame::ready()));
        assert_eq!(Frame::read(&mut from, 3).unwrap(), None);
    }

    #[test]
    fn a_cut_frame_and_a_too_large_one_are_errors() {
        let mut bytes = Vec::new();
        let frame = Frame {
            name: Name { round: 0, row: 0 },
            rows: vec![2.0; 4],
        };
        frame.write(&mut bytes).unwrap();
        assert!(Frame::read(&mut &bytes[..], 3).is_err());
        for cut in 1..bytes.len() {
            assert!(Frame::read(&mut &bytes[..cut], 4).is_err(), "{cut}");
        }
    }
}
