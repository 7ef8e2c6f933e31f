//! The C programs: built with the system's compiler and kept, or prebuilt.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::places::work_directory;
use crate::{SetupError, io_error};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs");

/// A directory of built programs. `api/buffer.c` becomes `api-buffer`.
#[derive(Clone)]
pub(crate) struct Programs {
    directory: PathBuf,
}

impl Programs {
    /// Builds the programs that are out of date, or uses the given directory.
    pub(crate) fn open(prebuilt: Option<&Path>) -> Result<Self, SetupError> {
        if let Some(directory) = prebuilt {
            let directory = fs::canonicalize(directory)
                .map_err(io_error(format!("no programs in {}", directory.display())))?;
            return Ok(Self { directory });
        }
        let directory = work_directory().join("programs");
        Self::build_into(&directory)?;
        Ok(Self { directory })
    }

    /// Builds every program of the source tree into the directory. Returns their paths.
    pub(crate) fn build_into(directory: &Path) -> Result<Vec<PathBuf>, SetupError> {
        fs::create_dir_all(directory)
            .map_err(io_error(format!("cannot make {}", directory.display())))?;
        let sources = Path::new(SOURCES);
        let headers = newest(&files(sources, "h")?);
        let mut built = Vec::new();
        for source in [files(sources, "c")?, files(&sources.join("api"), "c")?].concat() {
            let program = directory.join(program_name(sources, &source));
            let made = modified(&program);
            if made.is_none() || made <= modified(&source).max(headers) {
                compile(&source, &program, &[])?;
            }
            built.push(program);
        }
        for source in files(&sources.join("preload"), "c")? {
            let library = directory.join(library_name(&source));
            if modified(&library).is_none() || modified(&library) <= modified(&source) {
                compile(&source, &library, &["-shared", "-fPIC"])?;
            }
            built.push(library);
        }
        Ok(built)
    }

    /// Returns the library that presents several devices to a program; see its source.
    pub(crate) fn span(&self) -> Result<PathBuf, SetupError> {
        self.path("span.so")
    }

    /// Returns the program of this name.
    pub(crate) fn path(&self, name: &str) -> Result<PathBuf, SetupError> {
        let path = self.directory.join(name);
        if !path.exists() {
            return Err(SetupError::Missing(format!(
                "there is no program {}",
                path.display()
            )));
        }
        Ok(path)
    }

    /// Returns the programs whose names start with the prefix, sorted, with the prefix removed. If the
    /// source tree exists, programs without a source are ignored.
    pub(crate) fn with_prefix(&self, prefix: &str) -> Result<Vec<(String, PathBuf)>, SetupError> {
        let known: Vec<PathBuf> = files(&Path::new(SOURCES).join("api"), "c").unwrap_or_default();
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(io_error("cannot list programs"))? {
            let path = entry.map_err(io_error("cannot list programs"))?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let Some(rest) = name.strip_prefix(prefix) else {
                continue;
            };
            let has_source = |source: &PathBuf| source.file_stem().is_some_and(|stem| stem == rest);
            if known.is_empty() || known.iter().any(has_source) {
                found.push((rest.to_owned(), path.clone()));
            }
        }
        found.sort();
        Ok(found)
    }
}

fn program_name(sources: &Path, source: &Path) -> String {
    let inner = source
        .strip_prefix(sources)
        .unwrap_or(source)
        .with_extension("");
    inner.to_string_lossy().replace('/', "-")
}

fn library_name(source: &Path) -> String {
    let stem = source.file_stem().unwrap_or_default();
    format!("{}.so", stem.to_string_lossy())
}

fn compile(source: &Path, program: &Path, more: &[&str]) -> Result<(), SetupError> {
    let output = Command::new("cc")
        .args(["-std=c99", "-O1", "-g", "-Wall", "-Wextra"])
        .args(more)
        .arg("-o")
        .arg(program)
        .arg(source)
        // `--as-needed`: a program that loads OpenCL by hand must not be linked with it.
        .args(["-Wl,--as-needed", "-lOpenCL", "-lpthread", "-ldl"])
        .output()
        .map_err(io_error("cannot run the C compiler cc"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(SetupError::Build {
        program: source.display().to_string(),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>, SetupError> {
    let entries = fs::read_dir(directory)
        .map_err(io_error(format!("cannot list {}", directory.display())))?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    Ok(files)
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).ok()
}

fn newest(paths: &[PathBuf]) -> Option<SystemTime> {
    paths.iter().filter_map(|path| modified(path)).max()
}
