//! Property lists: names, each followed by its values, ended by a name of 0.
//!
//! What a name means, and with which code a wrong one is refused, stands beside each function that takes a list.
//! Invariant: nothing is read behind the 0 that ends a list.

/// Reads a list, name by name, and keeps what was read.
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
    /// Begins.
    ///
    /// # Safety
    /// `list` is NULL, or leads to names, each followed by at least the values that the caller reads for it, and
    /// then to a 0.
    pub(super) unsafe fn new(list: *const T) -> PropertyList<T> {
        PropertyList {
            at: list,
            read: Vec::new(),
            names: Vec::new(),
        }
    }

    /// The next name; none at the end.
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

    /// The next value of the name.
    pub(super) fn value(&mut self) -> T {
        // SAFETY: by `new`'s contract a name or a value is there: the end has not been read.
        let value = unsafe { self.at.add(self.read.len()).read() };
        self.read.push(value);
        value
    }

    /// Whether the name stood there before.
    pub(super) fn is_repeated(&self) -> bool {
        let mut names = self.names.iter();
        let last = names.next_back();
        last.is_some_and(|last| names.any(|name| name == last))
    }

    /// What was read, with its 0; empty for NULL.
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
