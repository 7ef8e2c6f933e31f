//! The tool `causeway` against a real manager, as administrators and users run it.

mod administration;
mod cards;
mod certificates;
mod doctor;
mod errors;
mod leaving;
mod links;
mod lists;
mod live;
mod pages;
mod private;
mod remarks;
mod repeating;
mod run;
pub(crate) mod running;
mod secrets;
mod traced;
mod waiting;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::process::Manager;

/// A user's shell. The tool inherits nothing of this process's environment.
pub(crate) struct Tool {
    home: tempfile::TempDir,
    variables: Vec<(String, OsString)>,
}

/// The exit code and output of a command.
#[derive(Debug)]
pub(crate) struct ToolOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Tool {
    pub(crate) fn of(user: &str) -> Tool {
        let tool = Tool {
            home: tempfile::tempdir().unwrap(),
            variables: Vec::new(),
        };
        tool.with("USER", user)
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<OsString>) -> Tool {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Another program in the same environment.
    pub(crate) fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.home())
            .stdin(Stdio::null());
        command
    }

    /// The tool with arguments in one line; no argument contains a space.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_causeway"));
        command.args(arguments.split_whitespace());
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> ToolOutput {
        said(self.command(arguments))
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) fn does(&self, arguments: &str) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        said.out
    }

    /// Runs a command that must fail, and returns its standard error.
    pub(crate) fn refuses(&self, arguments: &str) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(1), "{arguments:?}: {said:?}");
        assert_eq!(said.out, "", "{arguments:?}");
        said.err
    }

    pub(crate) fn json(&self, arguments: &str) -> Value {
        let said = self.run(&format!("--json {arguments}"));
        serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
    }
}

/// Runs a command to its end.
pub(crate) fn said(mut command: Command) -> ToolOutput {
    let output = command.output().unwrap();
    ToolOutput {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A manager with TLS and authentication, with certificates that the tool has made.
pub(crate) struct Secured {
    pub(crate) manager: Manager,
    folder: tempfile::TempDir,
}

impl Secured {
    pub(crate) fn start() -> Secured {
        Secured::configured("")
    }

    /// Starts a manager with more settings.
    pub(crate) fn configured(more: &str) -> Secured {
        let folder = tempfile::tempdir().unwrap();
        let tool = Tool::of("root");
        let ca = folder.path().to_str().unwrap();
        tool.does(&format!("certs ca {ca}"));
        tool.does(&format!(
            "certs node manager --address 127.0.0.1 --from {ca}"
        ));
        let path = |name| folder.path().join(name);
        let manager = Manager::configured(&format!(
            "authenticate = true\n[tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n{more}\n",
            path("manager.pem"),
            path("manager.key"),
            path("ca.pem"),
        ));
        Secured { manager, folder }
    }

    /// The folder of the CA and its certificates.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A user without credentials.
    pub(crate) fn nobody(&self) -> Tool {
        Tool::of("somebody")
            .with("CAUSEWAY_MANAGER", self.manager.address.to_string())
            .with("CAUSEWAY_CA", self.path("ca.pem"))
    }

    /// A user with a token.
    pub(crate) fn bearer(&self, token: &Path) -> Tool {
        self.nobody().with("CAUSEWAY_TOKEN_FILE", token)
    }

    /// The first administrator, with the token that the manager has written.
    pub(crate) fn admin(&self) -> Tool {
        let mut path = self.manager.store().as_os_str().to_owned();
        path.push(".admin-token");
        self.bearer(Path::new(&path))
    }

    /// Adds a user, with a token in a file.
    pub(crate) fn user(&self, name: &str) -> Tool {
        self.named(name, &format!("{name}.token"))
    }

    /// Adds a user, with a token in the file of this name.
    pub(crate) fn named(&self, name: &str, file: &str) -> Tool {
        let admin = self.admin();
        admin.does(&format!("users add {name}"));
        let token = self.path(file);
        let out = token.display();
        admin.does(&format!("tokens create {name} --out {out}"));
        self.bearer(&token)
    }
}
