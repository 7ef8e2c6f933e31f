//! Configuration files: their table, and the position of errors in them.

use std::path::{Path, PathBuf};

use causeway_proto::settings::Fault;
use serde::de::DeserializeOwned;
use toml::Spanned;

/// A configuration file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum BadFile {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// Other users can change the file.
    #[error(transparent)]
    Exposed(#[from] causeway_security::BadFile),
    /// The contents are not valid.
    #[error("{}:{line}: {message}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The error in that line.
        message: String,
    },
}

/// The table of a file, with the text, to find the line of an error.
#[derive(Debug)]
pub struct ConfigFile<Table> {
    path: PathBuf,
    text: String,
    /// The contents.
    pub table: Table,
}

impl<Table: DeserializeOwned> ConfigFile<Table> {
    /// Reads the file that a flag names, else the program's default file, if that exists. Without either,
    /// the table is empty.
    ///
    /// # Errors
    /// As [`ConfigFile::read`].
    pub fn load(named: Option<&Path>, default: &Path) -> Result<Self, BadFile> {
        if let Some(path) = named {
            return ConfigFile::read(path);
        }
        match ConfigFile::read(default) {
            Err(BadFile::Unreadable { error, .. })
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                ConfigFile::parse(default, String::new())
            }
            other => other,
        }
    }

    /// Reads and parses a file.
    ///
    /// # Errors
    /// [`BadFile`] when the file cannot be read, everybody can change it, it is not TOML, or it has an
    /// unknown key.
    pub fn read(path: &Path) -> Result<Self, BadFile> {
        causeway_security::check_settings(path)?;
        let text = std::fs::read_to_string(path).map_err(|error| BadFile::Unreadable {
            path: path.to_owned(),
            error,
        })?;
        ConfigFile::parse(path, text)
    }

    /// Parses a text that was read from `path`.
    ///
    /// # Errors
    /// As [`ConfigFile::read`].
    pub fn parse(path: &Path, text: String) -> Result<Self, BadFile> {
        match toml::from_str(&text) {
            Ok(table) => Ok(ConfigFile {
                path: path.to_owned(),
                text,
                table,
            }),
            Err(error) => Err(BadFile::wrong(path, Fault::of(&text, error))),
        }
    }

    /// An error with the position of a value of this file.
    #[must_use]
    pub fn wrong<T>(&self, at: &Spanned<T>, message: &dyn std::fmt::Display) -> BadFile {
        BadFile::wrong(&self.path, Fault::at(&self.text, at.span().start, message))
    }
}

impl BadFile {
    fn wrong(path: &Path, Fault { line, message }: Fault) -> BadFile {
        BadFile::Wrong {
            path: path.to_owned(),
            line,
            message,
        }
    }
}
