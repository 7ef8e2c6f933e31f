//! The client's acknowledgements on the heartbeat connection: numbers of event batches, of 8 bytes each, without
//! anything between them.
//!
//! This module has no sockets. Invariant: numbers are the same however the connection cuts their bytes.
#![forbid(unsafe_code)]

use super::window::BadNumber;

/// Length of an acknowledgement in bytes.
const LENGTH: usize = 8;

/// The bytes of an acknowledgement that has not arrived whole.
#[derive(Debug, Default)]
pub struct Acknowledgements(Vec<u8>);

impl Acknowledgements {
    /// Passes the numbers that are whole with these bytes to `acknowledge`. Only the last of several numbers says
    /// something new, but all are checked.
    ///
    /// # Errors
    /// The first error of `acknowledge`.
    pub fn read(
        &mut self,
        bytes: &[u8],
        mut acknowledge: impl FnMut(u64) -> Result<(), BadNumber>,
    ) -> Result<(), BadNumber> {
        self.0.extend_from_slice(bytes);
        let (numbers, rest) = self.0.as_chunks::<LENGTH>();
        for number in numbers {
            acknowledge(u64::from_le_bytes(*number))?;
        }
        self.0.drain(..self.0.len() - rest.len());
        Ok(())
    }
}
