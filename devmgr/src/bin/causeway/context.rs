//! Shared by all verbs: the global options, the configuration, and the output. Options override the
//! environment variables of the same meaning.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use causeway::config::Settings;
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::json;
use crate::say::say;
use crate::text::printable_lines;

/// The options of every verb, and what follows from them.
#[derive(Debug, clap::Args)]
pub(crate) struct Context {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// The device manager, or all managers of a cluster; overrides CAUSEWAY_MANAGER and servers.toml
    #[arg(
        long,
        global = true,
        value_name = "HOST[:PORT][,...]",
        help_heading = "Connection"
    )]
    manager: Option<OsString>,
    /// The CA of the nodes' and manager's certificates; turns TLS on; overrides CAUSEWAY_CA
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    ca: Option<PathBuf>,
    /// Your certificate; overrides CAUSEWAY_CERTIFICATE
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    certificate: Option<PathBuf>,
    /// Your certificate's key; overrides CAUSEWAY_KEY
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    key: Option<PathBuf>,
    /// A file with your token, readable by you only; overrides CAUSEWAY_TOKEN_FILE
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    token_file: Option<PathBuf>,
}

impl Context {
    /// Whether JSON is wanted.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// The options as environment variables, for the configuration and for programs that this tool
    /// starts.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let path = |path: &Option<PathBuf>| path.clone().map(PathBuf::into_os_string);
        let said = [
            ("CAUSEWAY_MANAGER", self.manager.clone()),
            ("CAUSEWAY_CA", path(&self.ca)),
            ("CAUSEWAY_CERTIFICATE", path(&self.certificate)),
            ("CAUSEWAY_KEY", path(&self.key)),
            ("CAUSEWAY_TOKEN_FILE", path(&self.token_file)),
        ];
        let said = said.into_iter();
        said.filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// The configuration that a program would find. The verb reports its problems.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::load_with(&self.variables());
        if self.manager.is_some() {
            let named = settings.problems.iter_mut();
            for problem in named.filter(|problem| problem.origin == "CAUSEWAY_MANAGER") {
                "--manager".clone_into(&mut problem.origin);
            }
        }
        settings
    }

    /// Prints `value` as JSON, or as the text that `text` makes from it.
    ///
    /// # Errors
    /// The output cannot be written. A closed pipe is no error.
    pub(crate) fn print<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Outcome {
        let text = if self.json() {
            let json = serde_json::to_string_pretty(value);
            json.map_err(|error| Failure::new(error.to_string()))? + "\n"
        } else {
            text(value)
        };
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match written {
            Ok(()) => Ok(ExitCode::SUCCESS),
            // A reader such as `head -1` has all that it wants.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            Err(error) => Err(Failure::new(format!(
                "cannot write to standard output: {error}"
            ))),
        }
    }

    /// Reports a failure and its cure on standard error, and returns the exit code.
    pub(crate) fn fail(&self, verb: &str, failure: &Failure) -> ExitCode {
        if self.json() {
            let error = json::Error {
                error: failure.to_string(),
                cure: failure.what_to_do().map(str::to_owned),
            };
            say!("{}", serde_json::json!(error));
        } else {
            say!("causeway {verb}: {}", printable_lines(&failure.to_string()));
            if let Some(cure) = failure.what_to_do() {
                say!("  → {cure}");
            }
        }
        failure.exit_code()
    }
}
