//! From two JSON objects to the change between them, in the form of RFC 7396 (JSON Merge Patch).
//!
//! In that form, `null` removes a key. Invariant: the objects contain no `null`, so the change from one to another, applied
//! to the first, gives the second.

use serde_json::{Map, Value};

/// Removes all keys whose value is `null`. Such elements of lists stay.
pub(crate) fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !value.is_null());
            object.values_mut().for_each(without_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// The change from one object to another. `None`: they are equal.
pub(crate) fn between(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
) -> Option<Map<String, Value>> {
    let mut change = Map::new();
    for (key, value) in new {
        let changed = match (old.get(key), value) {
            (Some(Value::Object(before)), Value::Object(now)) => {
                between(before, now).map(Value::Object)
            }
            (Some(before), now) if before == now => None,
            _ => Some(value.clone()),
        };
        change.extend(changed.map(|changed| (key.clone(), changed)));
    }
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    change.extend(gone.map(|key| (key.clone(), Value::Null)));
    (!change.is_empty()).then_some(change)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Applies a change as the page does, and as RFC 7396 says.
    pub(in super::super) fn apply(target: &mut Value, change: &Value) {
        let Value::Object(change) = change else {
            *target = change.clone();
            return;
        };
        if !target.is_object() {
            *target = Value::Object(Map::new());
        }
        let object = target.as_object_mut().unwrap();
        for (key, value) in change {
            if value.is_null() {
                object.remove(key);
            } else {
                apply(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }

    pub(in super::super) fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..3_u64).prop_map(Value::from),
            "[ab]{0,2}".prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(4, 48, 5, |inner| {
            let keys = "[abcd]";
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(keys, inner, 0..5)
                    .prop_map(|of| Value::Object(of.into_iter().collect())),
            ]
        })
    }

    fn snapshots() -> impl Strategy<Value = Map<String, Value>> {
        prop::collection::btree_map("[abcd]", values(), 0..5).prop_map(|of| {
            let mut value = Value::Object(of.into_iter().collect());
            without_nulls(&mut value);
            value.as_object().unwrap().clone()
        })
    }

    proptest! {
        #[test]
        fn the_change_applied_to_the_old_snapshot_gives_the_new_one(
            old in snapshots(),
            new in snapshots(),
        ) {
            let change = between(&old, &new);
            prop_assert_eq!(change.is_none(), old == new);
            let mut page = Value::Object(old);
            if let Some(change) = change {
                apply(&mut page, &Value::Object(change));
            }
            prop_assert_eq!(page, Value::Object(new));
        }
    }

    #[test]
    fn a_change_names_only_what_has_changed() {
        let of = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap();
        let old = of(r#"{"now": 1, "leases": {"a": {"user": "ann", "age": 1}, "b": {"age": 2}}}"#);
        let new = of(r#"{"now": 2, "leases": {"a": {"user": "ann", "age": 3}}}"#);
        let expected = of(r#"{"now": 2, "leases": {"a": {"age": 3}, "b": null}}"#);
        assert_eq!(between(&old, &new), Some(expected));
        assert_eq!(between(&new, &new), None);
    }
}
