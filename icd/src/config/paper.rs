//! The request file of the dOpenCL paper: XML.
//!
//! ```xml
//! <devmngr>manager.example</devmngr>   <!-- or m1,m2,m3 -->
//! <devices>
//!   <device count="2">
//!     <attribute name="TYPE">CPU</attribute>
//!     <attribute name="VENDOR">Intel</attribute>
//!     <attribute name="MAX_COMPUTE_UNITS">2</attribute>
//!   </device>
//!   <device><attribute name="TYPE">GPU</attribute></device>
//! </devices>
//! ```
//! These elements may be inside of another element of any name. A number is a minimum. A text must occur in
//! the device's value, as `VENDOR` above. `<attribute name="…" is="=">` sets another comparison.
//!
//! This module opens no file. Invariant: a file is read as a whole or refused.
#![forbid(unsafe_code)]

use causeway_proto::request::property::{self, Kind};
use causeway_proto::request::{Comparison, Condition, Wanted};
use roxmltree::{Document, Node};

/// The contents of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Paper {
    /// The managers' addresses as written, if there are any.
    pub(super) manager: Option<String>,
    pub(super) wanted: Vec<Wanted>,
}

/// The line, from 1, and the error there.
pub(super) type Wrong = (usize, String);

/// Parses a file.
///
/// # Errors
/// The first error in the file.
pub(super) fn read(text: &str) -> Result<Paper, Wrong> {
    let text = text.trim_start_matches('\u{feff}');
    // The paper's own file has no root element, so one is added. No line break is added, so that line
    // numbers stay right.
    let body = match text.trim_start().strip_prefix("<?xml") {
        Some(rest) => rest.split_once("?>").map_or(rest, |(_, body)| body),
        None => text,
    };
    let skipped = text[..text.len() - body.len()].matches('\n').count();
    let whole = format!("<causeway>{body}</causeway>");
    let document = Document::parse(&whole)
        .map_err(|error| (skipped + error.pos().row as usize, error.to_string()))?;
    let line = |node: Node<'_, '_>| skipped + document.text_pos_at(node.range().start).row as usize;
    let mut paper = Paper {
        manager: None,
        wanted: Vec::new(),
    };
    for node in document.root_element().descendants().skip(1) {
        if !node.is_element() {
            continue;
        }
        match node.tag_name().name() {
            "devmngr" | "devmgr" => paper.manager = Some(inner(node)),
            "device" => paper.wanted.push(wanted(node, &line)?),
            // An attribute of a device is read with the device. Other known elements only group.
            "attribute" if parent_is(node, "device") => {}
            "devices" => {}
            _ if node.children().any(|child| child.is_element()) => {}
            other => return Err((line(node), format!("unknown element \"{other}\""))),
        }
    }
    Ok(paper)
}

fn wanted(device: Node<'_, '_>, line: &impl Fn(Node<'_, '_>) -> usize) -> Result<Wanted, Wrong> {
    known(device, &["count"], line)?;
    let count = device.attribute("count").unwrap_or("1").trim();
    let digits = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    // A count that overflows the type is too large for any request, so it is refused here as well.
    let count = match count.parse() {
        Ok(count) if digits => count,
        _ => {
            return Err((
                line(device),
                format!("invalid device count `{count}`; expected a number"),
            ));
        }
    };
    let mut conditions = Vec::new();
    for child in device.children().filter(Node::is_element) {
        if child.tag_name().name() != "attribute" {
            let message = format!("unknown element \"{}\"", child.tag_name().name());
            return Err((line(child), message));
        }
        known(child, &["name", "is"], line)?;
        conditions.push(condition(child).map_err(|message| (line(child), message))?);
    }
    Wanted::new(count, conditions).map_err(|error| (line(device), error.to_string()))
}

fn condition(attribute: Node<'_, '_>) -> Result<Condition, String> {
    let name = attribute.attribute("name").map(str::trim);
    let name = name.ok_or("<attribute> has no `name`")?;
    let comparison = match attribute.attribute("is").map(str::trim) {
        None => property::by_name(name).map_or(Comparison::Equal, |found| usual(found.kind)),
        Some(sign) => [
            Comparison::Equal,
            Comparison::NotEqual,
            Comparison::AtLeast,
            Comparison::AtMost,
            Comparison::Contains,
        ]
        .into_iter()
        .find(|comparison| comparison.sign() == sign)
        .ok_or_else(|| {
            format!("invalid comparison `{sign}`; expected one of = != >= <= contains")
        })?,
    };
    Condition::from_text(name, comparison, &inner(attribute)).map_err(|error| error.to_string())
}

/// The comparison for a value without an explicit one.
fn usual(kind: Kind) -> Comparison {
    match kind {
        Kind::Number | Kind::Bytes | Kind::Version | Kind::VersionText => Comparison::AtLeast,
        Kind::Bool | Kind::Type | Kind::Digits => Comparison::Equal,
        Kind::Bits | Kind::Text | Kind::Words | Kind::NamedVersions | Kind::Numbers => {
            Comparison::Contains
        }
    }
}

fn known(
    node: Node<'_, '_>,
    names: &[&str],
    line: &impl Fn(Node<'_, '_>) -> usize,
) -> Result<(), Wrong> {
    match node.attributes().find(|of| !names.contains(&of.name())) {
        Some(other) => Err((
            line(node),
            format!("unknown attribute \"{}\"", other.name()),
        )),
        None => Ok(()),
    }
}

fn inner(node: Node<'_, '_>) -> String {
    node.text().unwrap_or_default().trim().to_owned()
}

fn parent_is(node: Node<'_, '_>, name: &str) -> bool {
    node.parent().is_some_and(|of| of.tag_name().name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAPER: &str = include_str!("../../../etc/request.xml");

    #[test]
    fn the_sample_is_understood() {
        let paper = read(PAPER).unwrap();
        assert_eq!(paper.manager.as_deref(), Some("manager.example"));
        let line: causeway_proto::request::DeviceRequest =
            "2, TYPE=CPU, VENDOR contains Intel, MAX_COMPUTE_UNITS>=2; 1, TYPE=GPU"
                .parse()
                .unwrap();
        assert_eq!(paper.wanted, line.wanted());
        // The same elements inside of one root element give the same result.
        let body = PAPER.split_once("?>").unwrap().1;
        assert_eq!(read(&format!("<request>{body}</request>")), Ok(paper));
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        for (text, line, said) in [
            (
                "<devices>\n<device count='x'/></devices>",
                2,
                "device count `x`",
            ),
            (
                "<devices><device>\n<attribute name='TIPE'>GPU</attribute></device></devices>",
                2,
                "TIPE",
            ),
            ("<devices>\n<device cuont='2'/></devices>", 2, "cuont"),
            ("\n<device><attribut/></device>", 2, "attribut"),
            ("\n\n<devises/>", 3, "devises"),
            ("<devices>\n<device>", 2, ""),
        ] {
            let (at, message) = read(text).unwrap_err();
            assert!(
                at == line && message.contains(said),
                "{text}: {at}: {message}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(<\\?xml|\\?>|</?devices?>|<attribute name=\"TYPE\">|</attribute>|GPU|count|[<>/&\"\n a-z]){0,30}") {
            let _ = read(&text);
        }
    }
}
