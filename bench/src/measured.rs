//! Times that one experiment measures and another uses: files in the folder of the plots.
//!
//! [`sustainability`](crate::sustainability) measures parking, and [`matrix`](crate::matrix) what a lost node costs.
//! Invariant: a file contains figures of one run on one machine, which it names.
#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Where and when something was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The device.
    pub(crate) device: String,
    /// Seconds since 1970.
    pub(crate) time: u64,
}

impl Origin {
    /// This device, now.
    pub(crate) fn now(device: &str) -> Origin {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Origin {
            device: device.to_owned(),
            time: now.unwrap_or_default().as_secs(),
        }
    }

    /// The age in words.
    pub(crate) fn age(&self) -> String {
        let age = Origin::now("").time.saturating_sub(self.time);
        match age {
            0..60 => "just now".to_owned(),
            60..7200 => format!("{} min ago", age / 60),
            7200..172_800 => format!("{} h ago", age / 3600),
            _ => format!("{} days ago", age / 86400),
        }
    }
}

/// Times of a session that was parked and taken back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parking {
    /// Bytes of device memory that the session had.
    pub(crate) bytes: u64,
    /// Median of the seconds from SIGTERM to the end of the daemon.
    pub(crate) create: f64,
    /// Median of the seconds from the start of the next daemon until the program had a result.
    pub(crate) recover: f64,
    /// Where and when.
    pub(crate) origin: Origin,
}

/// What a lost node costs a farm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Loss {
    /// Mean seconds of a worker that a lost node costs, divided by the workers.
    pub(crate) seconds: f64,
    /// The number of lost nodes.
    pub(crate) count: usize,
    /// The number of workers.
    pub(crate) workers: usize,
    /// Where and when.
    pub(crate) origin: Origin,
}

/// Figures with a file of their own.
pub(crate) trait Kept: Serialize + DeserializeOwned {
    /// The name of the file.
    const FILE: &str;

    /// Writes the file into a folder. Returns its path.
    fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        let path = folder.join(Self::FILE);
        std::fs::write(&path, serde_json::to_string_pretty(self)?)?;
        Ok(path)
    }

    /// Reads the file from a folder; `None` if there is none.
    fn read(folder: &Path) -> io::Result<Option<Self>> {
        let path = folder.join(Self::FILE);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        serde_json::from_str(&text).map(Some).map_err(|error| {
            let path = path.display();
            io::Error::other(format!(
                "{path} is not what the experiment writes: {error}; remove the file and measure again"
            ))
        })
    }
}

impl Kept for Parking {
    const FILE: &str = "parking.json";
}

impl Kept for Loss {
    const FILE: &str = "lost-nodes.json";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_back_and_may_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Parking::read(folder.path()).unwrap(), None);
        let parking = Parking {
            bytes: 1 << 20,
            create: 0.25,
            recover: 0.5,
            origin: Origin::now("a device"),
        };
        parking.write(folder.path()).unwrap();
        assert_eq!(Parking::read(folder.path()).unwrap(), Some(parking));
        assert_eq!(Loss::read(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_damaged_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(Loss::FILE), "{}").unwrap();
        let error = Loss::read(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains(Loss::FILE) && error.contains("remove"),
            "{error}"
        );
    }

    #[test]
    fn ages_have_a_unit() {
        let mut origin = Origin::now("");
        assert_eq!(origin.age(), "just now");
        origin.time -= 3 * 3600;
        assert_eq!(origin.age(), "3 h ago");
    }
}
