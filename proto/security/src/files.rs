//! Reads certificates, keys and tokens from files, and checks who else can access a file.
//!
//! Invariant: a secret file that others can read, change or replace is refused before its contents are
//! used. No error text quotes the contents.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use crate::secret::Secret;

/// Maximum size of a file in bytes. No valid file is that long.
const MOST_BYTES: u64 = 1 << 20;
/// Permission bits that a secret file must not have: others have no access, and the group may only read,
/// because services share keys in this way.
const FORBIDDEN: u32 = 0o037;
/// Permission bit: everybody may write.
const BY_EVERYBODY: u32 = 0o002;
/// Permission bit of a folder: only a file's owner may remove the file.
const STICKY: u32 = 0o1000;

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct BadFile {
    path: PathBuf,
    problem: String,
}

impl BadFile {
    pub(crate) fn new(path: &Path, problem: impl ToString) -> BadFile {
        BadFile {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }

    /// The problem, without the file's name.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

/// Checks whether settings may come from a file. They may not if every local user can change or replace
/// it. Special files (`/dev/null`) and missing files pass the check.
///
/// # Errors
/// [`BadFile`].
pub fn check_settings(path: &Path) -> Result<(), BadFile> {
    let Some(metadata) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else {
        return Ok(());
    };
    if metadata.mode() & BY_EVERYBODY != 0 {
        let mode = metadata.mode() & 0o777;
        let problem = format!(
            "the file is not used, because everybody can write it (mode {mode:o}); run chmod o-w {}",
            path.display()
        );
        return Err(BadFile::new(path, problem));
    }
    check_folders(path)
}

/// Checks whether a private file may be used, or created if it does not exist. Only its owner and its
/// group may read it, and only its owner may change it. Only the owner and the group of its folder may
/// replace it.
///
/// # Errors
/// [`BadFile`].
pub fn check_own(path: &Path) -> Result<(), BadFile> {
    if let Ok(metadata) = fs::metadata(path) {
        check_secret(path, &metadata)?;
    }
    check_folders(path)
}

fn check_secret(path: &Path, metadata: &fs::Metadata) -> Result<(), BadFile> {
    if metadata.mode() & FORBIDDEN != 0 {
        let mode = metadata.mode() & 0o777;
        return Err(BadFile::new(
            path,
            format!(
                "the file is not used, because others can access it (mode {mode:o}); run chmod 600 {}",
                path.display()
            ),
        ));
    }
    Ok(())
}

/// Checks the folder that the path names, and the folder that contains the file after links are resolved.
fn check_folders(path: &Path) -> Result<(), BadFile> {
    check_folder(path)?;
    match path.canonicalize() {
        Ok(whole) if whole != path => check_folder(&whole),
        _ => Ok(()),
    }
}

fn check_folder(path: &Path) -> Result<(), BadFile> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    // Opening the file later reports what is wrong with such a folder.
    let Ok(of_folder) = fs::metadata(folder) else {
        return Ok(());
    };
    if of_folder.mode() & BY_EVERYBODY == 0 {
        return Ok(());
    }
    if of_folder.mode() & STICKY == 0 {
        let mode = of_folder.mode() & 0o7777;
        let problem = format!(
            "the file is not used, because everybody can write its folder {} (mode {mode:o}) and so replace it; run \
             chmod o-w {0}",
            folder.display()
        );
        return Err(BadFile::new(path, problem));
    }
    // In a folder such as /tmp, another user may have created the file first.
    let ours = [0, rustix::process::geteuid().as_raw(), of_folder.uid()];
    match fs::symlink_metadata(path) {
        Ok(of_file) if !ours.contains(&of_file.uid()) => {
            let problem = format!(
                "the file is not used, because it belongs to another user (uid {}) and everybody can write {}; move it \
                 into a folder of its owner",
                of_file.uid(),
                folder.display()
            );
            Err(BadFile::new(path, problem))
        }
        _ => Ok(()),
    }
}

/// Reads a secret file: a token or a key.
///
/// # Errors
/// [`BadFile`], also if anybody but its owner and group can read it, or anybody but its owner can change
/// it.
pub fn read_secret(path: &Path) -> Result<Secret, BadFile> {
    let (file, metadata) = open(path)?;
    check_secret(path, &metadata)?;
    check_folders(path)?;
    read(path, file, &metadata).map(|bytes| Secret::new(bytes.to_vec()))
}

/// Reads a file that everybody may read, but only its owner may change.
pub(crate) fn read_public(path: &Path) -> Result<Vec<u8>, BadFile> {
    let (file, metadata) = open(path)?;
    if metadata.mode() & 0o022 != 0 {
        let mode = metadata.mode() & 0o777;
        let problem = format!(
            "the file is not used, because others can write it (mode {mode:o}); run chmod go-w on it"
        );
        return Err(BadFile::new(path, problem));
    }
    check_folders(path)?;
    read(path, file, &metadata).map(|bytes| bytes.to_vec())
}

/// Reads all certificates of a file, at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, BadFile> {
    let text = read_public(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(BadFile::new(
            path,
            "the file contains no certificate in PEM format",
        )),
        Err(error) => Err(BadFile::new(
            path,
            format!("the file is not valid PEM: {error}"),
        )),
    }
}

/// Reads the certificates of a file as trusted CAs.
pub(crate) fn roots(path: &Path) -> Result<RootCertStore, BadFile> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| BadFile::new(path, error))?;
    }
    Ok(roots)
}

/// Reads the private key of a file.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, BadFile> {
    let text = read_secret(path)?;
    // The parser's error may quote the file, so it is not passed on.
    PrivateKeyDer::from_pem_slice(text.reveal())
        .map_err(|_| BadFile::new(path, "the file contains no private key in PEM format"))
}

// Opens a regular file. Reading any other kind could block or never end.
fn open(path: &Path) -> Result<(File, fs::Metadata), BadFile> {
    let failed = |error: io::Error| BadFile::new(path, format!("cannot be read: {error}"));
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(BadFile::new(
            path,
            "the file is not used, because it is not a regular file",
        ));
    }
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.len() > MOST_BYTES {
        let problem = format!("the file is not used, because it is larger than {MOST_BYTES} bytes");
        return Err(BadFile::new(path, problem));
    }
    Ok((file, metadata))
}

const LEAST_CAPACITY: u64 = 64;

fn read(path: &Path, file: File, metadata: &fs::Metadata) -> Result<Zeroizing<Vec<u8>>, BadFile> {
    // With enough capacity from the start, the buffer never grows, and growing would leave unwiped copies
    // behind. The whole capacity is wiped, byte by byte, so it is not larger than the file. Some file
    // systems report no size. With less than `LEAST_CAPACITY`, `read_to_end` reads into its stack first.
    let most = match metadata.len() {
        0 => MOST_BYTES,
        size => size,
    };
    let mut bytes = Zeroizing::new(Vec::with_capacity(most.max(LEAST_CAPACITY) as usize));
    file.take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| BadFile::new(path, format!("cannot be read: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secrets_that_others_can_get_at_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "hunter2").unwrap();
        for (mode, used) in [
            (0o600, true),
            (0o400, true),
            (0o640, true),
            (0o644, false),
            (0o660, false),
            (0o602, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = read_secret(&path);
            assert_eq!(read.is_ok(), used, "{mode:o}");
            assert!(!format!("{read:?}").contains("hunter2"));
            assert_eq!(read_public(&path).is_ok(), mode & 0o022 == 0, "{mode:o}");
        }
    }

    #[test]
    fn the_buffer_that_is_wiped_is_as_large_as_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let contents = "x".repeat(1000);
        fs::write(&path, &contents).unwrap();
        let (file, metadata) = open(&path).unwrap();
        let bytes = read(&path, file, &metadata).unwrap();
        assert_eq!(
            (bytes.as_slice(), bytes.capacity()),
            (contents.as_bytes(), 1000)
        );
        // The kernel reports the size of this file as 0.
        let path = Path::new("/proc/self/status");
        let (file, metadata) = open(path).unwrap();
        assert_eq!(metadata.len(), 0);
        assert!(read(path, file, &metadata).unwrap().starts_with(b"Name:"));
    }

    #[test]
    fn a_file_that_everybody_can_change_or_replace_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let path = folder.path().join("file");
        let link = tempfile::tempdir().unwrap().keep().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for (of_folder, mode, settings, own) in [
            (0o755, 0o600, true, true),
            (0o755, 0o664, true, false),
            (0o775, 0o640, true, true),
            (0o755, 0o644, true, false),
            (0o755, 0o666, false, false),
            (0o755, 0o602, false, false),
            (0o777, 0o600, false, false),
            (0o1777, 0o600, true, true),
        ] {
            fs::write(&path, "").unwrap();
            set(&path, mode);
            set(folder.path(), of_folder);
            for path in [&path, &link] {
                let case = format!("{of_folder:o} {mode:o} {}", path.display());
                assert_eq!(check_settings(path).is_ok(), settings, "{case}");
                assert_eq!(check_own(path).is_ok(), own, "{case}");
                if of_folder == 0o777 {
                    assert!(read_secret(path).is_err() && read_public(path).is_err());
                    let text = check_own(path).unwrap_err().to_string();
                    assert!(text.contains("chmod o-w"), "{text}");
                } else if !own {
                    let text = check_own(path).unwrap_err().to_string();
                    assert!(
                        text.contains(&format!("chmod 600 {}", path.display())),
                        "{text}"
                    );
                }
            }
        }
        set(folder.path(), 0o777);
        assert!(check_own(&folder.path().join("to be made")).is_err());
        assert!(check_settings(Path::new("/dev/null")).is_ok());
        assert!(check_settings(Path::new("/nowhere/at/all")).is_ok());
        fs::remove_dir_all(link.parent().unwrap()).unwrap();
    }

    #[test]
    fn what_is_in_a_broken_file_is_not_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        fs::write(&path, "-----BEGIN PRIVATE KEY-----\nhunter2\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = private_key(&path).unwrap_err().to_string();
        assert!(
            error.contains("no private key") && !error.contains("hunter2"),
            "{error}"
        );
        assert!(certificates(&path).is_err());
        assert!(read_secret(folder.path()).is_err());
        assert!(read_secret(&folder.path().join("nowhere")).is_err());
    }
}
