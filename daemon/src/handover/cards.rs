//! What the process that reads cards tells the supervisor: a question with the cards' UUIDs, and the answer.
//!
//! Both go over a stream. An answer has as many entries as its question. Both ends are the same binary, so the format
//! has no version.
#![forbid(unsafe_code)]

/// Most cards of a question.
pub const MOST_CARDS: usize = 64;
/// Length of an answer's entry, in bytes.
pub const CARD_BYTES: usize = 4 * size_of::<u64>();

/// A `CL_DEVICE_UUID_KHR`.
pub type CardUuid = [u8; 16];

/// What the vendor's library says about a card, of all programs together; `None`: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardFigures {
    /// Percent of the time.
    pub utilization: Option<u64>,
    /// Bytes in use.
    pub memory_used: Option<u64>,
    /// Bytes of the card.
    pub memory_total: Option<u64>,
    /// Degrees Celsius.
    pub temperature: Option<u64>,
}

impl CardFigures {
    /// Returns an answer's entry.
    #[must_use]
    pub fn to_bytes(self) -> [u8; CARD_BYTES] {
        let figures = [
            self.utilization,
            self.memory_used,
            self.memory_total,
            self.temperature,
        ];
        let mut bytes = [0; CARD_BYTES];
        for (place, figure) in bytes.chunks_exact_mut(size_of::<u64>()).zip(figures) {
            // No figure is as large as that.
            place.copy_from_slice(&figure.unwrap_or(u64::MAX).to_le_bytes());
        }
        bytes
    }

    /// Reads an answer's entry.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; CARD_BYTES]) -> CardFigures {
        let figure = |at: usize| {
            let place = &bytes[at * size_of::<u64>()..];
            let figure = u64::from_le_bytes(std::array::from_fn(|i| place[i]));
            (figure != u64::MAX).then_some(figure)
        };
        CardFigures {
            utilization: figure(0),
            memory_used: figure(1),
            memory_total: figure(2),
            temperature: figure(3),
        }
    }
}

/// Returns a question. Cards after the first [`MOST_CARDS`] are left out.
#[must_use]
pub fn question(cards: &[CardUuid]) -> Vec<u8> {
    let cards = &cards[..cards.len().min(MOST_CARDS)];
    let count = cards.len() as u8;
    [&[count][..], cards.as_flattened()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_arrive_as_they_were() {
        let some = CardFigures {
            utilization: Some(0),
            memory_used: Some(1 << 40),
            memory_total: None,
            temperature: Some(55),
        };
        for figures in [some, CardFigures::default()] {
            assert_eq!(CardFigures::from_bytes(&figures.to_bytes()), figures);
        }
        assert_eq!(question(&[[7; 16]; 2]).len(), 33);
        assert_eq!(question(&[[7; 16]; 90])[0], 64);
    }
}
