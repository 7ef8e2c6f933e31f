//! What `causeway run` says on standard error while it waits: a line that is written anew on a terminal, a line for
//! each change elsewhere, or JSON.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use crate::json::Step;
use crate::say::{self, say};
use crate::text::{NodeNames, duration, printable, shares};

/// See the module.
pub(crate) struct Progress {
    json: bool,
    is_terminal: bool,
    since: Instant,
    /// What was said last of what is waited for, but for the time.
    line: Option<String>,
    /// Only who had to wait is told that it is over.
    has_waited: bool,
}

impl Progress {
    pub(crate) fn new(json: bool) -> Progress {
        Progress {
            json,
            is_terminal: std::io::stderr().is_terminal(),
            since: Instant::now(),
            line: None,
            has_waited: false,
        }
    }

    /// Something has changed.
    pub(crate) fn say(&mut self, step: Step) {
        if self.json {
            say!("{}", serde_json::json!(step));
            return;
        }
        match step {
            Step::Waiting {
                request,
                position,
                waiting,
                lack,
            } => {
                let lack = lack.map(|lack| format!("; {}", printable(&lack)));
                let lack = lack.unwrap_or_default();
                self.wait(format!(
                    "waiting for devices (request '{request}'): place {position} of {waiting}{lack}"
                ));
            }
            Step::Away { reason } => self.wait(format!("{}; trying again", printable(&reason))),
            Step::Granted { lease, nodes, .. } => {
                if self.has_waited {
                    self.end_line();
                    say!(
                        "causeway run: lease {lease}, {}",
                        printable(&shares(&nodes, &NodeNames::of_shares(&nodes)))
                    );
                }
            }
            Step::Reduced { lost, nodes } => {
                self.end_line();
                let names = NodeNames::of_shares(lost.iter().chain(&nodes));
                let lost: Vec<String> = lost
                    .iter()
                    .map(|of| names.label(&of.node, &of.name))
                    .collect();
                say!(
                    "causeway run: the lease has lost the devices of node {}: what the program does there ends in OpenCL \
                     errors, its other devices go on",
                    printable(&lost.join(", "))
                );
            }
            Step::Over { reason } => {
                self.end_line();
                let reason = printable(&reason);
                say!("causeway run: the lease is over before the program is: {reason}");
            }
        }
    }

    /// Shows how long it has been, where somebody sees it.
    pub(crate) fn tick(&self) {
        if let Some(line) = self.line.as_ref().filter(|_| self.is_terminal) {
            let waited =
                duration(u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX));
            say::put(format_args!("\r\x1b[Kcauseway run: {line}, {waited}"));
        }
    }

    /// How often that is.
    pub(crate) const TICK: Duration = Duration::from_secs(1);

    /// Whatever comes next begins a line of its own.
    pub(crate) fn end_line(&mut self) {
        if self.line.take().is_some() && self.is_terminal {
            say!();
        }
    }

    fn wait(&mut self, line: String) {
        self.has_waited = true;
        let is_new = self.line.as_ref() != Some(&line);
        self.line = Some(line);
        if self.is_terminal {
            self.tick();
        } else if let Some(line) = self.line.as_ref().filter(|_| is_new) {
            say!("causeway run: {line}");
        }
    }
}
