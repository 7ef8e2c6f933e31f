//! The progress of `causeway run` on standard error: one line that is updated on a terminal, a line per
//! change elsewhere, or JSON.
//!
//! This module asks nobody. Invariant: why the request waits is reported at once, and after that at most every 10 s.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use crate::json::{NodeShare, RunEvent};
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
    why: WhyPace,
    /// The last report about the wait, without the reason. Only for JSON.
    waiting: Option<Waiting>,
}

/// A report about the wait: request, position, length of the queue, and the devices that the request lacks.
type Waiting = (String, u32, u32, Option<String>);

/// Interval at which a changed reason is reported.
const WHY_EVERY: Duration = Duration::from_secs(10);

/// Decides when to report why the request waits. Pure: times count from the start.
#[derive(Debug, Default)]
struct WhyPace {
    /// The latest reason, and when it came.
    heard: Option<(Duration, String)>,
    /// The reason that was reported last, and when.
    said: Option<(Duration, String)>,
}

impl WhyPace {
    fn hear(&mut self, now: Duration, why: Option<String>) {
        if let Some(why) = why {
            self.heard = Some((now, why));
        }
    }

    /// The reason to report now. It may contain times, so its age is added.
    fn due(&mut self, now: Duration) -> Option<String> {
        let (heard_at, why) = self.heard.as_ref()?;
        if let Some((at, said)) = &self.said
            && (said == why || now < *at + WHY_EVERY)
        {
            return None;
        }
        self.said = Some((now, why.clone()));
        Some(match now.saturating_sub(*heard_at).as_secs() {
            0 => why.clone(),
            age => format!("{why} ({age} s ago)"),
        })
    }
}

impl Progress {
    pub(crate) fn new(json: bool) -> Progress {
        Progress {
            json,
            is_terminal: std::io::stderr().is_terminal(),
            since: Instant::now(),
            line: None,
            has_waited: false,
            why: WhyPace::default(),
            waiting: None,
        }
    }

    /// Reports an event.
    pub(crate) fn say(&mut self, event: RunEvent) {
        if let RunEvent::Waiting { why, .. } = &event {
            self.why.hear(self.since.elapsed(), why.clone());
        }
        if self.json {
            self.say_json(event);
            return;
        }
        self.say_text(event);
    }

    fn say_text(&mut self, event: RunEvent) {
        match event {
            RunEvent::Waiting {
                request,
                position,
                waiting,
                lack,
                why: _,
            } => {
                let lack = lack.map(|lack| format!("; {}", printable(&lack)));
                let lack = lack.unwrap_or_default();
                self.wait(format!(
                    "waiting for devices (request '{request}'): place {position} of {waiting}{lack}"
                ));
                self.say_why();
            }
            // The library logs the breaks and losses of its sessions itself.
            RunEvent::Away {
                server: Some(_), ..
            }
            | RunEvent::Resumed { .. }
            | RunEvent::Lost { .. } => {}
            RunEvent::Away { reason, .. } => {
                self.wait(format!("{}; trying again", printable(&reason)))
            }
            RunEvent::Granted { lease, nodes, .. } => {
                if self.has_waited {
                    self.end_line();
                    say!(
                        "causeway run: lease {lease}, {}",
                        printable(&shares(&nodes, &NodeNames::of_shares(&nodes)))
                    );
                }
            }
            change => {
                if let Some(text) = change_text(&change) {
                    self.end_line();
                    say!("causeway run: {text}");
                }
            }
        }
    }

    /// Reports an event as JSON.
    fn say_json(&mut self, mut event: RunEvent) {
        if self.is_news(&mut event) {
            say!("{}", serde_json::json!(event));
        }
    }

    /// Whether an event is reported. One about the wait is reported again when a withheld reason is due, which is added.
    fn is_news(&mut self, event: &mut RunEvent) -> bool {
        // Readers of the break must learn that the request waits again.
        if let RunEvent::Away { server: None, .. } = event {
            self.waiting = None;
        }
        if let RunEvent::Waiting {
            request,
            position,
            waiting,
            lack,
            why,
        } = event
        {
            let now = (request.clone(), *position, *waiting, lack.clone());
            *why = self.why.due(self.since.elapsed());
            let is_new = self.waiting.as_ref() != Some(&now);
            self.waiting = Some(now);
            return is_new || why.is_some();
        }
        true
    }

    /// Reports why the request waits, if that is due.
    fn say_why(&mut self) {
        let Some(why) = self.why.due(self.since.elapsed()) else {
            return;
        };
        if self.is_terminal {
            say::put(format_args!("\r\x1b[K"));
        }
        say!("causeway run: the request waits: {}", printable(&why));
        self.show_time();
    }

    /// Reports a reason that is due by now, and updates the waiting time on a terminal.
    pub(crate) fn tick(&mut self) {
        match (self.json, self.waiting.clone()) {
            (false, _) => self.say_why(),
            (true, Some((request, position, waiting, lack))) => self.say_json(RunEvent::Waiting {
                request,
                position,
                waiting,
                lack,
                why: None,
            }),
            (true, None) => {}
        }
        self.show_time();
    }

    fn show_time(&self) {
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
            self.show_time();
        } else if let Some(line) = self.line.as_ref().filter(|_| is_new) {
            say!("causeway run: {line}");
        }
    }
}

/// A change of the running program's lease, as a sentence. `None`: the event is something else.
fn change_text(event: &RunEvent) -> Option<String> {
    let all = |shares: &[NodeShare], names: &NodeNames| {
        let labels = shares.iter().map(|of| names.label(&of.node, &of.name));
        printable(&labels.collect::<Vec<_>>().join(", "))
    };
    Some(match event {
        RunEvent::Reduced { lost, nodes } => {
            let names = NodeNames::of_shares(lost.iter().chain(nodes));
            format!(
                "the lease has lost the devices of node {}: commands there fail with OpenCL errors; the program's other \
                 devices are not affected",
                all(lost, &names)
            )
        }
        RunEvent::Moved { from, to } => {
            let names = NodeNames::of_shares([from, to]);
            format!(
                "the lease has moved from node {} to node {}",
                printable(&names.label(&from.node, &from.name)),
                printable(&names.label(&to.node, &to.name))
            )
        }
        RunEvent::Seeking { lost } => format!(
            "the lease has lost its node {}; the device manager seeks equal devices",
            all(lost, &NodeNames::of_shares(lost))
        ),
        RunEvent::Replaced { from, to } => {
            let names = NodeNames::of_shares([from, to]);
            format!(
                "devices of node {} have replaced those of the lost node {}",
                printable(&names.label(&to.node, &to.name)),
                printable(&names.label(&from.node, &from.name))
            )
        }
        RunEvent::Over { reason } => format!(
            "the lease has ended while the program runs: {}",
            printable(reason)
        ),
        RunEvent::Waiting { .. }
        | RunEvent::Away { .. }
        | RunEvent::Resumed { .. }
        | RunEvent::Lost { .. }
        | RunEvent::Granted { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_reported_again_after_a_break() {
        let mut progress = Progress::new(true);
        let wait = || RunEvent::Waiting {
            request: "1".to_owned(),
            position: 2,
            waiting: 3,
            lack: None,
            why: None,
        };
        let away = |server: Option<&str>| RunEvent::Away {
            server: server.map(str::to_owned),
            pid: None,
            session: None,
            reason: "no answer".to_owned(),
        };
        assert!(progress.is_news(&mut wait()));
        assert!(!progress.is_news(&mut wait()));
        assert!(progress.is_news(&mut away(Some("n:1"))));
        assert!(!progress.is_news(&mut wait()));
        assert!(progress.is_news(&mut away(None)));
        assert!(progress.is_news(&mut wait()));
        assert!(!progress.is_news(&mut wait()));
    }

    #[test]
    fn a_reason_is_said_at_once_and_a_changed_one_after_ten_seconds() {
        let mut pace = WhyPace::default();
        let seconds = Duration::from_secs;
        assert_eq!(pace.due(seconds(0)), None);
        pace.hear(seconds(1), Some("in use".to_owned()));
        assert_eq!(pace.due(seconds(1)).as_deref(), Some("in use"));
        pace.hear(seconds(30), Some("in use".to_owned()));
        assert_eq!(pace.due(seconds(30)), None);
        pace.hear(seconds(30), Some("quota".to_owned()));
        assert_eq!(pace.due(seconds(30)).as_deref(), Some("quota"));
        // Only the last of several changes.
        pace.hear(seconds(31), Some("in use".to_owned()));
        pace.hear(seconds(35), Some("set aside".to_owned()));
        pace.hear(seconds(36), None);
        assert_eq!(pace.due(seconds(39)), None);
        let late = pace.due(seconds(40));
        assert_eq!(late.as_deref(), Some("set aside (5 s ago)"));
        assert_eq!(pace.due(seconds(60)), None);
    }
}
