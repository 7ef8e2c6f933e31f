//! A store in memory, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::rows::{Reading, Table, row_of};
use super::{Store, StoreError, Stored, Write};

/// A store in memory. Clones share their rows, like two openings of one file.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    rows: Arc<Mutex<Rows>>,
    failing: Failing,
}

type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// A switch that makes a store fail as if the disk were full.
#[derive(Clone, Debug, Default)]
pub struct Failing(Arc<AtomicBool>);

impl Failing {
    /// Turns the failure on or off.
    pub fn set(&self, failing: bool) {
        self.0.store(failing, Ordering::SeqCst);
    }
}

impl MemoryStore {
    /// The store's switch.
    #[must_use]
    pub fn failing(&self) -> Failing {
        self.failing.clone()
    }
}

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Stored, StoreError> {
        let mut reading = Reading::default();
        for ((table, key), value) in self.rows.lock().iter() {
            reading.take(*table, key, value)?;
        }
        reading.done()
    }

    fn apply(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        if self.failing.0.load(Ordering::SeqCst) {
            let full = std::io::ErrorKind::StorageFull;
            return Err(StoreError::System(full.into()));
        }
        let mut rows = self.rows.lock();
        for row in writes.iter().map(row_of) {
            let key = (row.table, row.key.into_owned());
            match row.value {
                Some(value) => rows.insert(key, value),
                None => rows.remove(&key),
            };
        }
        Ok(())
    }
}
