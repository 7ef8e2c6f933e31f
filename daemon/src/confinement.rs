//! The confinement plan of a worker process: the privileges that the process drops before it loads a
//! driver.
//!
//! This module only describes the plan and passes it on. `worker::confine` carries it out. The supervisor
//! passes the plan in an environment variable, because a worker needs it before it reads its first byte.
//! All kinds of worker read it the same way. The plan contains nothing secret. Both ends are the same
//! binary, so the format has no version.
//!
//! Invariant: a worker process does not start without a plan.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Environment variable in which a worker process finds its plan.
pub const VARIABLE: &str = "CAUSEWAYD_CONFINEMENT";

/// The privileges that one worker process drops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// User that the process changes to; `None`: the process keeps the daemon's user.
    pub user: Option<Identity>,
    /// Sandbox that the process enters; `None`: no sandbox.
    pub sandbox: Option<Sandbox>,
}

/// Numeric ids of a user and of its groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary group ids, for example of the groups that may open the devices.
    pub groups: Vec<u32>,
}

/// Resources that a worker can still reach in its sandbox, in addition to those that every driver needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// Files and directories that the worker may read and execute.
    pub read: Vec<PathBuf>,
    /// Files and directories that the worker may also write. The worker's own folder is one of them.
    pub write: Vec<PathBuf>,
    /// Whether the worker may write to the driver caches of the daemon's user.
    pub shared_caches: bool,
    /// TCP ports that the worker may connect to; `None`: any port.
    pub connect_ports: Option<Vec<u16>>,
    /// Whether the process may use UDP. Landlock does not check the ports of datagrams, so a worker with a list of ports
    /// may not.
    pub datagrams: bool,
}

/// A plan cannot be encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub enum BadPlan {
    /// The environment variable is not set, or its value is not valid UTF-8.
    #[error("{VARIABLE} is not set; only causewayd can start a worker process")]
    Missing,
    /// The value of the variable is not a valid plan.
    #[error("{VARIABLE} is invalid: {0}")]
    Unreadable(#[from] toml::de::Error),
    /// A path in the plan is not valid UTF-8, so the plan cannot be encoded as text.
    #[error("a path of the sandbox is not valid UTF-8 and cannot be passed to a worker: {0}")]
    Unwritable(#[from] toml::ser::Error),
}

impl Plan {
    /// Encodes the plan as the value of the environment variable.
    ///
    /// # Errors
    /// [`BadPlan::Unwritable`] if a path is not valid UTF-8.
    pub fn encode(&self) -> Result<String, BadPlan> {
        Ok(toml::to_string(self)?)
    }

    /// Decodes the plan that this process inherited from its supervisor.
    ///
    /// # Errors
    /// [`BadPlan`] if the variable is missing or its value cannot be decoded.
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
                datagrams: true,
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
