//! Accounting of an outgoing transfer: which bytes may be sent, are being sent by a lane, and were sent.
//!
//! Pure. Invariant: every byte is given out once, none beyond the credit, and none after [`Allowance::stop`].
#![forbid(unsafe_code)]

/// The account of one transfer.
#[derive(Debug)]
pub(super) struct Allowance {
    total: u64,
    credit: u64,
    taken: u64,
    sent: u64,
    // Number of pieces that lanes have taken and not yet put back.
    inside: usize,
    stopped: bool,
}

impl Allowance {
    pub(super) fn new(total: u64) -> Allowance {
        Allowance {
            total,
            credit: 0,
            taken: 0,
            sent: 0,
            inside: 0,
            stopped: false,
        }
    }

    /// Raises the credit to `to`, capped at the total. The credit never falls.
    pub(super) fn grant(&mut self, to: u64) {
        self.credit = self.credit.max(to.min(self.total));
    }

    /// Stops the transfer: no more pieces are given out.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether a piece may be taken now.
    pub(super) fn has_more(&self) -> bool {
        !self.stopped && self.taken < self.credit
    }

    /// Takes the next piece, at most `most` bytes. Returns its offset and length.
    pub(super) fn take(&mut self, most: u64) -> Option<(u64, u64)> {
        if !self.has_more() {
            return None;
        }
        let (from, length) = (self.taken, (self.credit - self.taken).min(most));
        self.taken += length;
        self.inside += 1;
        Some((from, length))
    }

    /// Returns a piece to the account. `sent` is either its whole length or 0.
    pub(super) fn put_back(&mut self, sent: u64) {
        self.inside -= 1;
        self.sent += sent;
    }

    /// Whether every byte was sent.
    pub(super) fn is_complete(&self) -> bool {
        self.sent == self.total
    }

    /// Whether no lane will touch the bytes any more.
    pub(super) fn is_over(&self) -> bool {
        self.inside == 0 && (self.stopped || self.is_complete())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_out_must_come_back_before_the_end() {
        let mut account = Allowance::new(10);
        assert_eq!(account.take(4), None);
        account.grant(6);
        assert_eq!(account.take(4), Some((0, 4)));
        assert_eq!(account.take(4), Some((4, 2)));
        assert_eq!(account.take(4), None);
        account.stop();
        account.grant(10);
        assert_eq!(account.take(4), None);
        account.put_back(4);
        assert!(!account.is_over());
        account.put_back(0);
        assert!(account.is_over() && !account.is_complete());
    }

    proptest! {
        #[test]
        fn each_byte_goes_out_once_and_within_the_credit(
            total in 1u64..100, steps in proptest::collection::vec((0u64..120, 1u64..30), 0..40),
        ) {
            let mut account = Allowance::new(total);
            let (mut credit, mut next) = (0, 0);
            for (grant, most) in steps {
                account.grant(grant);
                credit = credit.max(grant.min(total));
                if let Some((from, length)) = account.take(most) {
                    prop_assert_eq!(from, next);
                    next += length;
                    account.put_back(length);
                }
                prop_assert!(next <= credit);
                prop_assert_eq!(account.is_complete(), next == total);
            }
        }
    }
}
