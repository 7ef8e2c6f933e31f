//! What all verbs share: the options, the configuration that they and the environment make, and how something is
//! printed. Options say what environment variables say, and win over them.

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

/// Options of every verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The device manager (as CAUSEWAY_MANAGER, or the manager in servers.toml)
    #[arg(
        long,
        global = true,
        value_name = "HOST[:PORT]",
        help_heading = "Connection"
    )]
    manager: Option<OsString>,
    /// Who signs the certificates of nodes and manager; with it, TLS is spoken (as CAUSEWAY_CA)
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    ca: Option<PathBuf>,
    /// Your certificate (as CAUSEWAY_CERTIFICATE)
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    certificate: Option<PathBuf>,
    /// The key of your certificate (as CAUSEWAY_KEY)
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    key: Option<PathBuf>,
    /// A file with your token, which nobody else can read (as CAUSEWAY_TOKEN_FILE)
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    token_file: Option<PathBuf>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Context {
    options: Options,
}

impl Context {
    pub(crate) fn new(options: Options) -> Context {
        Context { options }
    }

    /// Whether JSON is wanted.
    pub(crate) fn json(&self) -> bool {
        self.options.json
    }

    /// What the options say, as the environment would: for the configuration, and for programs that are to have
    /// the same.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let options = &self.options;
        let path = |path: &Option<PathBuf>| path.clone().map(PathBuf::into_os_string);
        let said = [
            ("CAUSEWAY_MANAGER", options.manager.clone()),
            ("CAUSEWAY_CA", path(&options.ca)),
            ("CAUSEWAY_CERTIFICATE", path(&options.certificate)),
            ("CAUSEWAY_KEY", path(&options.key)),
            ("CAUSEWAY_TOKEN_FILE", path(&options.token_file)),
        ];
        let said = said.into_iter();
        said.filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// The configuration as a program would find it. What is wrong in it is for the verb to say.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::load_with(&self.variables());
        if self.options.manager.is_some() {
            let named = settings.problems.iter_mut();
            for problem in named.filter(|problem| problem.origin == "CAUSEWAY_MANAGER") {
                "--manager".clone_into(&mut problem.origin);
            }
        }
        settings
    }

    /// Prints `value` as JSON, or what `text` makes of it.
    ///
    /// # Errors
    /// Nobody reads it.
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
            // `causeway leases | head -1` has what it wanted.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            Err(error) => Err(Failure::new(format!("nothing can be printed: {error}"))),
        }
    }

    /// Says on standard error what went wrong and what to do.
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
