//! Property lists: each name is followed by its values, and a name of 0 ends the list.
//!
//! The functions that take a list decide what a name means, and which code a wrong name or value gets.
//! Invariant: nothing after the 0 that ends a list is read.

/// Reads a list, name by name, and keeps all words that were read.
///
/// ```text
/// while let Some(name) = list.name() { let value = list.value(); … }
/// list.read()
/// ```
pub(super) struct PropertyList<T> {
    at: *const T,
    read: Vec<T>,
    names: Vec<T>,
}

impl<T: Copy + Default + PartialEq> PropertyList<T> {
    /// Starts at the first name of a list.
    ///
    /// # Safety
    /// `list` is NULL or points to names. Each name is followed by at least the values that the caller
    /// reads for it. A 0 ends the list.
    pub(super) unsafe fn new(list: *const T) -> PropertyList<T> {
        PropertyList {
            at: list,
            read: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Reads the next name. Returns `None` at the end.
    pub(super) fn name(&mut self) -> Option<T> {
        if self.at.is_null() {
            return None;
        }
        let name = self.value();
        if name == T::default() {
            self.at = std::ptr::null();
            return None;
        }
        self.names.push(name);
        Some(name)
    }

    /// Reads the next value of the current name.
    pub(super) fn value(&mut self) -> T {
        // SAFETY: by `new`'s contract there is a name or a value here, because the end has not been read.
        let value = unsafe { self.at.add(self.read.len()).read() };
        self.read.push(value);
        value
    }

    /// Whether the current name appears earlier in the list.
    pub(super) fn is_repeated(&self) -> bool {
        let mut names = self.names.iter();
        let last = names.next_back();
        last.is_some_and(|last| names.any(|name| name == last))
    }

    /// All words that were read, with the final 0. Empty for NULL.
    pub(super) fn read(self) -> Vec<T> {
        self.read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_values_and_the_end_are_told_apart() {
        let words = [5u64, 0, 7, 1, 2, 0, 5, 9, 0, 77];
        // SAFETY: a list as read below: 5 and 9 have a value, 7 has values up to a 0.
        let mut list = unsafe { PropertyList::new(words.as_ptr()) };
        assert_eq!((list.name(), list.value()), (Some(5), 0));
        assert_eq!(list.name(), Some(7));
        assert!(!list.is_repeated());
        assert_eq!([list.value(), list.value(), list.value()], [1, 2, 0]);
        assert_eq!((list.name(), list.is_repeated()), (Some(5), true));
        assert_eq!((list.value(), list.name(), list.name()), (9, None, None));
        assert_eq!(list.read(), words[..9]);
    }

    #[test]
    fn null_is_a_list_of_nothing() {
        // SAFETY: NULL is allowed.
        let mut list = unsafe { PropertyList::<isize>::new(std::ptr::null()) };
        assert_eq!((list.name(), list.is_repeated()), (None, false));
        assert!(list.read().is_empty());
    }
}
