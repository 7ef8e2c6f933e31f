//! For how long the node keeps the session of a program that it does not hear, and how the reason of a loss says so.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::config::{ServerSettings, Survival};

/// The times that the node has granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Granted {
    /// How long the program waits when connections break; zero: the session ends with them.
    pub(super) resume: Duration,
    /// How long the program waits for a daemon that is started anew; zero: the session is never parked.
    pub(super) restart: Duration,
    /// What the program asks for if its commands are executed again when the worker dies; `None`: they are not.
    pub(super) reexecutes: Option<Survival>,
    /// Whether the device manager may have equal devices take the place of the node's if these are lost.
    pub(super) may_be_replaced: bool,
    keep: Duration,
    /// Whether the program has asked for more.
    is_less: bool,
}

impl Granted {
    /// Compares what the node has granted for `resume` and `keep` with what the server's settings ask for. Only a
    /// session that outlives its connections can be parked.
    pub(super) fn new(
        server: &ServerSettings,
        resume: Duration,
        keep: Duration,
        restart: Duration,
    ) -> Granted {
        let asked = (server.resume(), server.keep());
        let resume_for = resume.min(asked.0);
        Granted {
            resume: resume_for,
            restart: match resume_for.is_zero() {
                true => Duration::ZERO,
                false => restart.min(server.restart()),
            },
            reexecutes: None,
            may_be_replaced: false,
            keep: keep.min(asked.1),
            is_less: !asked.0.is_zero() && (resume < asked.0 || keep < asked.1),
        }
    }

    /// Adds whether the node puts another worker into the place of one that dies. `is_replaceable`: the device
    /// manager has equal devices take the place of lost ones.
    pub(super) fn with_reexecution(
        mut self,
        server: &ServerSettings,
        reexecutes: bool,
        is_replaceable: bool,
    ) -> Granted {
        let is_granted = server.survival.reexecute && reexecutes && self.resumes();
        self.reexecutes = is_granted.then_some(server.survival);
        self.may_be_replaced = is_granted && is_replaceable && !server.restart().is_zero();
        self
    }

    /// Whether the session outlives its connections.
    pub(super) fn resumes(&self) -> bool {
        !self.resume.is_zero()
    }

    /// Whether the node may park the session.
    pub(super) fn parks(&self) -> bool {
        !self.restart.is_zero()
    }

    /// The reason of a loss, with what the node has granted where that is part of the reason. `stopped`: for how long
    /// the program was stopped before.
    pub(super) fn explain(&self, reason: &str, stopped: Option<Duration>) -> String {
        let mut text = reason.to_owned();
        if let Some(stopped) = stopped {
            let seconds = stopped.as_secs();
            text += &format!("; the program was stopped (suspended) for {seconds} s");
        }
        if stopped.is_some() || self.is_less {
            text += &match self.resumes() {
                true => {
                    let longest = self.resume.max(self.keep).as_secs_f64();
                    let kept = format!("; the node keeps a session for at most {longest} s");
                    // The node counts `resume` if a connection was closed meanwhile, as by a tunnel.
                    let helps = stopped.is_some_and(|stopped| stopped < self.keep);
                    match helps && self.resume < self.keep && !self.is_less {
                        true => {
                            let resume = self.resume.as_secs_f64();
                            kept + &format!("; raise `resume` ({resume} s) in servers.toml")
                        }
                        false => kept,
                    }
                }
                false => "; the node keeps no session whose connections break".to_owned(),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_node_grants_is_in_the_reason_if_it_is_less_than_was_asked() {
        let mut server = ServerSettings::at("n:1".parse().unwrap());
        let seconds = Duration::from_secs;
        let plain = |server: &ServerSettings, resume, keep| {
            Granted::new(server, seconds(resume), seconds(keep), Duration::ZERO)
                .explain("cut", None)
        };
        assert_eq!(plain(&server, 60, 600), "cut");
        let less = "cut; the node keeps a session for at most 90 s";
        assert_eq!(plain(&server, 60, 90), less);
        let none = "cut; the node keeps no session whose connections break";
        assert_eq!(plain(&server, 0, 0), none);
        let granted = Granted::new(&server, seconds(60), seconds(600), Duration::ZERO);
        assert_eq!(
            granted.explain("cut", Some(seconds(700))),
            "cut; the program was stopped (suspended) for 700 s; the node keeps a session for at most 600 s"
        );
        assert_eq!(
            granted.explain("cut", Some(seconds(90))),
            "cut; the program was stopped (suspended) for 90 s; the node keeps a session for at most 600 s; raise `resume` \
             (60 s) in servers.toml"
        );
        server.resume = Some(Duration::ZERO);
        assert_eq!(plain(&server, 0, 0), "cut");
    }
}
