//! Connections by the name in their client certificate. When a user is removed, their connections count
//! as strangers' again.
//!
//! This module authenticates nobody: the caller is authenticated at each call. Invariant: the number of closed
//! connections that are remembered is bounded by the number of open ones.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use causeway_serving::gate::Standing;
use parking_lot::Mutex;

/// Connections by certificate name. Clones share the same connections.
#[derive(Clone, Default)]
pub(crate) struct Certified(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    of: HashMap<String, Vec<Weak<Standing>>>,
    count: usize,
    /// The number of connections at which closed ones are looked for.
    many: usize,
}

impl Certified {
    /// Adds a connection with a certificate of this name.
    pub(super) fn add(&self, name: &str, standing: &Arc<Standing>) {
        let mut inside = self.0.lock();
        if inside.count >= inside.many {
            inside.sweep();
        }
        let alike = inside.of.entry(name.to_owned()).or_default();
        alike.push(Arc::downgrade(standing));
        inside.count += 1;
    }

    /// Marks all connections with a certificate of this name as strangers'.
    pub(super) fn turn_out(&self, name: &str) {
        let inside = self.0.lock();
        let alike = inside.of.get(name).into_iter().flatten();
        for standing in alike.filter_map(Weak::upgrade) {
            standing.turn_out();
        }
    }
}

impl Inside {
    fn sweep(&mut self) {
        self.of.retain(|_, alike| {
            alike.retain(|standing| standing.strong_count() > 0);
            !alike.is_empty()
        });
        self.count = self.of.values().map(Vec::len).sum();
        // Twice as many, so that sweeping costs each connection a constant time.
        self.many = 2 * self.count + 64;
    }
}

#[cfg(test)]
mod tests {
    use causeway_serving::admission::Admission;
    use causeway_serving::gate::Places;

    use super::*;

    fn open() -> Arc<Standing> {
        let places = Places {
            strangers: Admission::new(1, 1),
            known: Admission::new(1, 1),
        };
        let address = "127.0.0.1:1".parse().unwrap();
        Arc::new(Standing::new(address, true, &places).ok().unwrap())
    }

    #[test]
    fn all_connections_of_a_name_are_turned_out_and_no_others() {
        let certified = Certified::default();
        let (first, second, other) = (open(), open(), open());
        certified.add("ann", &first);
        certified.add("ann", &second);
        certified.add("bob", &other);
        certified.turn_out("ann");
        let known = [&first, &second, &other].map(|of| of.is_known());
        assert_eq!(known, [false, false, true]);
    }

    #[test]
    fn connections_that_are_over_are_not_remembered() {
        let certified = Certified::default();
        let lasting = open();
        certified.add("lasting", &lasting);
        for number in 0..10_000 {
            certified.add(&format!("u{}", number % 500), &open());
        }
        let inside = certified.0.lock();
        let kept: usize = inside.of.values().map(Vec::len).sum();
        assert_eq!(kept, inside.count);
        assert!(kept <= 128, "{kept}");
        assert_eq!(inside.of["lasting"].len(), 1);
    }
}
