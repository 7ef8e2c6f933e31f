//! Listening sockets: opened by the daemon or passed by the service manager, and one for lanes through
//! shared memory.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use causeway_lane::DaemonPlace;
use causeway_serving::watched::Listener;
use tokio::net::{TcpListener, UnixListener};
use uuid::Uuid;

use super::CannotStart;
use crate::config::Settings;

/// Returns the listeners that the service manager passed. If there are none, opens those that the settings
/// name.
pub(super) fn listeners(
    settings: &Settings,
    inherited: Vec<OwnedFd>,
) -> Result<Vec<TcpListener>, CannotStart> {
    let passed = !inherited.is_empty();
    let listeners = if passed {
        inherited
            .into_iter()
            .map(|fd| adopt(settings, fd))
            .collect::<Result<Vec<_>, _>>()?
    } else {
        settings
            .listen
            .iter()
            .map(|address| bind(*address))
            .collect::<Result<Vec<_>, _>>()?
    };
    warn_of_exposure(settings, &listeners);
    Ok(listeners)
}

/// Opens Unix sockets at these paths. Everyone with write permission on a socket's file can use
/// the node. With the usual umask that is the daemon's user only.
pub(super) fn sockets(paths: &[PathBuf]) -> Result<(Vec<UnixListener>, SocketFiles), CannotStart> {
    let mut listeners = Vec::new();
    let mut files = Vec::new();
    for path in paths {
        listeners.push(bind_socket(path)?);
        files.push((path.clone(), identity(path)));
    }
    Ok((listeners, SocketFiles(files)))
}

/// The files of the sockets that this daemon has opened, each with its identity.
pub(super) struct SocketFiles(Vec<(PathBuf, Option<Identity>)>);

/// The device and the inode of a socket's file.
type Identity = (u64, u64);

impl SocketFiles {
    /// Removes the files. Leaves those that others have put in their place. For a private daemon, also removes
    /// the folder, which was made for it.
    pub(super) fn remove(&self, is_private: bool) {
        for (path, opened) in &self.0 {
            if opened.is_some() && identity(path) == *opened {
                // Nothing can be done about a failure.
                let _ = std::fs::remove_file(path);
            }
            if let (true, Some(folder)) = (is_private, path.parent()) {
                let _ = std::fs::remove_dir(folder);
            }
        }
    }
}

/// Returns the identity of the socket at `path`. Follows no link; returns `None` for every other file.
fn identity(path: &Path) -> Option<Identity> {
    let found = std::fs::symlink_metadata(path).ok()?;
    (found.file_type().is_socket()).then(|| (found.dev(), found.ino()))
}

fn bind_socket(path: &Path) -> Result<UnixListener, CannotStart> {
    use std::os::unix::net::{UnixListener as Listener, UnixStream};
    let failed = |error| CannotStart::Listen {
        address: format!("unix:{}", path.display()),
        error,
    };
    let listener = match Listener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            // A connection to an ordinary file is refused too.
            if identity(path).is_none() {
                return Err(CannotStart::NoSocket(path.to_owned()));
            }
            // A daemon that was killed leaves its socket's file. A refused connection shows that no process
            // listens on it any more.
            let nobody = UnixStream::connect(path).err().map(|error| error.kind());
            if nobody != Some(ErrorKind::ConnectionRefused) {
                return Err(failed(error));
            }
            std::fs::remove_file(path).map_err(failed)?;
            Listener::bind(path).map_err(failed)?
        }
        bound => bound.map_err(failed)?,
    };
    listener.set_nonblocking(true).map_err(failed)?;
    UnixListener::from_std(listener).map_err(failed)
}

/// Opens the listener for metrics and health checks, if the settings name one.
pub(super) fn watchers(settings: &Settings) -> Result<Option<Listener>, CannotStart> {
    let bind = |address: SocketAddr| {
        let tls = settings.security.tls.as_ref();
        Listener::bind(address, tls, settings.insecure).map_err(|error| CannotStart::Listen {
            address: address.to_string(),
            error,
        })
    };
    settings.metrics.map(bind).transpose()
}

/// Opens the rendezvous for clients on this host that can share memory. Without it, their data goes over
/// TCP. The socket's name depends on `salt`.
pub(super) fn place(salt: &Uuid) -> Option<(DaemonPlace, UnixListener)> {
    let place = DaemonPlace::here(*salt.as_bytes())?;
    let listener = place.listen().and_then(|listener| {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    });
    match listener {
        Ok(listener) => Some((place, listener)),
        Err(error) => {
            tracing::warn!(
                %error,
                "shared memory with clients of this host is not available; their data goes over TCP"
            );
            None
        }
    }
}

/// Prints one line for each listener on standard output. The process that started the daemon may read the
/// chosen ports there.
pub(super) fn announce(
    addresses: &[SocketAddr],
    sockets: &[PathBuf],
    watched_at: Option<SocketAddr>,
) {
    let mut out = std::io::stdout().lock();
    let addresses = addresses.iter().map(ToString::to_string);
    let sockets = sockets
        .iter()
        .map(|path| format!("unix:{}", path.display()));
    for address in addresses.chain(sockets) {
        tracing::info!(%address, "listening");
        // The daemon serves even if standard output is closed.
        let _ = writeln!(out, "listening on {address}");
    }
    if let Some(address) = watched_at {
        tracing::info!(%address, "metrics");
        let _ = writeln!(out, "metrics on {address}");
    }
    let _ = out.flush();
}

/// Reports on standard output that a private daemon has no device to serve, and why.
pub(super) fn announce_nothing(problems: &[String]) {
    let mut out = std::io::stdout().lock();
    let why = problems.join("; ").replace('\n', " ");
    let _ = writeln!(out, "no device {why}");
    let _ = out.flush();
}

fn bind(address: SocketAddr) -> Result<TcpListener, CannotStart> {
    let failed = |error| CannotStart::Listen {
        address: address.to_string(),
        error,
    };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    prepare(listener).map_err(failed)
}

fn adopt(settings: &Settings, fd: OwnedFd) -> Result<TcpListener, CannotStart> {
    let listener = std::net::TcpListener::from(fd);
    let address = listener.local_addr().map_err(|error| CannotStart::Listen {
        address: "a socket passed by the service manager".to_owned(),
        error,
    })?;
    settings.check_exposure(&address)?;
    Ok(prepare(listener)?)
}

fn prepare(listener: std::net::TcpListener) -> std::io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn warn_of_exposure(settings: &Settings, listeners: &[TcpListener]) {
    for address in listeners.iter().filter_map(|l| l.local_addr().ok()) {
        if settings.exposes(&address) {
            tracing::warn!(
                %address,
                "INSECURE: everyone who can reach this address can run code on this machine's devices and read the \
                 traffic, because --insecure is set"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Result<(Vec<UnixListener>, SocketFiles), CannotStart> {
        sockets(&[path.to_owned()])
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "data").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &link] {
            let refused = open(path).err();
            assert!(
                matches!(&refused, Some(CannotStart::NoSocket(at)) if at == path),
                "{refused:?}"
            );
            assert_eq!(std::fs::read_to_string(path).unwrap(), "data");
        }
        assert!(link.is_symlink());
    }

    #[tokio::test]
    async fn the_socket_of_a_daemon_that_was_killed_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let (listeners, files) = open(&path).unwrap();
        // A daemon that serves keeps its socket.
        assert!(matches!(open(&path), Err(CannotStart::Listen { .. })));
        drop(listeners);
        files.remove(false);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn the_end_leaves_what_others_have_put_in_the_place_of_a_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (_listeners, files) = open(&path).unwrap();
        std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        std::fs::write(&path, "data").unwrap();
        files.remove(false);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
        std::fs::remove_file(&path).unwrap();
        let _another = std::os::unix::net::UnixListener::bind(&path).unwrap();
        files.remove(false);
        assert!(path.exists());
    }
}
