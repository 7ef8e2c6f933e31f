//! What the log says of a context's notices: each text once, and how many more there were.
//!
//! Drivers repeat themselves: NVIDIA's tells one fault of a kernel by thirty notices, most of them equal.
//!
//! What it is not: the application's own callback hears every notice. Invariant: however many texts come, only so many
//! are remembered.

/// Texts remembered of one context.
const MOST: usize = 64;

/// The texts said so far, each with how many more came.
#[derive(Debug, Default)]
pub(super) struct Repeats(Vec<(String, u64)>);

impl Repeats {
    /// Whether the text is to be said: it has not been. One that there is no room for is said each time.
    pub(super) fn is_new(&mut self, text: &str) -> bool {
        if let Some((_, more)) = self.0.iter_mut().find(|(said, _)| said == text) {
            *more += 1;
            return false;
        }
        if self.0.len() < MOST {
            self.0.push((text.to_owned(), 0));
        }
        true
    }

    /// What came more than once, as it is to be said at the end.
    pub(super) fn rest(self) -> impl Iterator<Item = String> {
        let repeated = self.0.into_iter().filter(|(_, more)| *more > 0);
        repeated.map(|(text, more)| format!("{more} more of this: {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_said_once_and_counted_then() {
        let mut repeats = Repeats::default();
        let flush = "Unknown error executing clFlush";
        let said = (0..30).filter(|_| repeats.is_new(flush)).count();
        assert_eq!(said, 1);
        assert!(repeats.is_new("another"));
        let rest: Vec<String> = repeats.rest().collect();
        assert_eq!(rest, [format!("29 more of this: {flush}")]);
    }

    #[test]
    fn nothing_is_kept_back_and_little_remembered() {
        let mut repeats = Repeats::default();
        let texts = (0..1000).map(|number| format!("text {number}"));
        assert!(texts.clone().all(|text| repeats.is_new(&text)));
        assert_eq!(texts.filter(|text| !repeats.is_new(text)).count(), MOST);
    }
}
