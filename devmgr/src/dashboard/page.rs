//! What a page shows, as rows of JSON text that snapshots share.
//!
//! A page has single values, and tables with a row for each lease, device or node. As trees of values, the rows would take
//! several times the memory of their text. Invariants: a row that is as in the page before is the same memory. A page
//! contains no `null`, so the change from one page to another, applied to the first, gives the second (RFC 7396).

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::change;

/// What one audience sees at one moment. See the module.
#[derive(Debug, Default)]
pub(crate) struct Page {
    values: Map<String, Value>,
    tables: Vec<(&'static str, Table)>,
}

/// Rows in the order of their keys. Each key is there once.
#[derive(Debug, Default)]
struct Table(Box<[Row]>);

#[derive(Clone, Debug)]
struct Row {
    /// A member of a JSON object: `"KEY":VALUE`.
    text: Arc<str>,
    /// The length of `"KEY":`.
    key: usize,
}

impl Page {
    pub(crate) fn put(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_owned(), value);
    }

    /// Adds a table. Of several rows with one key, the last one counts. The page `before` may have rows that are equal.
    pub(crate) fn put_table(
        &mut self,
        name: &'static str,
        rows: impl Iterator<Item = (String, Value)>,
        before: Option<&Page>,
    ) {
        let none = Table::default();
        let before = before.and_then(|page| page.table(name)).unwrap_or(&none);
        let mut rows: Vec<Row> = rows
            .map(|(key, value)| before.equal_or(Row::new(&key, &value)))
            .collect();
        rows.sort_by(|a, b| a.key().cmp(b.key()));
        rows.dedup_by(|later, earlier| {
            let is_again = later.key() == earlier.key();
            if is_again {
                std::mem::swap(later, earlier);
            }
            is_again
        });
        self.tables.push((name, Table(rows.into())));
    }

    fn table(&self, name: &str) -> Option<&Table> {
        let mut tables = self.tables.iter();
        tables.find(|of| of.0 == name).map(|of| &of.1)
    }

    /// Memory of the rows, in bytes. Other pages may share it.
    pub(crate) fn size(&self) -> usize {
        // The counts of an `Arc`, and what an allocator needs.
        const MORE: usize = size_of::<Row>() + 32;
        let rows = self.tables.iter().flat_map(|(_, table)| &table.0);
        rows.map(|row| row.text.len() + MORE).sum()
    }

    /// The change since an earlier page, as JSON text. `None`: there is none.
    pub(crate) fn change_since(&self, old: &Page) -> Option<String> {
        let mut change = change::between(&old.values, &self.values).unwrap_or_default();
        let gone = old.tables.iter().filter(|of| self.table(of.0).is_none());
        change.extend(gone.map(|of| (of.0.to_owned(), Value::Null)));
        let mut text = Members::new();
        for (name, value) in &change {
            text.add(|text| text.push_str(&Row::new(name, value).text));
        }
        for (name, table) in &self.tables {
            match old.table(name).map(|old| table.change_since(old)) {
                Some(None) => {}
                Some(Some(rows)) => text.add(|text| text.push_str(&format!("\"{name}\":{rows}"))),
                None => text.add(|text| {
                    let rows = table.change_since(&Table::default());
                    let rows = rows.as_deref().unwrap_or("{}");
                    text.push_str(&format!("\"{name}\":{rows}"));
                }),
            }
        }
        text.end()
    }
}

impl Table {
    /// The row of this table that equals `row`, or `row` if there is none.
    fn equal_or(&self, row: Row) -> Row {
        let at = self.0.binary_search_by(|of| of.key().cmp(row.key()));
        match at.ok().map(|at| &self.0[at]) {
            Some(of) if of.text == row.text => of.clone(),
            _ => row,
        }
    }

    /// The change of an object with these rows. `None`: there is none.
    fn change_since(&self, old: &Table) -> Option<String> {
        let mut text = Members::new();
        let (mut old, mut new) = (old.0.iter().peekable(), self.0.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return text.end(),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.key().cmp(new.key()),
            };
            let gone = old.next_if(|_| order.is_le());
            let row = new.next_if(|_| order.is_ge());
            match (gone, row) {
                (Some(gone), None) => text.add(|text| {
                    text.push_str(gone.key());
                    text.push_str("null");
                }),
                (None, Some(row)) => text.add(|text| text.push_str(&row.text)),
                (Some(before), Some(row)) if before.text != row.text => {
                    text.add(|text| row.push_change(before, text));
                }
                _ => {}
            }
        }
    }
}

impl Row {
    fn new(key: &str, value: &Value) -> Row {
        let mut text = Value::from(key).to_string();
        text.push(':');
        let key = text.len();
        text.push_str(&value.to_string());
        Row {
            text: text.into(),
            key,
        }
    }

    /// `"KEY":`.
    fn key(&self) -> &str {
        &self.text[..self.key]
    }

    fn value(&self) -> Value {
        // The text was made of a value.
        serde_json::from_str(&self.text[self.key..]).unwrap_or_default()
    }

    /// Appends the change since another row of this key.
    fn push_change(&self, before: &Row, text: &mut String) {
        let changed = match (before.value(), self.value()) {
            (Value::Object(before), Value::Object(now)) => change::between(&before, &now),
            _ => None,
        };
        match changed {
            Some(changed) => {
                text.push_str(self.key());
                text.push_str(&Value::Object(changed).to_string());
            }
            None => text.push_str(&self.text),
        }
    }
}

/// The text of a JSON object that is written member by member.
struct Members(String);

impl Members {
    fn new() -> Members {
        Members("{".to_owned())
    }

    fn add(&mut self, member: impl FnOnce(&mut String)) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        member(&mut self.0);
    }

    /// `None`: there are no members.
    fn end(mut self) -> Option<String> {
        self.0.push('}');
        (self.0.len() > 2).then_some(self.0)
    }
}

/// The text of a page, made in parts, so that there is never a copy of the whole.
#[derive(Debug)]
pub(crate) struct Text {
    page: Arc<Page>,
    next: Next,
}

/// What comes next of a page's text.
#[derive(Clone, Copy, Debug)]
enum Next {
    Values,
    Table(usize),
    /// A row of a table, by both numbers.
    Row(usize, usize),
    Nothing,
}

impl Text {
    pub(crate) fn new(page: Arc<Page>) -> Text {
        Text {
            page,
            next: Next::Values,
        }
    }

    /// Appends parts until the text has so many bytes, or until the page ends. Returns whether there is more.
    pub(crate) fn write(&mut self, text: &mut String, bytes: usize) -> bool {
        while text.len() < bytes && !matches!(self.next, Next::Nothing) {
            self.next = self.page.write(self.next, text);
        }
        !matches!(self.next, Next::Nothing)
    }
}

impl Page {
    fn write(&self, part: Next, text: &mut String) -> Next {
        match part {
            Next::Values => {
                text.push('{');
                for (number, (name, value)) in self.values.iter().enumerate() {
                    text.push_str(if number > 0 { "," } else { "" });
                    text.push_str(&Row::new(name, value).text);
                }
                Next::Table(0)
            }
            Next::Table(table) => match self.tables.get(table) {
                Some((name, _)) => {
                    let is_first = table == 0 && self.values.is_empty();
                    text.push_str(if is_first { "" } else { "," });
                    text.push_str(&format!("\"{name}\":{{"));
                    Next::Row(table, 0)
                }
                None => {
                    text.push('}');
                    Next::Nothing
                }
            },
            Next::Row(table, row) => match self.tables[table].1.0.get(row) {
                Some(of) => {
                    text.push_str(if row > 0 { "," } else { "" });
                    text.push_str(&of.text);
                    Next::Row(table, row + 1)
                }
                None => {
                    text.push('}');
                    Next::Table(table + 1)
                }
            },
            Next::Nothing => Next::Nothing,
        }
    }

    #[cfg(test)]
    pub(crate) fn shown(self: &Arc<Page>) -> Value {
        let mut text = String::new();
        Text::new(Arc::clone(self)).write(&mut text, usize::MAX);
        serde_json::from_str(&text).expect("JSON")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::super::change::tests::{apply, values};
    use super::*;

    type Tables = Vec<BTreeMap<String, Value>>;

    fn page(values: &BTreeMap<String, Value>, tables: &Tables, before: Option<&Page>) -> Page {
        let mut page = Page::default();
        for (name, value) in values {
            page.put(name, value.clone());
        }
        for (name, rows) in ["leases", "devices"].into_iter().zip(tables) {
            let rows = rows.iter().map(|(key, row)| (key.clone(), row.clone()));
            page.put_table(name, rows, before);
        }
        page
    }

    fn without_nulls(mut value: Value) -> Value {
        change::without_nulls(&mut value);
        value
    }

    /// Rows, some of whose keys need escapes.
    fn objects() -> impl Strategy<Value = BTreeMap<String, Value>> {
        let row = values().prop_filter("no row is null", |row| !row.is_null());
        prop::collection::btree_map("[ab\"\n]{1,2}", row.prop_map(without_nulls), 0..5)
    }

    proptest! {
        #[test]
        fn the_change_applied_to_the_old_page_gives_the_new_one(
            old in (objects(), prop::collection::vec(objects(), 0..3)),
            new in (objects(), prop::collection::vec(objects(), 0..3)),
        ) {
            let old = Arc::new(page(&old.0, &old.1, None));
            let new = Arc::new(page(&new.0, &new.1, Some(&old)));
            let change = new.change_since(&old);
            prop_assert_eq!(change.is_none(), old.shown() == new.shown());
            let mut shown = old.shown();
            if let Some(change) = change {
                apply(&mut shown, &serde_json::from_str(&change).unwrap());
            }
            prop_assert_eq!(shown, new.shown());
        }

        #[test]
        fn a_text_in_parts_is_the_whole(
            of in (objects(), prop::collection::vec(objects(), 0..3)), bytes in 1..40_usize,
        ) {
            let page = Arc::new(page(&of.0, &of.1, None));
            let (mut all, mut text) = (String::new(), Text::new(Arc::clone(&page)));
            loop {
                let mut part = String::new();
                let has_more = text.write(&mut part, bytes);
                prop_assert!(!has_more || part.len() >= bytes);
                all.push_str(&part);
                if !has_more {
                    break;
                }
            }
            prop_assert_eq!(serde_json::from_str::<Value>(&all).unwrap(), page.shown());
        }
    }

    #[test]
    fn a_row_that_has_not_changed_is_the_same_memory_and_only_others_are_named() {
        let rows = |changed: u32| {
            let row = move |number: u32| {
                let sessions = if number == changed { 1 } else { 0 };
                let row = json!({ "user": "ann", "sessions": sessions });
                (format!("{number:02}"), row)
            };
            (0..100).map(row)
        };
        let [mut old, mut new] = [Page::default(), Page::default()];
        old.put_table("leases", rows(100), None);
        new.put_table("leases", rows(7), Some(&old));
        let (before, after) = (&old.tables[0].1.0, &new.tables[0].1.0);
        let pairs = before.iter().zip(after);
        let shared = pairs.filter(|(a, b)| Arc::ptr_eq(&a.text, &b.text));
        assert_eq!(shared.count(), 99);
        let change = new.change_since(&old);
        assert_eq!(
            change.as_deref(),
            Some(r#"{"leases":{"07":{"sessions":1}}}"#)
        );
        // The tree of these rows has more than 600 bytes for each.
        assert!(new.size() < 100 * 100, "{}", new.size());
    }
}
