//! Which event batches were handled, and when the worker is told. After a break, the worker sends again what it does
//! not know to be handled.
//!
//! Pure. Which batches are *complete*, so that the worker may be told, is the caller's to say. Invariant: every batch is
//! handled once, in the order of the numbers.
#![forbid(unsafe_code)]

/// The worker is told after this many bytes.
const BYTES: usize = 1 << 20;
/// The worker is told after this many batches.
const BATCHES: u64 = 256;

/// The received event batches; see the module.
#[derive(Debug, Default)]
pub struct Received {
    begun: u64,
    handled: u64,
    acknowledged: u64,
    // Bytes since the last acknowledgement.
    bytes: usize,
    // Batches of connections of earlier generations are skipped.
    from: u64,
}

impl Received {
    /// Whether the batch with this number is to be handled now, which came over a connection of this generation.
    /// [`Received::end`] must follow then.
    ///
    /// # Errors
    /// A batch before it is missing.
    pub fn is_next(&mut self, generation: u64, number: u64) -> Result<bool, String> {
        if generation < self.from {
            return Ok(false);
        }
        if number != 0 && number <= self.begun {
            return Ok(false);
        }
        if number != self.begun + 1 {
            return Err(format!(
                "the node sent event batch {number} after batch {}",
                self.begun
            ));
        }
        self.begun = number;
        Ok(true)
    }

    /// Whether no batch is being handled.
    pub fn is_idle(&self) -> bool {
        self.begun == self.handled
    }

    /// Skips batches that come over connections of earlier generations.
    pub fn skip_before(&mut self, generation: u64) {
        self.from = generation;
    }

    /// Begins behind a batch of another worker. No batch may be being handled.
    pub fn begin_behind(&mut self, number: u64) {
        (self.begun, self.handled, self.acknowledged) = (number, number, number);
    }

    /// Records that the batch was handled.
    pub fn end(&mut self) {
        self.handled = self.begun;
    }

    /// Counts the bytes of a batch. Returns whether it is time to acknowledge.
    pub fn note(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.bytes >= BYTES || self.handled - self.acknowledged >= BATCHES
    }

    /// The number to acknowledge, if the batches up to `complete` are and that is new. It then counts as acknowledged.
    pub fn next_acknowledgement(&mut self, complete: u64) -> Option<u64> {
        self.bytes = 0;
        let is_new = complete > self.acknowledged;
        self.acknowledged = self.position(complete);
        is_new.then_some(complete)
    }

    /// The number to acknowledge, even if it is not a new one.
    pub fn repeated_acknowledgement(&mut self, complete: u64) -> u64 {
        self.next_acknowledgement(complete);
        self.acknowledged
    }

    /// The number for a new connection: the worker sends everything behind it again. Never less than what was
    /// acknowledged.
    pub fn position(&self, complete: u64) -> u64 {
        self.acknowledged.max(complete)
    }

    /// Handles that the worker was told `position` over a new connection. Later acknowledgements went over the old one,
    /// and may be lost.
    pub fn restart(&mut self, position: u64) {
        self.acknowledged = position;
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
        assert!(received.is_next(0, 0).is_err());
        assert_eq!(received.is_next(0, 1), Ok(true));
        assert_eq!(received.is_next(0, 1), Ok(false));
        assert_eq!(received.is_next(0, 2), Ok(true));
        assert!(received.is_next(0, 4).is_err());
        assert_eq!(received.handled(), 0);
        received.end();
        assert_eq!(received.handled(), 2);
    }

    #[test]
    fn the_worker_is_told_after_many_bytes_or_many_batches_and_once() {
        let mut received = Received::default();
        assert_eq!(received.next_acknowledgement(0), None);
        let next = |received: &mut Received| {
            received.is_next(0, received.begun + 1).unwrap();
            received.end();
        };
        next(&mut received);
        assert!(!received.note(BYTES - 1));
        assert!(received.note(1));
        assert_eq!(received.next_acknowledgement(1), Some(1));
        assert_eq!(received.next_acknowledgement(1), None);
        for _ in 2..=BATCHES {
            next(&mut received);
            assert!(!received.note(1));
        }
        next(&mut received);
        assert!(received.note(1));
    }

    #[test]
    fn what_a_broken_connection_did_not_take_is_acknowledged_again() {
        let mut received = Received::default();
        for number in 1..=2 {
            received.is_next(0, number).unwrap();
            received.end();
        }
        let told = received.position(1);
        assert_eq!(received.next_acknowledgement(2), Some(2));
        received.restart(told);
        assert_eq!(received.next_acknowledgement(2), Some(2));
        assert_eq!(received.next_acknowledgement(2), None);
    }

    #[test]
    fn what_is_not_complete_is_neither_acknowledged_nor_claimed() {
        let mut received = Received::default();
        received.is_next(0, 1).unwrap();
        received.end();
        assert_eq!((received.position(0), received.position(1)), (0, 1));
        assert_eq!(received.next_acknowledgement(0), None);
        assert_eq!(received.next_acknowledgement(1), Some(1));
        assert_eq!(received.next_acknowledgement(0), None);
        assert_eq!(received.repeated_acknowledgement(0), 1);
        assert_eq!(received.position(0), 1);
    }
}
