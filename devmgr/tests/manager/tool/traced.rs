//! `causeway trace` and `causeway run --trace`: one file for all processes of a run.

use std::path::Path;

use causeway_trace::format::Kind;
use causeway_trace::read::{Contents, contents};
use causeway_trace::timeline::TrackKind;
use serde_json::Value;

use super::private::machine;
use super::{Tool, said};

fn read(tool: &Tool, name: &str) -> Contents {
    contents(&std::fs::read(tool.home().join(name)).unwrap())
}

fn processes(trace: &Contents) -> usize {
    let tracks = trace.tracks.values();
    tracks
        .filter(|track| matches!(track.kind, TrackKind::Process { .. }))
        .count()
}

/// The files in the tool's folder that a trace may have left.
fn left(folder: &Path, name: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|of| of.contains(name) && of != name).collect()
}

#[test]
fn a_trace_has_the_calls_of_all_processes() {
    let tool = machine(1);
    let mut command = tool.command("trace --out both%p.pftrace -- sh -c");
    let traced = said({
        command.arg("clinfo --raw -l; clinfo --raw -l");
        command
    });
    assert_eq!(traced.code, Some(0), "{traced:?}");
    assert!(
        traced.err.contains("the trace of 2 processes is in"),
        "{traced:?}"
    );
    let trace = read(&tool, "both%p.pftrace");
    assert_eq!(processes(&trace), 2);
    let calls = trace
        .events
        .iter()
        .filter(|event| event.category == "call" && event.kind == Kind::Begin);
    assert!(calls.filter(|event| event.name == "clGetDeviceIDs").count() >= 2);
    let complete = trace
        .events
        .iter()
        .filter(|event| event.name == "The trace is complete");
    assert_eq!(complete.count(), 2);
    assert!(left(tool.home(), "both%p.pftrace").is_empty());
}

#[test]
fn the_name_of_the_file_or_an_option_chooses_chromes_format() {
    let tool = machine(1);
    for (arguments, name) in [
        ("run --trace run.json -- clinfo --raw -l", "run.json"),
        ("trace --json -- clinfo --raw -l", "clinfo.json"),
    ] {
        let traced = tool.run(arguments);
        assert_eq!(traced.code, Some(0), "{traced:?}");
        let text = std::fs::read_to_string(tool.home().join(name)).unwrap();
        let trace: Value = serde_json::from_str(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let calls = events.iter().filter(|event| event["cat"] == "call");
        assert!(calls.count() > 3, "{text}");
        assert!(left(tool.home(), name).is_empty());
    }
    // The same program, in Perfetto's format.
    assert_eq!(tool.run("trace -- clinfo --raw -l").code, Some(0));
    assert_eq!(processes(&read(&tool, "clinfo.pftrace")), 1);
}

#[test]
fn a_run_without_a_trace_says_why() {
    let tool = machine(1);
    let traced = tool.run("trace --out none -- false");
    assert_eq!(traced.code, Some(1), "{traced:?}");
    assert!(traced.err.contains("there is no trace"), "{traced:?}");
    assert!(left(tool.home(), "none").is_empty() && !tool.home().join("none").exists());
    let traced = tool.run("trace --out absent/trace -- clinfo --raw -l");
    assert_eq!(traced.code, Some(125), "{traced:?}");
    assert!(
        traced.err.contains("absent/trace cannot be written"),
        "{traced:?}"
    );
}
