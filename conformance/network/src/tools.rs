//! Running `ip`, `tc` and `nft` inside of a namespace.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::error::{Error, Result};
use crate::namespace::Namespace;

/// The tools that are called, and their Debian packages.
const PACKAGES: [(&str, &str, &str); 3] = [
    ("ip", "-V", "iproute2"),
    ("tc", "-V", "iproute2"),
    ("nft", "--version", "nftables"),
];

/// Checks that the tools exist. [`Error::Unavailable`] names the first one that is missing.
pub(crate) fn check() -> Result<()> {
    for (tool, question, package) in PACKAGES {
        let asked = Command::new(tool).arg(question).output();
        if !asked.is_ok_and(|output| output.status.success()) {
            return Err(Error::Unavailable(format!(
                "{tool} is missing (Debian package {package})"
            )));
        }
    }
    Ok(())
}

/// Runs one command per line, in one process of `ip`.
pub(crate) fn ip(namespace: &Namespace, lines: &str) -> Result<()> {
    feed(namespace, "ip", &["-batch", "-"], lines)
}

/// Runs one command per line, in one process of `tc`.
pub(crate) fn tc(namespace: &Namespace, lines: &str) -> Result<()> {
    feed(namespace, "tc", &["-batch", "-"], lines)
}

/// Runs a whole script as one transaction.
pub(crate) fn nft(namespace: &Namespace, script: &str) -> Result<()> {
    feed(namespace, "nft", &["-f", "-"], script)
}

/// Returns all counters as JSON.
pub(crate) fn nft_counters(namespace: &Namespace) -> Result<String> {
    let question = ["-j", "list", "counters"];
    let mut command = namespace.command("nft");
    let output = command.args(question).output().map_err(Error::io("nft"))?;
    check_answer("nft", "list counters", &output)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn feed(namespace: &Namespace, tool: &str, arguments: &[&str], text: &str) -> Result<()> {
    let mut child = namespace
        .command(tool)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::io(tool))?;
    // The tools' early output on stderr fits into a pipe, so neither side blocks the other.
    let fed = match child.stdin.take() {
        Some(mut input) => input.write_all(text.as_bytes()),
        None => Ok(()),
    };
    let output = child.wait_with_output().map_err(Error::io(tool))?;
    check_answer(tool, text, &output)?;
    fed.map_err(Error::io(tool))
}

fn check_answer(tool: &str, text: &str, output: &Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let first = text.lines().next().unwrap_or_default();
    Err(Error::Tool {
        command: format!("{tool}: {first} …"),
        said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
