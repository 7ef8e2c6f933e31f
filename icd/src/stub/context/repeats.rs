//! Suppresses repeated notices of a context in the log: each text is logged once, and later the number of
//! repetitions.
//!
//! Drivers repeat themselves: NVIDIA's reports one fault of a kernel with thirty notices, most of them
//! equal.
//!
//! Not here: the application's own callback, which gets every notice. Invariant: at most [`MOST`] texts are
//! remembered.

/// Maximum number of texts remembered for one context.
const MOST: usize = 64;

/// The texts logged so far, each with the number of repetitions.
#[derive(Debug, Default)]
pub(in crate::stub) struct Repeats(Vec<(String, u64)>);

impl Repeats {
    /// Whether the text should be logged, because it is new. A text that finds no room is logged every
    /// time.
    pub(in crate::stub) fn is_new(&mut self, text: &str) -> bool {
        if let Some((_, more)) = self.0.iter_mut().find(|(said, _)| said == text) {
            *more += 1;
            return false;
        }
        if self.0.len() < MOST {
            self.0.push((text.to_owned(), 0));
        }
        true
    }

    /// Returns the lines that report repetitions.
    pub(in crate::stub) fn rest(self) -> impl Iterator<Item = String> {
        let repeated = self.0.into_iter().filter(|(_, more)| *more > 0);
        repeated.map(|(text, more)| format!("repeated {more} more times: {text}"))
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
        assert_eq!(rest, [format!("repeated 29 more times: {flush}")]);
    }

    #[test]
    fn nothing_is_kept_back_and_little_remembered() {
        let mut repeats = Repeats::default();
        let texts = (0..1000).map(|number| format!("text {number}"));
        assert!(texts.clone().all(|text| repeats.is_new(&text)));
        assert_eq!(texts.filter(|text| !repeats.is_new(text)).count(), MOST);
    }
}
