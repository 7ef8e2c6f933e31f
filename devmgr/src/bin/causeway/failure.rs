//! Why a verb did not do what it was asked: what happened, and what to do about it.

use std::process::ExitCode;

use causeway_proto::status::WireError;
use tonic::{Code, Status};

/// What a verb ends with.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// The exit code of a failure, unless it says another.
const FAILED: u8 = 1;
/// A wrong command line, as clap's own errors.
pub(crate) const USAGE: u8 = 2;

/// See the module.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Failure {
    what: String,
    cure: Option<String>,
    code: Option<u8>,
}

impl Failure {
    /// One of which nothing is known but this.
    pub(crate) fn new(what: impl Into<String>) -> Failure {
        Failure {
            what: what.into(),
            cure: None,
            code: None,
        }
    }

    /// Says what to do.
    pub(crate) fn cure(self, cure: impl Into<String>) -> Failure {
        Failure {
            cure: Some(cure.into()),
            ..self
        }
    }

    /// Says the exit code.
    pub(crate) fn code(self, code: u8) -> Failure {
        Failure {
            code: Some(code),
            ..self
        }
    }

    /// Says the exit code, unless it has been said.
    pub(crate) fn or_code(self, code: u8) -> Failure {
        Failure {
            code: self.code.or(Some(code)),
            ..self
        }
    }

    /// What to do.
    pub(crate) fn what_to_do(&self) -> Option<&str> {
        self.cure.as_deref()
    }

    /// The exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code.unwrap_or(FAILED))
    }

    /// The device manager was not reached.
    pub(crate) fn unreached(error: WireError) -> Failure {
        let (what, cure) = match error {
            WireError::Unreachable { address, reason } => (
                format!("the device manager at {address} cannot be reached: {reason}"),
                "start causeway-devmgr there, check the address (--manager, CAUSEWAY_MANAGER, [manager] in \
                 servers.toml) and the files of TLS, and let the firewall pass it",
            ),
            WireError::Credentials { reason, .. } => (
                reason,
                "name the right file (--ca, --token-file, --certificate, --key; CAUSEWAY_CA, …; servers.toml), readable \
                 by you alone where it is secret; `causeway doctor` looks at each",
            ),
            WireError::Protocol { address, reason } => {
                let cure = cure_of_talk(&reason);
                (
                    format!("{address} does not speak as a device manager should: {reason}"),
                    cure,
                )
            }
            closed @ WireError::Closed { .. } => (
                closed.to_string(),
                "try again in a moment; if it stays so, look at the log of causeway-devmgr there",
            ),
            other => return Failure::new(other.to_string()),
        };
        Failure::new(what).cure(cure)
    }

    /// The device manager has answered so.
    pub(crate) fn answered(status: &Status) -> Failure {
        let failure = Failure::new(status.message());
        match status.code() {
            Code::Unauthenticated => failure.cure(
                "show a token (--token-file, CAUSEWAY_TOKEN_FILE, token_file in servers.toml) or a certificate; \
                 an administrator makes one: causeway tokens create",
            ),
            Code::PermissionDenied => failure.cure("ask an administrator of the device manager"),
            Code::Unimplemented => failure.cure(format!(
                "that is no device manager's port (7078, where a node's is 7079), or it is older than this tool ({}): upgrade it",
                env!("CARGO_PKG_VERSION")
            )),
            _ => failure,
        }
    }
}

/// What to do about somebody who answers otherwise than a device manager that can be believed: TLS says by its own words what
/// is wrong.
fn cure_of_talk(reason: &str) -> &'static str {
    const OTHER_CA: &str = "another CA has signed its certificate: name the one that did (--ca, CAUSEWAY_CA, ca in servers.toml)";
    const OTHER_NAME: &str = "call it by a name of its certificate, or make one with that name: causeway certs node NAME \
                              --address HOST; or say tls_name below [manager] in servers.toml";
    const OVER: &str = "make it a new one (causeway certs node NAME), and see whether the clocks of both are right";
    let known = [
        ("UnknownIssuer", OTHER_CA),
        // Of a CA that has the same name.
        ("BadSignature", OTHER_CA),
        ("not valid for name", OTHER_NAME),
        ("NotValidForName", OTHER_NAME),
        ("expired", OVER),
        ("Expired", OVER),
    ];
    let of_certificate = reason.contains("certificate");
    let found = known
        .iter()
        .find(|(word, _)| of_certificate && reason.contains(word));
    found.map_or(
        "its port is 7078 unless it was told another (7079 is a node's); with TLS, name the CA of its certificate (--ca, \
         CAUSEWAY_CA, ca in servers.toml)",
        |(_, cure)| cure,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_about_a_certificate_is_about_what_is_wrong_with_it() {
        for (reason, word) in [
            ("TLS: invalid peer certificate: UnknownIssuer", "another CA"),
            ("TLS: invalid peer certificate: BadSignature", "another CA"),
            (
                "TLS: invalid peer certificate: certificate not valid for name \"a\"",
                "tls_name",
            ),
            (
                "TLS: invalid peer certificate: certificate expired: verification time",
                "clocks",
            ),
            ("TLS: received corrupt message", "7078"),
        ] {
            let reason = reason.to_owned();
            let failure = Failure::unreached(WireError::Protocol {
                address: "gpu1:7078".to_owned(),
                reason,
            });
            let cure = failure.what_to_do().unwrap();
            assert!(cure.contains(word), "{failure}: {cure}");
        }
    }
}
