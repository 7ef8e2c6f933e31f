//! What a worker process is to give up before it loads a driver: the plan that its supervisor hands it.
//!
//! What it is not: it carries nothing out; `worker::confine` does. The plan travels in an environment
//! variable, because it has to be known before the first byte is read and is the same for every kind of
//! worker; nothing in it is secret. Both ends are the same binary, so there is no version here.
//!
//! Invariant: a process without a plan is no worker; it does not start.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where a worker finds its plan.
pub const VARIABLE: &str = "CAUSEWAYD_CONFINEMENT";

/// What one worker process is to give up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Whom it becomes; `None`: it stays the daemon's user.
    pub user: Option<Identity>,
    /// The sandbox that it enters; `None`: none.
    pub sandbox: Option<Sandbox>,
}

/// A user as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The other groups, such as those that may open the devices.
    pub groups: Vec<u32>,
}

/// What a worker may still reach, besides what every driver needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// Files and directories to read and run.
    pub read: Vec<PathBuf>,
    /// Those to write as well; its own folder is one.
    pub write: Vec<PathBuf>,
    /// Whether it writes to the drivers' caches of the daemon's user.
    pub shared_caches: bool,
    /// TCP ports that it may connect to; `None`: any.
    pub connect_ports: Option<Vec<u16>>,
}

/// The plan cannot be written down, or read.
#[derive(Debug, thiserror::Error)]
pub enum BadPlan {
    /// The variable is not there, or no text.
    #[error("{VARIABLE} is not set: workers are started by causewayd alone")]
    Missing,
    /// It holds something else.
    #[error("{VARIABLE}: {0}")]
    Unreadable(#[from] toml::de::Error),
    /// A path in it is no text, which a plan is.
    #[error("a path of the sandbox cannot be passed on: {0}")]
    Unwritable(#[from] toml::ser::Error),
}

impl Plan {
    /// As the variable's value.
    ///
    /// # Errors
    /// [`BadPlan::Unwritable`].
    pub fn encode(&self) -> Result<String, BadPlan> {
        Ok(toml::to_string(self)?)
    }

    /// The plan of this process.
    ///
    /// # Errors
    /// [`BadPlan`] where there is none that can be read.
    pub fn inherited() -> Result<Plan, BadPlan> {
        Plan::decode(&std::env::var(VARIABLE).map_err(|_| BadPlan::Missing)?)
    }

    fn decode(text: &str) -> Result<Plan, BadPlan> {
        Ok(toml::from_str(text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_arrives_as_it_was() {
        let full = Plan {
            user: Some(Identity {
                uid: 200_000,
                gid: 200_001,
                groups: vec![44, 105],
            }),
            sandbox: Some(Sandbox {
                read: vec!["/opt/a driver".into()],
                write: vec!["/tmp/x".into(), "/dev/\"quoted\"".into()],
                shared_caches: true,
                connect_ports: Some(vec![7079]),
            }),
        };
        let any_port = Plan {
            user: None,
            sandbox: Some(Sandbox::default()),
        };
        for plan in [full, any_port, Plan::default()] {
            assert_eq!(Plan::decode(&plan.encode().unwrap()).unwrap(), plan);
        }
        assert!(Plan::decode("users = 3").is_err());
    }
}
