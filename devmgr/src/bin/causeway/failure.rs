//! Failures of a verb: what happened, and what to do about it.

use std::process::ExitCode;

use causeway_proto::status::{TlsFault, WireError};
use tonic::{Code, Status};

use crate::validity;

/// The result of a verb.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// Exit code of a failure, unless it has its own.
const FAILED: u8 = 1;
/// Exit code for a wrong command line; clap uses the same one.
pub(crate) const USAGE: u8 = 2;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Failure {
    what: String,
    cure: Option<String>,
    code: Option<u8>,
    /// The connection's error, if it is the cause.
    of_connection: Option<WireError>,
}

impl Failure {
    /// A failure without a cure.
    pub(crate) fn new(what: impl Into<String>) -> Failure {
        Failure {
            what: what.into(),
            cure: None,
            code: None,
            of_connection: None,
        }
    }

    /// Whether device managers answer, but none of them leads now.
    pub(crate) fn is_leaderless(&self) -> bool {
        matches!(self.of_connection, Some(WireError::NotLeading { .. }))
    }

    /// The error of the connection if it is the cause; else the failure itself.
    pub(crate) fn of_connection<T>(self) -> Result<Result<T, Failure>, WireError> {
        match self.of_connection {
            Some(error) => Err(error),
            None => Ok(Err(self)),
        }
    }

    /// Sets the cure.
    pub(crate) fn cure(self, cure: impl Into<String>) -> Failure {
        Failure {
            cure: Some(cure.into()),
            ..self
        }
    }

    /// Sets the exit code.
    pub(crate) fn code(self, code: u8) -> Failure {
        Failure {
            code: Some(code),
            ..self
        }
    }

    /// Sets the exit code, unless one is set.
    pub(crate) fn or_code(self, code: u8) -> Failure {
        Failure {
            code: self.code.or(Some(code)),
            ..self
        }
    }

    /// What to do about the failure.
    pub(crate) fn what_to_do(&self) -> Option<&str> {
        self.cure.as_deref()
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code.unwrap_or(FAILED))
    }

    /// The failure for a device manager that cannot be reached.
    pub(crate) fn unreached(error: WireError) -> Failure {
        let of_connection = Some(error.clone());
        let (what, cure) = match error {
            leaderless @ WireError::NotLeading { .. } => (
                leaderless.to_string(),
                "name all managers of the cluster (--manager, CAUSEWAY_MANAGER, address in [manager] of servers.toml); if \
                 all are named, look at their logs and at their store",
            ),
            WireError::Unreachable { address, reason } => (
                format!("the device manager at {address} cannot be reached: {reason}"),
                "start causeway-devmgr there, check the address (--manager, CAUSEWAY_MANAGER, [manager] in \
                 servers.toml) and the files of TLS, and let the firewall pass it",
            ),
            WireError::Credentials { reason, .. } => (
                reason,
                "name the right file (--ca, --token-file, --certificate, --key; CAUSEWAY_CA, …; servers.toml); only \
                 you may be able to read keys and tokens; `causeway doctor` checks each file",
            ),
            tls @ WireError::Tls { fault, .. } => (tls.to_string(), cure_of(fault)),
            WireError::Protocol { address, reason } => {
                (not_a_manager(&address, &reason), CHECK_PORT)
            }
            closed @ WireError::Closed { .. } => (
                closed.to_string(),
                "try again in a moment; if it stays so, look at the log of causeway-devmgr there",
            ),
            other => return Failure::new(other.to_string()),
        };
        Failure {
            of_connection,
            ..Failure::new(what).cure(cure)
        }
    }

    /// The failure for a status that the device manager at `address` has answered.
    pub(crate) fn answered(address: &str, status: &Status) -> Failure {
        let failure = Failure::new(status.message());
        match status.code() {
            Code::Unauthenticated => failure.cure(
                "show a token (--token-file, CAUSEWAY_TOKEN_FILE, token_file in servers.toml) or a certificate; \
                 an administrator makes one: causeway tokens create",
            ),
            Code::PermissionDenied => failure.cure("ask an administrator of the device manager"),
            Code::Unimplemented => {
                Failure::new(format!("{address}: {}", status.message())).cure(format!(
                    "check the port (managers listen on 7078, nodes on 7079), or upgrade the manager to {}",
                    env!("CARGO_PKG_VERSION")
                ))
            }
            _ => failure,
        }
    }
}

fn not_a_manager(address: &str, reason: &str) -> String {
    format!("{address} does not answer like a device manager: {reason}")
}

const CHECK_PORT: &str = "check the port (default 7078; nodes use 7079); with TLS, name the CA of the manager's certificate (--ca, \
                          CAUSEWAY_CA, ca in servers.toml)";

/// The cure for a TLS error.
fn cure_of(fault: TlsFault) -> &'static str {
    match fault {
        TlsFault::OtherCa => {
            "the manager's certificate was signed by another CA; name that one (--ca, CAUSEWAY_CA, ca in servers.toml)"
        }
        TlsFault::OtherName => {
            "use a name that is in the manager's certificate, or make a certificate with this name: causeway certs node \
             NAME --address HOST; or set tls_name below [manager] in servers.toml"
        }
        TlsFault::OtherTime => {
            "make a new certificate for the manager (causeway certs node NAME), and check the clocks of both machines"
        }
        TlsFault::OwnExpired => validity::RENEW,
        TlsFault::OwnMissing => {
            "the manager takes callers with a certificate only: name yours and its key (--certificate, --key, \
             CAUSEWAY_CERTIFICATE, CAUSEWAY_KEY); causeway certs client NAME makes one"
        }
        TlsFault::OwnRefused => {
            "name a certificate that was signed by the manager's CA for clients; causeway certs client NAME --from FOLDER \
             makes one with that CA"
        }
        TlsFault::Missing | TlsFault::Other => CHECK_PORT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tls_fault_has_its_cure() {
        for (fault, word) in [
            (TlsFault::OtherCa, "another CA"),
            (TlsFault::OtherName, "tls_name"),
            (TlsFault::OtherTime, "clocks"),
            (TlsFault::OwnExpired, "certs client"),
            (TlsFault::OwnMissing, "--certificate"),
            (TlsFault::OwnRefused, "certs client"),
            (TlsFault::Missing, "7078"),
            (TlsFault::Other, "7078"),
        ] {
            let failure = Failure::unreached(WireError::Tls {
                address: "gpu1:7078".to_owned(),
                fault,
                reason: "TLS".to_owned(),
            });
            let cure = failure.what_to_do().unwrap();
            assert!(cure.contains(word), "{failure}: {cure}");
        }
    }
}
