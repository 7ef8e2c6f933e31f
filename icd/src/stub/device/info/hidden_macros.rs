//! Undefines compiler macros of features that a node's device is not presented with.
//!
//! A program may test `#ifdef cl_khr_gl_sharing` or query `CL_DEVICE_EXTENSIONS`, and both must agree. So
//! lines that undefine these macros are put before each source, which then continues as line 1. A site is
//! one native platform, so a feature that is hidden for one of its devices is hidden for all.
//!
//! Invariant: a source for a site without such macros is sent unchanged.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::source::without_mark;
use cl_headers::types::{
    CL_DEVICE_EXTENSIONS, CL_DEVICE_IMAGE_SUPPORT, CL_DEVICE_OPENCL_C_FEATURES,
};

use super::extensions;
use crate::stub::device::{Answers, Device};

/// Compilers with built-in macros for extensions warn about `#undef`; only clang understands this pragma.
const BEGIN: &str = "#ifdef __clang__\n#pragma clang diagnostic push\n\
#pragma clang diagnostic ignored \"-Wbuiltin-macro-redefined\"\n#endif\n";
const END: &str = "#ifdef __clang__\n#pragma clang diagnostic pop\n#endif\n#line 1\n";

/// Returns the macros of features that a device has (`native`) but is not presented with (`shown`).
pub(in crate::stub) fn hidden(native: &Answers, shown: &Answers) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let both = |name| {
        let told = [native, shown].map(|answers| answers.get(&name)?.as_deref().ok());
        told.map(Option::unwrap_or_default)
    };
    let [had, left] = both(CL_DEVICE_EXTENSIONS);
    names.extend(gone(words(had), &words(left)));
    let [had, left] = both(CL_DEVICE_OPENCL_C_FEATURES).map(extensions::names);
    names.extend(gone(had, &left));
    let [had, left] = both(CL_DEVICE_IMAGE_SUPPORT);
    if had.iter().any(|&byte| byte != 0) && left.iter().all(|&byte| byte == 0) {
        names.insert("__IMAGE_SUPPORT__".to_owned());
    }
    names
}

fn words(list: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(list);
    let words = text.trim_end_matches('\0').split_whitespace();
    words.map(ToOwned::to_owned).collect()
}

// The names come from the node, so anything that cannot be a macro's name is dropped.
fn gone(had: Vec<String>, left: &[String]) -> impl Iterator<Item = String> {
    let is_name = |name: &String| {
        let first = name.chars().next().is_some_and(|c| !c.is_ascii_digit());
        first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    had.into_iter()
        .filter(|name| !left.contains(name))
        .filter(is_name)
}

/// Returns the text to put before a source for these devices; empty when no macro is hidden.
pub(in crate::stub) fn prefix(devices: &[Arc<Device>]) -> String {
    prefix_for(devices.iter().flat_map(|device| device.hidden_macros()))
}

fn prefix_for<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: BTreeSet<&String> = names.collect();
    if names.is_empty() {
        return String::new();
    }
    let lines = names.into_iter().map(|name| format!("#undef {name}\n"));
    [BEGIN, &lines.collect::<String>(), END].concat()
}

/// Returns the source as it is sent. An empty source stays empty, because it stands for a source sent
/// earlier.
pub(in crate::stub) fn without(prefix: &str, source: &Bytes) -> Bytes {
    if prefix.is_empty() || source.is_empty() {
        return source.clone();
    }
    [prefix.as_bytes(), without_mark(source)].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(extensions: &str, images: u8) -> Answers {
        let text = format!("{extensions}\0");
        [
            (CL_DEVICE_EXTENSIONS, Ok(Bytes::from(text))),
            (CL_DEVICE_IMAGE_SUPPORT, Ok(Bytes::from(vec![images, 0]))),
        ]
        .into_iter()
        .collect()
    }

    #[test]
    fn what_is_not_shown_is_hidden() {
        let native = answers("cl_a cl_b 9bad cl_b;#define", 1);
        let names = hidden(&native, &answers("cl_b", 0));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(names, ["__IMAGE_SUPPORT__", "cl_a"]);
        assert!(hidden(&native, &native).is_empty());
    }

    #[test]
    fn a_source_goes_on_as_line_1_and_stays_where_nothing_is_hidden() {
        let source = Bytes::from_static(b"kernel void k() {}");
        let name = "cl_a".to_owned();
        let sent = without(&prefix_for([&name, &name].into_iter()), &source);
        let sent = std::str::from_utf8(&sent).unwrap();
        assert_eq!(sent.matches("#undef cl_a\n").count(), 1);
        assert!(sent.ends_with("#line 1\nkernel void k() {}"));
        assert_eq!(without(&prefix_for([].into_iter()), &source), source);
        assert_eq!(without("x", &Bytes::new()), "");
        assert_eq!(without("x", &Bytes::from_static(b"\xEF\xBB\xBFk")), "xk");
    }
}
