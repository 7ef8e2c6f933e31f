//! The store in one redb file.
//!
//! redb uses copy-on-write and commits with one synchronisation, so a crash at any moment leaves the last
//! committed state. After an I/O error the database must be reopened, which happens at the next use.
//! Invariant: only its owner can read the file, because it contains the key that signs leases.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::guard::guarded;
use super::rows::{RawRows, Reading, Row, Table, row_of, schema_row};
use super::{Store, StoreError, Stored, Write};

/// Size of redb's cache in bytes. Everything is read only once, and the rows that change often fit.
const CACHE: usize = 16 << 20;

/// The first bytes of every redb file.
const MAGIC: &[u8; 4] = b"redb";

/// The store in one redb file. See the module.
#[derive(Debug)]
pub struct RedbStore {
    path: PathBuf,
    database: Option<Database>,
}

impl RedbStore {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be used, another manager has opened it, or it has another
    /// schema.
    pub fn open(path: &Path) -> Result<RedbStore, StoreError> {
        causeway_security::check_own(path).map_err(|exposed| match begins_as_store(path) {
            true => StoreError::Exposed(exposed),
            // The cure for an exposed store would take another program's file from it.
            false => StoreError::NoStore,
        })?;
        let mut store = RedbStore {
            path: path.to_owned(),
            database: None,
        };
        // Read first: a store of a later version must not be changed.
        store.load()?;
        let tables = Table::ALL.map(|table| Row {
            table,
            key: b"".as_slice().into(),
            value: None,
        });
        store.commit(tables.into_iter().chain([schema_row()]))?;
        Ok(store)
    }

    fn database(&mut self) -> Result<&Database, StoreError> {
        if self.database.is_none() {
            self.database = Some(open(&self.path)?);
        }
        Ok(self.database.as_ref().expect("the database is open"))
    }

    pub(super) fn commit<'a>(
        &mut self,
        rows: impl Iterator<Item = Row<'a>>,
    ) -> Result<(), StoreError> {
        let mut by_table: BTreeMap<Table, Vec<Row<'a>>> = BTreeMap::new();
        for row in rows {
            by_table.entry(row.table).or_default().push(row);
        }
        let written = guarded(|| Ok(write(self.database()?, by_table)?));
        if written.is_err() {
            self.close();
        }
        written
    }

    fn read(&mut self) -> Result<Stored, StoreError> {
        let mut reading = Reading::default();
        self.each_row(|table, key, value| reading.take(table, key, value))?;
        reading.done()
    }

    fn each_row(
        &mut self,
        mut take: impl FnMut(Table, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let transaction = self.database()?.begin_read().map_err(redb::Error::from)?;
        for table in Table::ALL {
            let opened = match transaction.open_table(definition(table)) {
                Err(redb::TableError::TableDoesNotExist(_)) => continue,
                opened => opened.map_err(redb::Error::from)?,
            };
            for row in opened.iter().map_err(redb::Error::from)? {
                let (key, value) = row.map_err(redb::Error::from)?;
                take(table, key.value(), value.value())?;
            }
        }
        Ok(())
    }

    /// Closes the database, so that the next use reopens it.
    fn close(&mut self) {
        let database = self.database.take();
        // The error was reported already, or the next use reports it.
        let _ = guarded(|| {
            drop(database);
            Ok(())
        });
    }
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        self.close();
    }
}

impl Store for RedbStore {
    fn load(&mut self) -> Result<Stored, StoreError> {
        let read = guarded(|| self.read());
        if read.is_err() {
            self.close();
        }
        read
    }

    fn apply(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        self.commit(writes.iter().map(row_of))
    }
}

impl RawRows for RedbStore {
    fn rows(&mut self) -> Result<Vec<Row<'static>>, StoreError> {
        let mut rows = Vec::new();
        guarded(|| {
            self.each_row(|table, key, value| {
                rows.push(Row {
                    table,
                    key: key.to_vec().into(),
                    value: Some(value.to_vec()),
                });
                Ok(())
            })
        })?;
        Ok(rows)
    }

    fn put_rows(&mut self, rows: Vec<Row<'static>>) -> Result<(), StoreError> {
        self.commit(rows.into_iter())
    }
}

fn definition(table: Table) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(table.name())
}

fn write(database: &Database, rows: BTreeMap<Table, Vec<Row<'_>>>) -> Result<(), redb::Error> {
    // One synchronisation per transaction: redb detects a half-written state by its checksums. Saving the
    // free pages too would need another one. Without it, the start after a crash takes well under a
    // second with ten thousand leases.
    let transaction = database.begin_write()?;
    for (table, rows) in rows {
        let mut table = transaction.open_table(definition(table))?;
        for row in rows {
            match row.value {
                Some(value) => table.insert(&*row.key, &*value)?,
                None => table.remove(&*row.key)?,
            };
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Whether a file may be a store, also an empty one or one that this user cannot read.
fn begins_as_store(path: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read(&mut begin));
    read.map_or(true, |count| count == 0 || begin == *MAGIC)
}

fn open(path: &Path) -> Result<Database, StoreError> {
    let is_new = !path.exists();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(StoreError::System)?;
    let database = Builder::new()
        .set_cache_size(CACHE)
        .create_with_backend(FileBackend::new(file).map_err(redb::Error::from)?)
        .map_err(redb::Error::from)?;
    if is_new {
        // The new file's name must be durable too.
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let synchronised = File::open(folder).and_then(|folder| folder.sync_all());
        synchronised.map_err(StoreError::System)?;
    }
    Ok(database)
}

impl From<redb::Error> for StoreError {
    fn from(error: redb::Error) -> StoreError {
        match error {
            // A page refers to others behind the end of the file.
            redb::Error::Io(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::InvalidInput | ErrorKind::InvalidData
                ) =>
            {
                StoreError::Damaged(error.to_string())
            }
            redb::Error::Io(error) => StoreError::System(error),
            redb::Error::DatabaseAlreadyOpen => StoreError::InUse,
            other => StoreError::Damaged(other.to_string()),
        }
    }
}
