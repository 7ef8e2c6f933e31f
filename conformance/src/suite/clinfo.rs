//! Every line of `clinfo`, and the short table of correct differences.
//!
//! Each line becomes a key (its label under the labels above it) and a value. A line that differs must be
//! in [`RIGHT`], and must meet the demand there.

use std::collections::{BTreeMap, BTreeSet};

use crate::SetupError;
use crate::case::{Case, Verdict};
use crate::mode::Mode;
use crate::programs::Programs;
use crate::sides::{Launch, Side, Sides};
use crate::suite::on_path;

/// A demand on a line that may differ through Causeway.
#[derive(Clone, Copy)]
enum Demand {
    /// Exactly this text.
    Is(&'static str),
    /// A text that begins so.
    Starts(&'static str),
    /// A text that contains this word.
    Has(&'static str),
    /// No word that the native line lacks, except for the extensions that Causeway provides on every device.
    FewerWords,
    /// Any text, or no such line.
    Anything,
}

use Demand::{Anything, FewerWords, Has, Is, Starts};

/// Extensions that Causeway itself provides on every device.
const PROVIDED: &[&str] = &[
    "cl_khr_command_buffer",
    "cl_khr_command_buffer_mutable_dispatch",
    "cl_khr_semaphore",
];

type Difference = (&'static str, &'static str, Demand, &'static str);

/// A query of `cl_intel_unified_shared_memory`.
const fn unified_memory(name: &'static str) -> Difference {
    let reason = "the extension is not forwarded: client and node have different addresses";
    (name, "USM", Anything, reason)
}

/// Correct differences: the name in `clinfo --raw`, a part of the label in plain `clinfo`, the demand,
/// and the reason. A name that ends in `*` stands for all names with this prefix. The demand is checked
/// on the raw line only, because the plain line has the same content.
const RIGHT: &[Difference] = &[
    (
        "CL_PLATFORM_NAME",
        "Platform Name",
        Is("Causeway"),
        "the platform is ours",
    ),
    (
        "CL_PLATFORM_VENDOR",
        "Platform Vendor",
        Anything,
        "the platform is ours",
    ),
    (
        "CL_PLATFORM_VERSION",
        "Platform Version",
        Starts("OpenCL 3.0"),
        "the version of our runtime",
    ),
    (
        "CL_PLATFORM_NUMERIC_VERSION",
        "Platform Numeric Version",
        Anything,
        "the same as a number",
    ),
    (
        "CL_PLATFORM_EXTENSIONS*",
        "Platform Extensions",
        Has("cl_khr_icd"),
        "those of our platform",
    ),
    (
        "CL_PLATFORM_ICD_SUFFIX_KHR",
        "function suffix",
        Anything,
        "each driver has its own suffix",
    ),
    (
        "CL_PLATFORM_HOST_TIMER_RESOLUTION",
        "Host timer resolution",
        Is("1"),
        "all devices' times are on the host's clock, whatever their drivers have",
    ),
    (
        "CL_DEVICE_EXTENSIONS*",
        "Device Extensions",
        FewerWords,
        "only what can be forwarded, and what we do ourselves",
    ),
    (
        "CL_DEVICE_OPENCL_C_FEATURES",
        "OpenCL C features",
        FewerWords,
        "none of images on a device that tells no format of them",
    ),
    (
        "CL_DEVICE_SVM_CAPABILITIES",
        "Shared Virtual Memory",
        Anything,
        "of what the device has, coarse-grain buffers only: finer sharing is of one host's memory",
    ),
    (
        "CL_DEVICE_HOST_UNIFIED_MEMORY",
        "Unified memory",
        Is("CL_FALSE"),
        "the program's memory is on another machine",
    ),
    (
        "CL_DEVICE_EXECUTION_CAPABILITIES",
        "native kernels",
        Is("CL_EXEC_KERNEL"),
        "native kernels are functions of the program",
    ),
    (
        "CL_DEVICE_COMMAND_BUFFER*",
        "Command buffer",
        Anything,
        "the extension is ours, whatever the node's is",
    ),
    (
        "CL_DEVICE_MUTABLE_DISPATCH*",
        "mutable dispatch",
        Anything,
        "the extension is ours, whatever the node's is",
    ),
    (
        "CL_DEVICE_SPIR_VERSIONS",
        "SPIR versions",
        Anything,
        "the extension is not forwarded",
    ),
    unified_memory("CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL"),
    unified_memory("CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL"),
    unified_memory("CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL"),
    unified_memory("CL_DEVICE_CROSS_DEVICE_SHARED_MEM_CAPABILITIES_INTEL"),
    unified_memory("CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL"),
    (
        "CL_DEVICE_PCI*",
        "PCI",
        Anything,
        "in domains of the node's own",
    ),
    (
        "CL_DEVICE_PCI*",
        "Device Topology (NV)",
        Anything,
        "in domains of the node's own",
    ),
    (
        "CL_DEVICE_TOPOLOGY*",
        "topology",
        Anything,
        "a bus on another machine",
    ),
    (
        "CL_DEVICE_LUID*",
        "LUID",
        Anything,
        "names a device to the local system",
    ),
    (
        "CL_DEVICE_EXTERNAL*",
        "External",
        Anything,
        "handles of another machine's kernel",
    ),
    (
        "CL_PLATFORM_EXTERNAL*",
        "External",
        Anything,
        "handles of another machine's kernel",
    ),
    (
        "CL_DEVICE_SEMAPHORE*",
        "Semaphore",
        Anything,
        "the extension is our own, without handles",
    ),
    (
        "CL_PLATFORM_SEMAPHORE*",
        "Semaphore",
        Anything,
        "the extension is our own, without handles",
    ),
    (
        "CL_DEVICE_INTEGRATED_MEMORY_NV",
        "Integrated memory",
        Anything,
        "not this host's memory",
    ),
];

/// Labels of plain `clinfo` whose whole block belongs to the first line, or that name our platform.
const RIGHT_BLOCKS: &[&str] = &["NULL platform behavior"];

/// Lines that differ between equal devices of one native platform, because PoCL adds the
/// device's number to its vendor's id.
const NUMBERED: [&str; 2] = ["CL_DEVICE_VENDOR_ID\n", "Device Vendor ID\n"];

pub(super) fn cases(_: &Programs, _: &Sides) -> Result<Vec<Case>, SetupError> {
    if !on_path("clinfo") {
        return Ok(vec![Case::skipped("clinfo", "clinfo is not installed")]);
    }
    Ok(vec![
        Case::new("clinfo/raw", |sides| {
            compare(sides, &["--raw"], raw_lines, right_raw)
        }),
        Case::new("clinfo/plain", |sides| {
            compare(sides, &[], plain_lines, right_plain)
        }),
        Case::new("clinfo/list", compare_list),
    ])
}

type Lines = BTreeMap<String, String>;
type Judge = fn(&str, &str, &str) -> bool;

fn compare(
    sides: &Sides,
    arguments: &[&str],
    lines: fn(&str) -> Lines,
    right: Judge,
) -> Result<Verdict, SetupError> {
    let launch = Launch::new("clinfo").args(arguments.iter().copied());
    let native = sides.run(Side::Native, &launch)?;
    let causeway = sides.run(Side::Causeway, &launch)?;
    if native.exit != causeway.exit {
        return Ok(Verdict::Failed(format!(
            "native: {}, causeway: {}\n{}",
            native.exit,
            causeway.exit,
            causeway.tail()
        )));
    }
    let (mut wrong, covered) = differences(&lines(&native.stdout), &lines(&causeway.stdout), right);
    if sides.mode != Mode::Plain {
        wrong.retain(|told| !NUMBERED.iter().any(|part| told.contains(part)));
    }
    Ok(if !wrong.is_empty() {
        Verdict::Failed(wrong.join("\n"))
    } else if !covered.is_empty() {
        let count = covered.len();
        let list = covered.join("\n");
        Verdict::Noted(format!(
            "{count} lines differ as the table of the suite says\n{list}"
        ))
    } else {
        Verdict::Passed
    })
}

/// Returns the differences that the table does not cover, and those that it covers.
fn differences(native: &Lines, causeway: &Lines, right: Judge) -> (Vec<String>, Vec<String>) {
    const NO_LINE: &str = "(no such line)";
    let (mut wrong, mut covered) = (Vec::new(), Vec::new());
    let keys: BTreeSet<&String> = native.keys().chain(causeway.keys()).collect();
    for key in keys {
        let theirs = native.get(key).map(String::as_str);
        let ours = causeway.get(key).map(String::as_str);
        if theirs == ours {
            continue;
        }
        let told = format!(
            "{key}\n  native:   {}\n  causeway: {}",
            theirs.unwrap_or(NO_LINE),
            ours.unwrap_or(NO_LINE)
        );
        let is_right = right(key, theirs.unwrap_or_default(), ours.unwrap_or_default());
        if is_right { &mut covered } else { &mut wrong }.push(told);
    }
    (wrong, covered)
}

/// Parses `[POCL/0]  NAME  value`. The driver's suffix is removed from the tag.
fn raw_lines(text: &str) -> Lines {
    let mut lines = Lines::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (tag, rest) = match line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((tag, rest)) => (tag.rsplit('/').next().unwrap_or_default(), rest),
            None => ("platform", line),
        };
        let rest = rest.trim();
        let (name, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        insert(&mut lines, format!("{tag} {name}"), value.trim());
    }
    lines
}

/// Parses a label under the labels that are indented less. A line without a label continues the value above.
fn plain_lines(text: &str) -> Lines {
    let mut lines = Lines::new();
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut last = String::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let indent = line.len() - line.trim_start().len();
        if indent > 20 {
            if let Some(value) = lines.get_mut(&last) {
                value.push('\n');
                value.push_str(&squeeze(line));
            }
            continue;
        }
        let rest = line.trim();
        let (label, value) = rest.split_once("  ").unwrap_or((rest, ""));
        above.retain(|(other, _)| *other < indent);
        let path: Vec<&str> = above.iter().map(|(_, label)| label.as_str()).collect();
        let key = if path.is_empty() {
            label.to_owned()
        } else {
            format!("{} / {label}", path.join(" / "))
        };
        above.push((indent, label.to_owned()));
        last = insert(&mut lines, key, &squeeze(value));
    }
    lines
}

fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Inserts a line. A second line with the same key gets a number.
fn insert(lines: &mut Lines, key: String, value: &str) -> String {
    let mut free = key.clone();
    let mut number = 1;
    while lines.contains_key(&free) {
        number += 1;
        free = format!("{key} #{number}");
    }
    lines.insert(free.clone(), value.to_owned());
    free
}

fn right_raw(key: &str, native: &str, causeway: &str) -> bool {
    let name = key.split(' ').nth(1).unwrap_or_default();
    let exact = RIGHT.iter().find(|(raw, ..)| *raw == name);
    let begun = || {
        RIGHT.iter().find(|(raw, ..)| {
            raw.strip_suffix('*')
                .is_some_and(|beginning| name.starts_with(beginning))
        })
    };
    exact
        .or_else(begun)
        .is_some_and(|(_, _, demand, _)| meets(*demand, native, causeway))
}

fn right_plain(key: &str, _: &str, _: &str) -> bool {
    RIGHT.iter().any(|(_, label, ..)| key.contains(label))
        || RIGHT_BLOCKS.iter().any(|block| key.starts_with(block))
}

fn meets(demand: Demand, native: &str, causeway: &str) -> bool {
    let word = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
    match demand {
        Is(text) => causeway == text,
        Starts(text) => causeway.starts_with(text),
        Has(text) => causeway.split_whitespace().any(|found| word(found) == text),
        FewerWords => causeway.split_whitespace().all(|ours| {
            PROVIDED.contains(&word(ours).as_str())
                || native.split_whitespace().any(|theirs| theirs == ours)
        }),
        Anything => true,
    }
}

/// Compares `clinfo -l`: the devices' names under our platform's.
fn compare_list(sides: &Sides) -> Result<Verdict, SetupError> {
    let launch = Launch::new("clinfo").args(["-l"]);
    let native = sides.run(Side::Native, &launch)?;
    let causeway = sides.run(Side::Causeway, &launch)?;
    let devices = |text: &str| -> Vec<String> {
        text.lines()
            .filter(|line| line.contains("Device #"))
            .map(ToOwned::to_owned)
            .collect()
    };
    if !causeway.succeeded() {
        return Ok(Verdict::Failed(format!(
            "{}\n{}",
            causeway.exit,
            causeway.tail()
        )));
    }
    let (theirs, ours) = (devices(&native.stdout), devices(&causeway.stdout));
    if theirs != ours {
        return Ok(Verdict::Failed(format!(
            "native: {theirs:?}\ncauseway: {ours:?}"
        )));
    }
    if sides.is_causeway() && !causeway.stdout.contains("Platform #0: Causeway") {
        return Ok(Verdict::Failed(format!(
            "no platform Causeway:\n{}",
            causeway.stdout
        )));
    }
    Ok(Verdict::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_lines_lose_the_suffix() {
        let lines = raw_lines("#PLATFORMS   1\n[POCL/0]   CL_DEVICE_NAME    a device\n");
        assert_eq!(lines["platform #PLATFORMS"], "1");
        assert_eq!(lines["0 CL_DEVICE_NAME"], "a device");
    }

    #[test]
    fn plain_lines_know_what_they_stand_under() {
        let text = "Number of devices          1\n  Queue properties (on host)     \n    \
                    Profiling                  Yes\n  Queue properties (on device)   \n    \
                    Profiling                  No\n  Names           one\n\
                    \u{20}                                      two\n";
        let lines = plain_lines(text);
        assert_eq!(
            lines["Number of devices / Queue properties (on host) / Profiling"],
            "Yes"
        );
        assert_eq!(
            lines["Number of devices / Queue properties (on device) / Profiling"],
            "No"
        );
        assert_eq!(lines["Number of devices / Names"], "one\ntwo");
    }

    #[test]
    fn a_line_outside_the_table_is_wrong() {
        let native = raw_lines("[A/0] CL_DEVICE_NAME one\n[A/0] CL_DEVICE_SVM_CAPABILITIES X\n");
        let causeway = raw_lines("[B/0] CL_DEVICE_NAME two\n[B/0] CL_DEVICE_SVM_CAPABILITIES \n");
        let (wrong, covered) = differences(&native, &causeway, right_raw);
        assert_eq!((wrong.len(), covered.len()), (1, 1));
        assert!(wrong[0].starts_with("0 CL_DEVICE_NAME"));
    }

    #[test]
    fn extensions_may_only_go() {
        assert!(meets(FewerWords, "a b c", "a c"));
        assert!(!meets(FewerWords, "a b c", "a d"));
        assert!(meets(FewerWords, "a b", "a cl_khr_command_buffer"));
    }
}
