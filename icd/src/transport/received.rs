//! Which event batches were handled, and when the worker is told. After a break, the worker sends again what it does
//! not know to be handled.
//!
//! Pure. Invariant: every batch is handled once, in the order of the numbers.
#![forbid(unsafe_code)]

/// The worker is told after this many bytes.
const BYTES: usize = 1 << 20;
/// The worker is told after this many batches.
const BATCHES: u64 = 256;

/// The received event batches; see the module.
#[derive(Debug, Default)]
pub struct Received {
    handled: u64,
    acknowledged: u64,
    // Bytes since the last acknowledgement.
    bytes: usize,
}

impl Received {
    /// Whether the batch with this number is to be handled now. Counts it then.
    ///
    /// # Errors
    /// A batch before it is missing.
    pub fn is_next(&mut self, number: u64) -> Result<bool, String> {
        if number != 0 && number <= self.handled {
            return Ok(false);
        }
        if number != self.handled + 1 {
            return Err(format!(
                "the node sent event batch {number} after batch {}",
                self.handled
            ));
        }
        self.handled = number;
        Ok(true)
    }

    /// Counts the bytes of a batch. Returns whether it is time to acknowledge.
    pub fn note(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.bytes >= BYTES || self.handled - self.acknowledged >= BATCHES
    }

    /// The number to acknowledge, if it is a new one. It then counts as acknowledged.
    pub fn next_acknowledgement(&mut self) -> Option<u64> {
        self.bytes = 0;
        let is_new = self.handled > self.acknowledged;
        self.acknowledged = self.handled;
        is_new.then_some(self.handled)
    }

    /// The number to acknowledge, even if it is not a new one.
    pub(super) fn repeated_acknowledgement(&mut self) -> u64 {
        self.next_acknowledgement().unwrap_or(self.handled)
    }

    /// The number of the last handled batch.
    #[must_use]
    pub fn handled(&self) -> u64 {
        self.handled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_batch_is_handled_once_and_a_gap_is_an_error() {
        let mut received = Received::default();
        assert!(received.is_next(0).is_err());
        assert_eq!(received.is_next(1), Ok(true));
        assert_eq!(received.is_next(1), Ok(false));
        assert_eq!(received.is_next(2), Ok(true));
        assert!(received.is_next(4).is_err());
        assert_eq!(received.handled(), 2);
    }

    #[test]
    fn the_worker_is_told_after_many_bytes_or_many_batches_and_once() {
        let mut received = Received::default();
        assert_eq!(received.next_acknowledgement(), None);
        received.is_next(1).unwrap();
        assert!(!received.note(BYTES - 1));
        assert!(received.note(1));
        assert_eq!(received.next_acknowledgement(), Some(1));
        assert_eq!(received.next_acknowledgement(), None);
        for number in 2..=BATCHES {
            received.is_next(number).unwrap();
            assert!(!received.note(1));
        }
        received.is_next(BATCHES + 1).unwrap();
        assert!(received.note(1));
    }
}
