//! Tests of the rows with small settings: rows of the fake driver are measured, judged and compared.
//!
//! Neither times nor marks are checked. The tests need the daemon, the library and the fake driver of the same
//! profile beside them: `cargo build --workspace`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(arguments).current_dir(folder);
    command.env_remove("OCL_ICD_VENDORS").output().unwrap()
}

#[test]
fn rows_are_measured_and_a_report_compares_with_itself() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "commands", "--quick", "--rounds", "2", "--json", "one.json", "--plots", ".",
    ];
    let output = bench(&arguments, folder.path());
    let text = std::fs::read(folder.path().join("one.json"))
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let report: Value = serde_json::from_slice(&text).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!(row["trouble"], Value::Null, "{row}");
        for side in ["native", "causeway"] {
            assert_eq!(row[side]["rounds"].as_array().unwrap().len(), 2, "{row}");
        }
    }
    assert!(rows.iter().any(|row| row["marks"][0]["met"].is_boolean()));
    assert!(folder.path().join("marks-commands.svg").is_file());

    let output = bench(&["compare", "one.json", "one.json", "--all"], folder.path());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("noise") && !text.contains("worse"), "{text}");
}

#[test]
fn an_unknown_row_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = bench(&["all", "--row", "no/such/row"], folder.path());
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no/such/row"), "{said}");
}
