//! A configuration file: its shape, and where in it something is wrong.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::Spanned;

/// A configuration file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum BadFile {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Others can change it.
    #[error(transparent)]
    Exposed(#[from] causeway_security::BadFile),
    /// It says what no setting means.
    #[error("{}:{line}: {message}", path.display())]
    Wrong {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
}

/// A file that was read and has the right shape, with what is needed to point into it.
#[derive(Debug)]
pub struct ConfigFile<Table> {
    path: PathBuf,
    text: String,
    /// What it says.
    pub table: Table,
}

impl<Table: DeserializeOwned> ConfigFile<Table> {
    /// Reads a file.
    ///
    /// # Errors
    /// [`BadFile`] when it cannot be read, everybody can change it, it is no TOML, or has an unknown key.
    pub fn read(path: &Path) -> Result<Self, BadFile> {
        causeway_security::check_settings(path)?;
        let text = std::fs::read_to_string(path).map_err(|error| BadFile::Unreadable {
            path: path.to_owned(),
            error,
        })?;
        ConfigFile::parse(path, text)
    }

    /// Reads a file that need not be there.
    ///
    /// # Errors
    /// As [`ConfigFile::read`]; that there is no file is no error.
    pub fn read_if_there(path: &Path) -> Result<Option<Self>, BadFile> {
        match ConfigFile::read(path) {
            Err(BadFile::Unreadable { error, .. })
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Understands a text that was read from `path`.
    ///
    /// # Errors
    /// As [`ConfigFile::read`].
    pub fn parse(path: &Path, text: String) -> Result<Self, BadFile> {
        let parsed = toml::from_str(&text).map_err(|error: toml::de::Error| BadFile::Wrong {
            path: path.to_owned(),
            line: line_of(&text, error.span().map_or(0, |span| span.start)),
            message: error.message().to_owned(),
        })?;
        Ok(ConfigFile {
            path: path.to_owned(),
            text,
            table: parsed,
        })
    }

    /// The error that points at a value of this file.
    #[must_use]
    pub fn wrong<T>(&self, at: &Spanned<T>, message: &dyn std::fmt::Display) -> BadFile {
        BadFile::Wrong {
            path: self.path.clone(),
            line: line_of(&self.text, at.span().start),
            message: message.to_string(),
        }
    }
}

fn line_of(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|&b| b == b'\n').count()
}
