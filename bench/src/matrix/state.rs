//! The checkpoint of a chain of products: a file with the matrix after some product. Its last one is the result.
//!
//! `programs/matrix_mpi.c` writes and reads the same form: the number of products, the size, the elements, and their
//! checksum. Invariant: under its name, the file is whole or absent, whenever its writer dies.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::time::Instant;

use super::field::checksum;
use super::frame::{read_floats, write_floats};
use super::progress::Progress;

/// A matrix after some products.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChainState {
    /// The number of products.
    pub(super) round: u64,
    /// The matrix, row by row.
    pub(super) matrix: Vec<f32>,
}

impl ChainState {
    /// Replaces the file durably.
    pub(super) fn write(&self, path: &Path, size: usize) -> io::Result<()> {
        let part = path.with_extension("part");
        let mut file = File::create(&part)?;
        for word in [self.round, size as u64] {
            file.write_all(&word.to_le_bytes())?;
        }
        write_floats(&mut file, &self.matrix)?;
        file.write_all(&checksum(&self.matrix).to_le_bytes())?;
        file.sync_all()?;
        fs::rename(part, path)
    }

    /// Replaces the file durably, and reports how long that took.
    pub(super) fn save(&self, path: &Path, size: usize) -> io::Result<()> {
        let begin = Instant::now();
        self.write(path, size)?;
        let seconds = begin.elapsed().as_secs_f64();
        Progress::Checkpoint { seconds }.print()
    }

    /// Reads the file of matrices of this size; `None` if there is none.
    pub(super) fn read(path: &Path, size: usize) -> io::Result<Option<ChainState>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut from = BufReader::new(file);
        let mut word = || {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes)?;
            Ok::<u64, io::Error>(u64::from_le_bytes(bytes))
        };
        let (round, found) = (word()?, word()?);
        if found != size as u64 {
            return Err(wrong(
                path,
                format!("has size {found}; {size} was expected"),
            ));
        }
        let matrix = read_floats(&mut from, size * size)?;
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        if checksum(&matrix) != u64::from_le_bytes(bytes) {
            return Err(wrong(
                path,
                "has another checksum than its matrix".to_owned(),
            ));
        }
        Ok(Some(ChainState { round, matrix }))
    }
}

fn wrong(path: &Path, fault: String) -> io::Error {
    io::Error::other(format!("the checkpoint {} {fault}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::field;

    #[test]
    fn a_checkpoint_is_read_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        assert_eq!(ChainState::read(&path, 5).unwrap(), None);
        let state = ChainState {
            round: 7,
            matrix: field::random(5, 1),
        };
        state.write(&path, 5).unwrap();
        assert_eq!(ChainState::read(&path, 5).unwrap(), Some(state));
    }

    #[test]
    fn a_changed_or_cut_checkpoint_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let state = ChainState {
            round: 1,
            matrix: field::random(3, 1),
        };
        state.write(&path, 3).unwrap();
        assert!(ChainState::read(&path, 4).is_err(), "another size");
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(ChainState::read(&path, 3).is_err(), "cut");
        let mut changed = bytes.clone();
        changed[18] ^= 1;
        fs::write(&path, &changed).unwrap();
        assert!(ChainState::read(&path, 3).is_err(), "changed");
    }
}
