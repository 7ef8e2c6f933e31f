//! Configuration files: their table, and the position of errors in them.

use std::path::{Path, PathBuf};

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

    /// As [`ConfigFile::read`], for a file that may be missing. Returns `None` if it is.
    ///
    /// # Errors
    /// As [`ConfigFile::read`], except for a missing file.
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

    /// Parses a text that was read from `path`.
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

    /// An error with the position of a value of this file.
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
