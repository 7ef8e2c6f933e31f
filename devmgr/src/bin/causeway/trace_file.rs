//! The file with the trace of a run: the library writes a part for each process, and this module makes one file of
//! them.
//!
//! The parts are in a folder next to the file. If the tool is killed, they stay there, and each is a trace of its own.
//! Invariant: the file is either the old one or a whole new one.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_trace::{json, read};
use tempfile::{NamedTempFile, TempDir};

use crate::failure::Failure;
use crate::say::say;

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Perfetto's own.
    Perfetto,
    /// Chrome's, which is JSON.
    Chrome,
}

impl Format {
    /// Chooses the format by the name of the file.
    pub(crate) fn of(path: &Path) -> Format {
        match path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            true => Format::Chrome,
            false => Format::Perfetto,
        }
    }

    /// The usual extension of a file's name.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Format::Perfetto => "pftrace",
            Format::Chrome => "json",
        }
    }
}

/// A trace that is being written.
pub(crate) struct TraceFile {
    path: PathBuf,
    format: Format,
    parts: TempDir,
}

impl TraceFile {
    /// Makes the folder for the parts.
    ///
    /// # Errors
    /// The file cannot be written there.
    pub(crate) fn begin(path: &Path, format: Format) -> Result<TraceFile, Failure> {
        let failed = |error: io::Error| cannot_write(path, &error);
        if path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        // The program may change its working directory.
        let path = std::path::absolute(path).map_err(failed)?;
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        };
        let mut prefix = name.to_owned();
        prefix.push(".");
        let parts = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".parts")
            .tempdir_in(folder)
            .map_err(failed)?;
        Ok(TraceFile {
            path,
            format,
            parts,
        })
    }

    /// Has the program's processes write their parts.
    pub(crate) fn ask_of(&self, command: &mut Command) {
        let folder = self.parts.path().as_os_str().as_bytes();
        let mut part = Vec::new();
        for byte in folder {
            part.push(*byte);
            // The library takes a single one for a placeholder.
            if *byte == b'%' {
                part.push(*byte);
            }
        }
        part.extend(b"/%p");
        command.env(
            causeway::trace::VARIABLE,
            std::ffi::OsStr::from_bytes(&part),
        );
    }

    /// Makes the file of the parts. The program has ended. A failure is reported, and the parts are kept then.
    pub(crate) fn end(self, is_quiet: bool) {
        let made = self.parts().and_then(|parts| {
            if !parts.is_empty() {
                self.write(&parts)?;
            }
            Ok(parts.len())
        });
        let path = self.path.display();
        match made {
            Ok(0) => say!(
                "causeway run: there is no trace, because the program has not used Causeway's platform"
            ),
            Ok(_) if is_quiet => {}
            Ok(1) => say!("causeway run: the trace is in {path}"),
            Ok(count) => say!("causeway run: the trace of {count} processes is in {path}"),
            Err(error) => {
                say!("causeway run: {}", cannot_write(&self.path, &error));
                let parts = self.parts.keep();
                say!(
                    "  → its parts, which are traces too, are in {}",
                    parts.display()
                );
            }
        }
    }

    // The paths of the parts, in the order of their processes.
    fn parts(&self) -> io::Result<Vec<PathBuf>> {
        let listed = fs::read_dir(self.parts.path())?;
        let mut parts: Vec<PathBuf> = listed
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<_>>()?;
        parts.sort();
        Ok(parts)
    }

    fn write(&self, parts: &[PathBuf]) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let file = NamedTempFile::new_in(folder)?;
        // As other files that a program creates, and not for its owner alone.
        let mode = File::open(&parts[0])?.metadata()?.permissions();
        file.as_file().set_permissions(mode)?;
        let mut out = BufWriter::new(file.as_file());
        match self.format {
            Format::Perfetto => {
                for part in parts {
                    let bytes = fs::read(part)?;
                    for packet in read::raw_packets(&bytes) {
                        out.write_all(packet)?;
                    }
                }
            }
            Format::Chrome => {
                let mut all = read::Contents::default();
                for part in parts {
                    let contents = read::contents(&fs::read(part)?);
                    all.tracks.extend(contents.tracks);
                    all.events.extend(contents.events);
                }
                json::write(&all, &mut out)?;
            }
        }
        out.flush()?;
        drop(out);
        file.persist(&self.path)?;
        Ok(())
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!(
        "the trace {} cannot be written: {error}",
        path.display()
    ))
}
