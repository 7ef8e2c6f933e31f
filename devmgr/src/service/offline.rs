//! What is done to a store that no manager uses: export, import, preparation after a restore, and a new token
//! for the first administrator.
//!
//! An export has a line of JSON for each row, with key and value in hexadecimal digits, because values may be
//! binary. With etcd, the process takes the lead as a manager does, so no manager leads meanwhile. Invariant: an
//! import fills the store with all rows or with none.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway_proto::metadata::Term;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::authentication::wall_now;
use super::error::CannotStart;
use super::first_admin::renew_admin;
use crate::etcd::{Candidate, Etcd, Instruction, Lead, Order, Standing};
use crate::lease::{Change, Epoch};
use crate::settings::Settings;
use crate::store::rows::{RawRows, Reading, Row, SCHEMA, Table, row_of};
use crate::store::{RedbStore, StoreError, Stored, Write};

/// How much `--after-restore` adds: more than can have been used since any backup. A leader in every
/// millisecond uses up the terms in 49 days, and a million leases a second use up the epochs in 12.
const TERMS_ADDED: u64 = 1 << 32;
const EPOCHS_ADDED: u64 = 1 << 40;
/// How long the lead is waited for. A manager that was killed a moment ago still holds it for a while.
const LEADS_WITHIN: Duration = Duration::from_secs(10);

/// Something to do to a store that no manager uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Writes all rows into a new file.
    Export(PathBuf),
    /// Fills an empty store from such a file.
    Import(PathBuf),
    /// Raises term and epochs beyond all that can have been used since the backup.
    AfterRestore,
    /// Makes another token for the first administrator.
    NewAdminToken,
}

/// Carries out a task, and returns what to say about it.
///
/// # Errors
/// [`CannotStart`]; nothing was changed then, unless the store says otherwise.
pub fn offline(settings: &Settings, task: &Task) -> Result<String, CannotStart> {
    if let Some(access) = &settings.etcd {
        let runtime = tokio::runtime::Runtime::new()?;
        let mut access = access.clone();
        if let Task::Import(_) = task {
            // The cluster comes with the file.
            access.cluster = None;
        }
        return runtime.block_on(over_etcd(settings, Etcd::new(access), task.clone()));
    }
    if !matches!(task, Task::Import(_)) {
        // Opening would create a missing store.
        std::fs::metadata(&settings.store).map_err(|error| {
            std::io::Error::other(format!("{}: {error}", settings.store.display()))
        })?;
    }
    let opened = RedbStore::open(&settings.store);
    carry_out(
        settings,
        &mut opened.map_err(CannotStart::store(&settings.store))?,
        task,
    )
}

async fn over_etcd(settings: &Settings, etcd: Etcd, task: Task) -> Result<String, CannotStart> {
    let (standing, stands) = watch::channel(Standing::default());
    let (candidate, mut orders, instructions) =
        Candidate::new(etcd, String::new(), wall_now(), standing);
    let candidate = tokio::spawn(candidate.run(wall_now));
    let led = tokio::time::timeout(LEADS_WITHIN, orders.recv()).await;
    let Ok(Some(Order::Lead(lead))) = led else {
        let standing = stands.borrow().clone();
        let unknown = || "etcd does not answer".to_owned();
        let problem = standing.problem.map(|problem| problem.to_string());
        let leader = standing
            .leader
            .map(|leader| format!("the manager at {leader} leads"));
        let why = leader.or(problem).unwrap_or_else(unknown);
        return Err(CannotStart::InUse(why.into()));
    };
    let Lead { mut store, .. } = *lead;
    let settings = settings.clone();
    // The store blocks its thread.
    let done = tokio::task::spawn_blocking(move || carry_out(&settings, &mut store, &task));
    let done = done.await.unwrap_or(Err(CannotStart::Failed));
    instructions.send(Instruction::Stop);
    // A panic was already reported.
    let _ = candidate.await;
    done
}

fn carry_out(
    settings: &Settings,
    store: &mut impl RawRows,
    task: &Task,
) -> Result<String, CannotStart> {
    let failed = CannotStart::store(&settings.store);
    match task {
        Task::Export(path) => {
            let rows = store.rows().map_err(failed)?;
            export(path, &rows)?;
            Ok(format!(
                "{} rows are in {}; the file contains the key that signs leases",
                rows.len(),
                path.display()
            ))
        }
        Task::Import(path) => {
            let there = store.load().map_err(&failed)?;
            let rows = import(path, &there)?;
            let count = rows.len();
            store.put_rows(rows).map_err(failed)?;
            Ok(format!("{count} rows were taken from {}", path.display()))
        }
        Task::AfterRestore => {
            let Stored { term, rows, .. } = store.load().map_err(&failed)?;
            let term = Term(term.0.saturating_add(TERMS_ADDED));
            let epochs = Epoch(rows.epochs.0.saturating_add(EPOCHS_ADDED));
            let writes = [Write::Term(term), Write::Lease(Change::Epochs(epochs))];
            store.apply(&writes).map_err(failed)?;
            Ok(format!(
                "the store is ready: its term is {term}, beyond all terms before the restore"
            ))
        }
        Task::NewAdminToken => {
            renew_admin(&settings.store, &settings.admin_token, store)?;
            let file = settings.admin_token.display();
            Ok(format!("the administrator's token is in {file}"))
        }
    }
}

/// The first line of an export.
#[derive(Serialize, Deserialize)]
struct Head {
    causeway_manager_store: u32,
}

/// Another line.
#[derive(Serialize, Deserialize)]
struct ExportLine {
    table: String,
    key: String,
    value: String,
}

fn export(path: &Path, rows: &[Row<'_>]) -> Result<(), CannotStart> {
    let failed = |error: std::io::Error| CannotStart::File {
        path: path.to_owned(),
        problem: error.to_string(),
    };
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    let mut out = BufWriter::new(file);
    let head = Head {
        causeway_manager_store: SCHEMA,
    };
    let mut lines = vec![serde_json::to_string(&head)];
    lines.extend(rows.iter().map(|row| {
        serde_json::to_string(&ExportLine {
            table: row.table.name().to_owned(),
            key: hex(&row.key),
            value: hex(row.value.as_deref().unwrap_or_default()),
        })
    }));
    for line in lines {
        let line = line.map_err(std::io::Error::from).map_err(failed)?;
        writeln!(out, "{line}").map_err(failed)?;
    }
    let file = out.into_inner().map_err(|error| failed(error.into()))?;
    file.sync_all().map_err(failed)
}

/// The rows of an export, for a store that has nothing but `there`.
fn import(path: &Path, there: &Stored) -> Result<Vec<Row<'static>>, CannotStart> {
    let is_empty = Stored {
        term: Term(0),
        schema: None,
        ..there.clone()
    } == Stored::default();
    if !is_empty {
        return Err(CannotStart::NotEmpty);
    }
    let wrong = |problem: String| CannotStart::File {
        path: path.to_owned(),
        problem,
    };
    let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut lines = BufReader::new(file).lines();
    let head = lines.next().and_then(Result::ok);
    let head = head.and_then(|line| serde_json::from_str::<Head>(&line).ok());
    let known = |head: &Head| (1..=SCHEMA).contains(&head.causeway_manager_store);
    if !head.as_ref().is_some_and(known) {
        return Err(wrong(
            "the file is no export of a causeway-devmgr of this or an earlier version".to_owned(),
        ));
    }
    let (mut rows, mut reading) = (Vec::new(), Reading::default());
    for (number, line) in (2..).zip(lines) {
        let row = line.ok().and_then(|line| row(&line));
        let row = row.ok_or_else(|| wrong(format!("line {number} is damaged")))?;
        let read = reading.take(
            row.table,
            &row.key,
            row.value.as_deref().unwrap_or_default(),
        );
        read.map_err(|error: StoreError| wrong(format!("line {number}: {error}")))?;
        rows.push(row);
    }
    let exported = reading.done().map_err(|error| wrong(error.to_string()))?;
    // The next leader must be beyond all leaders of the other store.
    let term = Term(exported.term.max(there.term).0 + 1);
    let raised = Write::Term(term);
    let ahead = [row_of(&raised), crate::store::rows::schema_row()];
    rows.extend(ahead.map(|row| Row {
        table: row.table,
        key: row.key.into_owned().into(),
        value: row.value,
    }));
    Ok(rows)
}

fn row(line: &str) -> Option<Row<'static>> {
    let line: ExportLine = serde_json::from_str(line).ok()?;
    let table = Table::ALL
        .into_iter()
        .find(|table| table.name() == line.table)?;
    Some(Row {
        table,
        key: unhex(&line.key)?.into(),
        value: Some(unhex(&line.value)?),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    };
    pairs.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn an_export_fills_an_empty_store_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let settings = |store: &str| Settings {
            store: at(store),
            admin_token: at("token"),
            ..crate::settings::defaults()
        };
        let mut first = RedbStore::open(&at("first")).unwrap();
        let key = causeway_security::Secret::new([7; 40]);
        let epochs = Write::Lease(Change::Epochs(Epoch(9)));
        let writes = [Write::SigningKey(key), epochs, Write::Term(Term(5))];
        first.apply(&writes).unwrap();
        let before = first.load().unwrap();
        drop(first);
        let file = at("export");
        offline(&settings("first"), &Task::Export(file.clone())).unwrap();
        // No export replaces an earlier file.
        assert!(offline(&settings("first"), &Task::Export(file.clone())).is_err());
        let import = Task::Import(file);
        offline(&settings("second"), &import).unwrap();
        let after = RedbStore::open(&at("second")).unwrap().load().unwrap();
        assert_eq!(after.term, Term(6));
        let term = before.term;
        assert_eq!(Stored { term, ..after }, before);
        let refused = offline(&settings("first"), &import).unwrap_err();
        assert!(matches!(refused, CannotStart::NotEmpty), "{refused}");
    }

    #[test]
    fn a_damaged_export_is_refused_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("export");
        let head = format!("{{\"causeway_manager_store\":{SCHEMA}}}\n");
        for text in [
            String::new(),
            "{\"causeway_manager_store\":99}\n".to_owned(),
            format!("{head}{{\"table\":\"leases\",\"key\":\"0\",\"value\":\"\"}}\n"),
            format!("{head}{{\"table\":\"leases\",\"key\":\"00\",\"value\":\"ff\"}}\n"),
        ] {
            std::fs::write(&file, text).unwrap();
            let refused = import(&file, &Stored::default());
            assert!(matches!(refused, Err(CannotStart::File { .. })));
        }
    }

    #[test]
    fn after_a_restore_term_and_epochs_are_new() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            store: folder.path().join("store"),
            ..crate::settings::defaults()
        };
        drop(RedbStore::open(&settings.store).unwrap());
        offline(&settings, &Task::AfterRestore).unwrap();
        let stored = RedbStore::open(&settings.store).unwrap().load().unwrap();
        assert_eq!(stored.term, Term(TERMS_ADDED));
        assert_eq!(stored.rows.epochs, Epoch(EPOCHS_ADDED));
    }
}
