//! Names that live as long as the process, so that reports need no copies of them.
//!
//! Invariant: at most [`MOST`] names are kept, because they are never freed.

use std::borrow::Cow;
use std::collections::HashSet;

use parking_lot::Mutex;

/// Maximum number of names. A program has far fewer kernels.
const MOST: usize = 4096;

static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);

/// Returns a name that costs nothing to copy, as long as there are few different ones.
pub(crate) fn lasting(name: &str) -> Cow<'static, str> {
    let mut names = NAMES.lock();
    let names = names.get_or_insert_default();
    if let Some(known) = names.get(name) {
        return Cow::Borrowed(known);
    }
    if names.len() >= MOST {
        return Cow::Owned(name.to_owned());
    }
    let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(kept);
    Cow::Borrowed(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let [first, second] = [(); 2].map(|()| lasting("increment"));
        let (Cow::Borrowed(first), Cow::Borrowed(second)) = (first, second) else {
            panic!("names are copied");
        };
        assert_eq!(first, "increment");
        assert!(std::ptr::eq(first, second));
    }
}
