//! The source of the configuration, and the configuration that is valid now.
//!
//! `FAKE_OPENCL_CONFIG` has the text itself (it contains a `=`) or the path of a control
//! file. A file is checked before every call and read again when it has changed. This costs
//! about a microsecond per call; a text costs nothing. A file that is wrong or cannot be read
//! leaves the settings unchanged, with a message on stderr.
//!
//! Invariant: [`current`] is never older than the file at the beginning of the running call. Settings
//! that were valid once stay in memory, because other threads may still read them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::config::Config;

/// Calls are written to a log.
pub(crate) const LOG: u32 = 1;
/// There is a control file to check.
pub(crate) const FILE: u32 = 2;
/// There are rules for calls.
pub(crate) const CALLS: u32 = 4;
/// The configuration has not been read yet.
const FRESH: u32 = 8;

static FLAGS: AtomicU32 = AtomicU32::new(FRESH);
static CURRENT: AtomicPtr<Config> = AtomicPtr::new(std::ptr::null_mut());
static SOURCE: OnceLock<Option<ControlFile>> = OnceLock::new();

struct ControlFile {
    path: PathBuf,
    /// The state of the file when it was read.
    seen: Mutex<Option<Stamp>>,
}

#[derive(PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let file = std::fs::metadata(path).ok()?;
        Some(Self {
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}

/// Returns the additional duties for a call; 0 for none.
#[inline]
pub(crate) fn duties() -> u32 {
    let flags = FLAGS.load(Ordering::Acquire);
    if flags & (FRESH | FILE) == 0 {
        return flags;
    }
    refresh()
}

/// Returns the settings.
pub(crate) fn current() -> &'static Config {
    let current = CURRENT.load(Ordering::Acquire);
    if current.is_null() {
        refresh();
        return current_or_default();
    }
    // SAFETY: only `adopt` stores here, and leaks the value.
    unsafe { &*current }
}

fn current_or_default() -> &'static Config {
    let current = CURRENT.load(Ordering::Acquire);
    // SAFETY: `refresh` has stored a value, and stored values are leaked.
    unsafe { &*current }
}

#[cold]
fn refresh() -> u32 {
    let source = SOURCE.get_or_init(first_read);
    if let Some(file) = source
        && let Some(config) = file.read()
    {
        adopt(config, FILE);
    }
    FLAGS.load(Ordering::Acquire)
}

fn first_read() -> Option<ControlFile> {
    let given = std::env::var("FAKE_OPENCL_CONFIG").unwrap_or_default();
    if given.is_empty() || given.contains('=') {
        adopt(
            parse(&given, "FAKE_OPENCL_CONFIG").unwrap_or_else(defaults),
            0,
        );
        return None;
    }
    let file = ControlFile {
        path: PathBuf::from(given),
        seen: Mutex::new(None),
    };
    let config = file.read().unwrap_or_else(defaults);
    adopt(config, FILE);
    Some(file)
}

/// Returns the default settings, for use after a wrong first text, which is reported.
fn defaults() -> Config {
    parse("", "defaults").unwrap_or_else(|| unreachable!("the empty text is right"))
}

fn parse(text: &str, origin: &str) -> Option<Config> {
    Config::parse(text)
        .map_err(|error| eprintln!("fake OpenCL: {origin}: {error}"))
        .ok()
}

impl ControlFile {
    /// Returns the settings if the file has changed since the last reading.
    fn read(&self) -> Option<Config> {
        let mut seen = self.seen.lock();
        let now = Stamp::of(&self.path);
        if *seen == now {
            return None;
        }
        let origin = self.path.display().to_string();
        let text = std::fs::read_to_string(&self.path);
        // The state of a missing file is kept as well, so that it is reported once.
        *seen = now;
        match text {
            Ok(text) => parse(&text, &origin),
            Err(error) => {
                eprintln!("fake OpenCL: {origin}: {error}");
                None
            }
        }
    }
}

fn adopt(config: Config, origin: u32) {
    let mut flags = origin;
    if crate::log::enabled() {
        flags |= LOG;
    }
    if !config.calls.is_empty() {
        flags |= CALLS;
    }
    // Leaked, because a call on another thread may still read the previous settings.
    CURRENT.store(Box::into_raw(Box::new(config)), Ordering::Release);
    FLAGS.store(flags, Ordering::Release);
}
