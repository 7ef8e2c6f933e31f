//! Splits the rows of a step into transactions that etcd accepts, and into parts that are stored first when
//! one transaction is not enough; pure.
//!
//! Invariant: parts contain the last write of each key of the step, once.

use std::collections::BTreeMap;

use super::keys::KeyRow;

/// Most rows of one transaction. etcd accepts 128 operations by default, and a transaction has one of its
/// own.
pub(super) const MOST_ROWS: usize = 120;
/// Most bytes of keys and values in one transaction. etcd accepts 1.5 MiB by default, with all around.
pub(super) const MOST_BYTES: usize = 1 << 20;

/// The last write of each key. etcd refuses a transaction that puts a key twice, and all of them count at
/// one moment.
pub(super) fn last_writes(rows: impl Iterator<Item = KeyRow>) -> Vec<KeyRow> {
    let last: BTreeMap<Vec<u8>, Option<Vec<u8>>> = rows.map(|row| (row.key, row.value)).collect();
    let rows = last.into_iter().map(|(key, value)| KeyRow { key, value });
    rows.collect()
}

/// Whether one transaction is enough.
pub(super) fn fits(rows: &[KeyRow]) -> bool {
    rows.len() <= MOST_ROWS && rows.iter().map(KeyRow::bytes).sum::<usize>() <= MOST_BYTES
}

/// Splits rows into groups of at most so many, of at most [`MOST_BYTES`] together. A larger row has a group
/// of its own.
pub(super) fn groups(rows: Vec<KeyRow>, most_rows: usize) -> Vec<Vec<KeyRow>> {
    let mut groups: Vec<Vec<KeyRow>> = Vec::new();
    let mut bytes = 0;
    for row in rows {
        bytes += row.bytes() + HEAD;
        match groups.last_mut() {
            Some(group) if group.len() < most_rows && bytes <= MOST_BYTES => group.push(row),
            _ => {
                bytes = row.bytes() + HEAD;
                groups.push(vec![row]);
            }
        }
    }
    groups
}

/// Bytes of a row in a part, in addition to key and value.
const HEAD: usize = 9;

/// The value of a part: for each row the lengths of key and value, whether it has a value, and both.
pub(super) fn encode(rows: &[KeyRow]) -> Vec<u8> {
    let mut part = Vec::with_capacity(rows.iter().map(|row| row.bytes() + HEAD).sum());
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    for row in rows {
        let value = row.value.as_deref();
        part.extend(length(&row.key));
        part.extend(length(value.unwrap_or_default()));
        part.push(u8::from(value.is_some()));
        part.extend(&row.key);
        part.extend(value.unwrap_or_default());
    }
    part
}

/// The rows of a part. `None`: it is damaged.
pub(super) fn decode(mut part: &[u8]) -> Option<Vec<KeyRow>> {
    let mut rows = Vec::new();
    while !part.is_empty() {
        let key_length = u32::from_le_bytes(*part.split_off(..4)?.first_chunk()?);
        let value_length = u32::from_le_bytes(*part.split_off(..4)?.first_chunk()?);
        let has_value = part.split_off(..1)? != [0];
        let key = part.split_off(..usize::try_from(key_length).ok()?)?;
        let value = part.split_off(..usize::try_from(value_length).ok()?)?;
        rows.push(KeyRow {
            key: key.to_vec(),
            value: has_value.then(|| value.to_vec()),
        });
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row() -> impl Strategy<Value = KeyRow> {
        let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
        (bytes(3), proptest::option::of(bytes(40))).prop_map(|(key, value)| KeyRow { key, value })
    }

    proptest! {
        #[test]
        fn parts_have_the_last_write_of_each_key(rows in proptest::collection::vec(row(), 0..60)) {
            let wanted: BTreeMap<_, _> =
                rows.iter().map(|row| (row.key.clone(), row.value.clone())).collect();
            let groups = groups(last_writes(rows.into_iter()), 7);
            prop_assert!(groups.iter().all(|group| (1..=7).contains(&group.len())));
            let parts = groups.iter().map(|group| encode(group));
            let read: Vec<_> = parts.flat_map(|part| decode(&part).unwrap()).collect();
            let read: Vec<_> = read.into_iter().map(|row| (row.key, row.value)).collect();
            prop_assert_eq!(read, wanted.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn a_damaged_part_never_panics(part in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&part);
        }
    }

    #[test]
    fn groups_are_no_larger_than_etcd_accepts() {
        let rows = (0..3_000_u32).map(|n| KeyRow {
            key: n.to_be_bytes().to_vec(),
            value: Some(vec![0; 1_000]),
        });
        let rows = last_writes(rows);
        assert!(!fits(&rows));
        for group in groups(rows, usize::MAX) {
            assert!(encode(&group).len() <= MOST_BYTES);
        }
    }
}
