//! The progress of `causeway run` on standard error: one line that is updated on a terminal, a line per
//! change elsewhere, or JSON.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use crate::json::Step;
use crate::say::{self, say};
use crate::text::{NodeNames, duration, milliseconds, printable, shares};

/// Reports the progress of `causeway run`.
pub(crate) struct Progress {
    json: bool,
    is_terminal: bool,
    since: Instant,
    /// The last line about the wait, without the time.
    line: Option<String>,
    /// Whether the request had to wait. Only then is the grant reported.
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

    /// Reports an event.
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
            // The library logs the breaks and losses of its sessions itself.
            Step::Away {
                server: Some(_), ..
            }
            | Step::Resumed { .. }
            | Step::Lost { .. } => {}
            Step::Away { reason, .. } => self.wait(format!("{}; trying again", printable(&reason))),
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
                    "causeway run: the lease has lost the devices of node {}: commands there fail with OpenCL errors; \
                     the program's other devices are not affected",
                    printable(&lost.join(", "))
                );
            }
            Step::Moved { from, to } => {
                self.end_line();
                let names = NodeNames::of_shares([&from, &to]);
                say!(
                    "causeway run: the lease has moved from node {} to node {}",
                    printable(&names.label(&from.node, &from.name)),
                    printable(&names.label(&to.node, &to.name))
                );
            }
            Step::Over { reason } => {
                self.end_line();
                let reason = printable(&reason);
                say!("causeway run: the lease has ended while the program runs: {reason}");
            }
        }
    }

    /// Updates the waiting time on a terminal.
    pub(crate) fn tick(&self) {
        if let Some(line) = self.line.as_ref().filter(|_| self.is_terminal) {
            let waited = duration(milliseconds(self.since.elapsed()));
            say::put(format_args!("\r\x1b[Kcauseway run: {line}, {waited}"));
        }
    }

    /// Interval of these updates.
    pub(crate) const TICK: Duration = Duration::from_secs(1);

    /// Ends the line that is updated, so that the next output begins a new one.
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
