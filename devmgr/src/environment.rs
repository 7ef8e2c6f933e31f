//! The environment in which a program sees Causeway's platform: alone, or in addition to the system's
//! platforms.
//!
//! Both loaders (ocl-icd and Khronos') take the folder of `.icd` files from `OCL_ICD_VENDORS`. So a
//! temporary folder is enough, and the program needs no change.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

/// The loaders' default folder of `.icd` files.
pub const SYSTEM_VENDORS: &str = "/etc/OpenCL/vendors";

/// Prefix of the names of the runs' folders.
const PREFIX: &str = "causeway-run-";
/// Age of a folder whose run has certainly locked it, if it still lives.
const LOCKED_WITHIN: Duration = Duration::from_secs(60);

/// A folder of `.icd` files for one run; removed on drop. If the tool is killed, a later run removes it.
#[derive(Debug)]
pub struct Vendors {
    folder: tempfile::TempDir,
    /// The program and its children inherit the lock. They may need the folder longer than the tool lives.
    _lock: File,
}

impl Vendors {
    /// Creates a folder that names `library`, and with `with_local` the system's own drivers too. Removes the
    /// folders of runs that were killed.
    ///
    /// # Errors
    /// The folder cannot be written, or the system's folder cannot be read.
    pub fn new(library: &Path, with_local: bool) -> io::Result<Vendors> {
        let parent = std::env::temp_dir();
        remove_left(&parent, LOCKED_WITHIN);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = lock(folder.path())?;
        std::fs::write(
            folder.path().join("causeway.icd"),
            format!("{}\n", library.display()),
        )?;
        if with_local {
            for file in system_icd_files()? {
                if let Some(name) = file.file_name().filter(|name| *name != "causeway.icd") {
                    std::fs::copy(&file, folder.path().join(name))?;
                }
            }
        }
        Ok(Vendors {
            folder,
            _lock: lock,
        })
    }

    /// Creates an empty `servers.toml`, for `CAUSEWAY_CONFIG`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn no_settings(&self) -> io::Result<PathBuf> {
        let path = self.folder.path().join("servers.toml");
        std::fs::write(&path, "")?;
        Ok(path)
    }

    /// The value for `OCL_ICD_VENDORS`.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Locks a folder, for this process and those that it starts.
fn lock(folder: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let folder = File::from(rustix::fs::open(folder, flags, Mode::empty())?);
    flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    Ok(folder)
}

/// Removes this user's folders of runs that have ended, if they are older than `age`. Ignores failures, because
/// this run needs none of these folders.
fn remove_left(parent: &Path, age: Duration) {
    let own = rustix::process::geteuid().as_raw();
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        if !name.to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            continue;
        }
        let is_left = || -> io::Result<bool> {
            let lock = lock(&entry.path())?;
            let found = lock.metadata()?;
            let is_old = found
                .modified()?
                .elapsed()
                .is_ok_and(|passed| passed >= age);
            Ok(is_old && found.uid() == own)
        };
        if is_left().unwrap_or(false) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The folder of `.icd` files that the loaders of this process read.
#[must_use]
pub fn vendors_folder() -> PathBuf {
    std::env::var_os("OCL_ICD_VENDORS")
        .map(PathBuf::from)
        .filter(|path| path.is_dir())
        .unwrap_or_else(|| PathBuf::from(SYSTEM_VENDORS))
}

/// The `.icd` files that the loaders of this process read, sorted. `OCL_ICD_VENDORS` names a folder or
/// one file. If it is not set, the folder is [`SYSTEM_VENDORS`].
///
/// # Errors
/// The folder exists and cannot be read.
pub fn system_icd_files() -> io::Result<Vec<PathBuf>> {
    icd_files_for(std::env::var_os("OCL_ICD_VENDORS").map(PathBuf::from))
}

// Reads the variable like ocl-icd. Its value is a folder, a file (in the system's folder if it has none),
// or a library. With a library, no file is read.
fn icd_files_for(vendors: Option<PathBuf>) -> io::Result<Vec<PathBuf>> {
    match vendors.filter(|value| !value.as_os_str().is_empty()) {
        None => icd_files_of(Path::new(SYSTEM_VENDORS)),
        Some(folder) if folder.is_dir() => icd_files_of(&folder),
        Some(file) if is_icd_file(&file) => {
            let inside = Path::new(SYSTEM_VENDORS).join(&file);
            Ok([file, inside]
                .into_iter()
                .find(|path| path.is_file())
                .into_iter()
                .collect())
        }
        Some(_) => Ok(Vec::new()),
    }
}

fn icd_files_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    files.retain(|path| is_icd_file(path));
    files.sort();
    Ok(files)
}

fn is_icd_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "icd")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_names_the_library_and_goes_with_the_run() {
        let vendors = Vendors::new(Path::new("/opt/libcauseway.so"), false).unwrap();
        let path = vendors.path().to_path_buf();
        let text = std::fs::read_to_string(path.join("causeway.icd")).unwrap();
        assert_eq!(text, "/opt/libcauseway.so\n");
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
        drop(vendors);
        assert!(!path.exists());
    }

    #[test]
    fn the_folder_of_a_killed_run_is_removed_when_its_program_has_ended() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let folder = parent.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("causeway.icd"), "").unwrap();
            folder
        };
        let (left, used) = (make("causeway-run-left"), make("causeway-run-used"));
        let other = make("other");
        let held = lock(&used).unwrap();
        // A program that was started meanwhile has the lock too.
        let mut program = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(held);
        remove_left(parent.path(), LOCKED_WITHIN);
        assert!(left.exists());
        remove_left(parent.path(), Duration::ZERO);
        assert!(!left.exists() && used.exists() && other.exists());
        drop(program.stdin.take());
        program.wait().unwrap();
        remove_left(parent.path(), Duration::ZERO);
        assert!(!used.exists());
    }

    #[test]
    fn the_variable_names_a_folder_a_file_or_a_library() {
        let vendors = Vendors::new(Path::new("/opt/libcauseway.so"), false).unwrap();
        let folder = vendors.path().to_path_buf();
        let file = folder.join("causeway.icd");
        let files = [file.clone()];
        assert_eq!(icd_files_for(Some(folder)).unwrap(), files);
        assert_eq!(icd_files_for(Some(file)).unwrap(), files);
        for other in ["/nowhere", "/nowhere/x.icd", "/opt/libcauseway.so"] {
            assert!(icd_files_for(Some(other.into())).unwrap().is_empty());
        }
        let system = icd_files_for(None).unwrap();
        assert_eq!(icd_files_for(Some(PathBuf::new())).unwrap(), system);
    }
}
