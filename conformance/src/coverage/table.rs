//! The table, and finding what it lacks.

use std::collections::{BTreeMap, BTreeSet};

use super::refused::{self, Refused};
use super::specification::ERRORS;
use super::{Seen, unreachable};

/// A function of the API.
struct Function {
    name: &'static str,
    /// The version or extension that it belongs to.
    origin: &'static str,
}

impl Function {
    /// Returns the version or extension as one word.
    fn extension(&self) -> &'static str {
        self.origin.trim_matches('"')
    }
}

macro_rules! functions {
    ($($slot:literal $origin:ident($($of:tt)*) $node:ident null($($null:tt)*) fails($how:ident)
       fn $name:ident($($parameter:ident: $ty:ty),*) -> $ret:ty;)*) => {
        &[$(Function { name: stringify!($name), origin: stringify!($($of)*) }),*]
    };
}

const CORE: &[Function] = cl_headers::for_each_entry_point!(functions);

/// Extension functions that programs look up by name. Functions that are a core function
/// under another name are omitted.
const BY_NAME: &[(&str, &[&str])] = &[
    (
        "cl_wwu_server",
        &[
            "clConnectServerWWU",
            "clDisconnectServerWWU",
            "clGetServerInfoWWU",
            "clGetLinkInfoWWU",
        ],
    ),
    (
        "cl_khr_command_buffer",
        &[
            "clCreateCommandBufferKHR",
            "clRetainCommandBufferKHR",
            "clReleaseCommandBufferKHR",
            "clFinalizeCommandBufferKHR",
            "clEnqueueCommandBufferKHR",
            "clGetCommandBufferInfoKHR",
            "clCommandBarrierWithWaitListKHR",
            "clCommandCopyBufferKHR",
            "clCommandCopyBufferRectKHR",
            "clCommandCopyBufferToImageKHR",
            "clCommandCopyImageKHR",
            "clCommandCopyImageToBufferKHR",
            "clCommandFillBufferKHR",
            "clCommandFillImageKHR",
            "clCommandNDRangeKernelKHR",
            "clCommandSVMMemcpyKHR",
            "clCommandSVMMemFillKHR",
        ],
    ),
];

/// All functions, those of the dispatch table first.
fn all() -> impl Iterator<Item = Function> {
    let core = CORE.iter().map(|function| Function { ..*function });
    let by_name = BY_NAME.iter().flat_map(|(extension, names)| {
        names.iter().map(|name| Function {
            name,
            origin: extension,
        })
    });
    core.chain(by_name)
}

/// The results of one function: the cases by code.
type Answers<'a> = BTreeMap<&'a str, &'a BTreeSet<String>>;

/// Prints a row for each function. Returns whether no function lacks a code.
pub(super) fn print(seen: &Seen) -> bool {
    let mut missing = Vec::new();
    println!("\n| function | of | state | codes seen (cases) |\n|---|---|---|---|");
    for function in all() {
        let answers: Answers<'_> = seen
            .iter()
            .filter(|((name, _), _)| name == function.name)
            .map(|((_, code), cases)| (code.as_str(), cases))
            .collect();
        let lacks = lacks(&function, &answers);
        let codes: Vec<String> = answers
            .iter()
            .map(|(code, cases)| format!("{} ({})", code.trim_start_matches("CL_"), cases.len()))
            .collect();
        let state = match refusal(&function) {
            Some(refused) => format!("refused: {}", refused.why),
            None if lacks.is_empty() => "tested".to_owned(),
            None => format!("**lacks {}**", lacks.join(", ")),
        };
        println!(
            "| {} | {} | {state} | {} |",
            function.name,
            function.extension(),
            codes.join(", ")
        );
        missing.extend(lacks.into_iter().map(|what| (function.name, what)));
    }
    println!("\ncodes that no case sees, and why:");
    for (function, code, why) in unreachable::REASONS {
        println!("- {function}: {code}: {why}");
    }
    println!(
        "\n{} functions, {} missing answers",
        all().count(),
        missing.len()
    );
    for (function, what) in &missing {
        println!("missing: {function}: {what}");
    }
    missing.is_empty()
}

fn refusal(function: &Function) -> Option<&'static Refused> {
    let origin = function.extension();
    let mut all = refused::ALL.iter();
    all.find(|refused| refused.what == function.name || refused.what == origin)
}

/// Returns the codes that no case has seen and no reason excuses. For a refused function, any result but
/// the refusal is missing.
fn lacks(function: &Function, answers: &Answers<'_>) -> Vec<String> {
    let has = |code: &str| answers.contains_key(format!("CL_{code}").as_str());
    if let Some(refused) = refusal(function) {
        let other = answers.contains_key("CL_SUCCESS");
        let refusing = has(refused.code);
        return match (other, refusing) {
            (true, _) => vec!["a refusal: it worked".to_owned()],
            (false, false) => vec![refused.code.to_owned()],
            (false, true) => Vec::new(),
        };
    }
    let expected = ERRORS.iter().find(|(name, _)| *name == function.name);
    let codes = expected.map_or(&[][..], |(_, codes)| codes);
    let mut lacks: Vec<String> = codes
        .iter()
        .filter(|code| {
            !has(code) && unreachable::reason(function.name, function.extension(), code).is_none()
        })
        .map(ToString::to_string)
        .collect();
    if !has("SUCCESS")
        && unreachable::reason(function.name, function.extension(), "SUCCESS").is_none()
    {
        lacks.insert(0, "SUCCESS".to_owned());
    }
    lacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_specification_is_a_function() {
        for (name, codes) in ERRORS {
            assert!(CORE.iter().any(|function| function.name == *name), "{name}");
            assert!(!codes.is_empty(), "{name}");
        }
        for refused in refused::ALL {
            let is_it = |function: &Function| {
                function.name == refused.what || function.extension() == refused.what
            };
            assert!(CORE.iter().any(is_it), "{}", refused.what);
        }
    }

    #[test]
    fn what_is_neither_tested_nor_refused_is_missing() {
        let cases = BTreeSet::from(["a/b".to_owned()]);
        let flush = CORE
            .iter()
            .find(|function| function.name == "clFlush")
            .unwrap();
        let both = Answers::from([("CL_SUCCESS", &cases), ("CL_INVALID_COMMAND_QUEUE", &cases)]);
        assert!(lacks(flush, &both).is_empty());
        let one = Answers::from([("CL_SUCCESS", &cases)]);
        assert_eq!(lacks(flush, &one), ["INVALID_COMMAND_QUEUE"]);
        assert_eq!(lacks(flush, &Answers::new()).len(), 2);
        let refused = CORE
            .iter()
            .find(|function| function.name == "clEnqueueNativeKernel")
            .unwrap();
        assert!(lacks(refused, &Answers::from([("CL_INVALID_OPERATION", &cases)])).is_empty());
        assert_eq!(lacks(refused, &one), ["a refusal: it worked"]);
    }
}
