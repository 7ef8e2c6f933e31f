//! A daemon with a build cache over the test's own driver, and the contents of the cache.

use std::path::{Path, PathBuf};
use std::time::Instant;

use causeway_daemon::build_cache::{CachedBuild, Key};
use causeway_proto::command::{answer::Body, *};

use super::{Daemon, LIMIT, Session};

/// A folder with the fake driver's registration, its log, and a cache.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let library = std::env::current_exe()
            .unwrap()
            .with_file_name("libfake_opencl.so");
        let vendors = folder.path().join("vendors");
        std::fs::create_dir(&vendors).unwrap();
        // A copy, so that a test can replace it.
        let driver = folder.path().join("libfake_opencl.so");
        std::fs::copy(library, &driver).unwrap();
        std::fs::write(vendors.join("fake.icd"), driver.to_str().unwrap()).unwrap();
        Place { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn daemon(&self, size: &str, more: &[(&str, &str)]) -> Daemon {
        self.daemon_with(size, &[], more)
    }

    pub fn daemon_with(&self, size: &str, arguments: &[&str], more: &[(&str, &str)]) -> Daemon {
        let [vendors, cache, log] =
            ["vendors", "cache", "log-%p"].map(|n| self.path(n).to_str().unwrap().to_owned());
        let mut environment = vec![
            ("OCL_ICD_VENDORS", &*vendors),
            ("FAKE_OPENCL_CONFIG", "instant = true"),
            ("FAKE_OPENCL_LOG", &*log),
            ("CAUSEWAYD_BUILD_CACHE_DIR", &*cache),
            ("CAUSEWAYD_BUILD_CACHE_SIZE", size),
        ];
        environment.extend_from_slice(more);
        Daemon::with_both(arguments, &environment)
    }

    pub fn entries(&self) -> Vec<PathBuf> {
        entries(&self.path("cache"))
    }

    /// Waits until there is this number of entries.
    pub fn until_entries(&self, count: usize) {
        until(&format!("{count} entries"), || {
            self.entries().len() == count
        });
    }

    /// Changes the only entry, which stays valid and of the same build.
    pub fn alter_the_entry(&self, alter: impl FnOnce(&mut CachedBuild)) {
        let path = &self.entries()[0];
        let (key, mut entry) = entry_in(path);
        alter(&mut entry);
        std::fs::write(path, entry.encode(&key).unwrap()).unwrap();
    }

    /// Waits until the only entry has these bytes again.
    pub fn until_mended(&self, whole: &[u8]) {
        let is_whole = |path: &PathBuf| std::fs::read(path).is_ok_and(|bytes| bytes == whole);
        until("a new entry", || self.entries().iter().any(is_whole));
    }

    /// Starts a daemon whose session has built, and does not return from the driver when it stores the build. The
    /// first four questions are those for the kernels' number and names.
    pub fn daemon_that_stores(&self) -> (Daemon, Session) {
        let [meeting, temporary] = ["meeting", "tmp"].map(|name| {
            let path = self.path(name);
            std::fs::create_dir_all(&path).unwrap();
            path.to_str().unwrap().to_owned()
        });
        let rule = format!(
            "instant = true; [[call]]; name = \"clGetProgramInfo\"; at = 5; meet = \"{meeting}\"; of = 2"
        );
        let more = [("FAKE_OPENCL_CONFIG", &*rule), ("TMPDIR", &*temporary)];
        let daemon = self.daemon(ON, &more);
        let mut session = daemon.session();
        let context = session.context();
        told(session.build(context, SOURCE, "").1);
        until("a worker that takes binaries", || count(&meeting) > 0);
        (daemon, session)
    }

    /// Returns the calls that a session's worker has made so far.
    pub fn calls(&self, session: &Session) -> String {
        let log = self.path(&format!("log-{}", session.worker()));
        std::fs::read_to_string(log).unwrap()
    }
}

/// Returns how often a driver was asked for a program's binaries, by its log.
pub fn binaries_taken(log: &str) -> usize {
    let questions = log
        .lines()
        .filter(|line| line.starts_with("clGetProgramInfo("));
    let asks = |line: &&str| {
        let names = ["4454", "0x1166"];
        names
            .iter()
            .any(|name| line.contains(&format!("param_name={name},")))
    };
    questions.filter(asks).count()
}

/// Waits until `holds` returns true. Nothing notifies the test of that.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "waited for {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Returns the number of entries of a folder.
pub fn count(folder: impl AsRef<Path>) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

pub fn entries(cache: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(cache).into_iter().flatten();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            !name.starts_with("new-")
        })
        .collect()
}

pub const SOURCE: &str = "kernel void f(global int *x, int n) { }\n\
                      kernel void g(global float *y, local float *l) { }\n";

pub fn told(answer: Answer) -> ProgramAnswer {
    assert_eq!(answer.status, 0, "{}", answer.message);
    match answer.body {
        Some(Body::Program(body)) => body,
        other => panic!("no program answer: {other:?}"),
    }
}

/// Builds in a new session. Returns the answer, and whether it came from the cache.
pub fn build(place: &Place, daemon: &Daemon, text: &str, options: &str) -> (ProgramAnswer, bool) {
    build_in(place, daemon.session(), text, options)
}

/// Builds in this session and ends it. Returns the answer, and whether it came from the cache.
pub fn build_in(
    place: &Place,
    mut session: Session,
    text: &str,
    options: &str,
) -> (ProgramAnswer, bool) {
    let context = session.context();
    let (program, answer) = session.build(context, text, options);
    let answer = told(answer);
    // Kernels of the program can be created.
    let kernel = session.kernel(program, &answer.kernels[0].name);
    session.release(ObjectKind::Kernel, kernel);
    session.ping();
    assert_eq!(session.heard.notices, []);
    let calls = place.calls(&session);
    end(session);
    (answer, calls.contains("clCreateProgramWithBinary"))
}

/// Ends the session, so that the daemon has no other worker than the next session's, and has all builds of this one.
pub fn end(session: Session) {
    let worker = session.worker();
    drop(session);
    let process = format!("/proc/{worker}");
    until("the worker's end", || !Path::new(&process).exists());
}

pub const ON: &str = "1000000";

/// Returns the key and the entry in a file of the cache.
pub fn entry_in(path: &Path) -> (Key, CachedBuild) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let key = Key::parse(name.split_once('-').unwrap().1).unwrap();
    let entry = CachedBuild::decode(&std::fs::read(path).unwrap(), &key).unwrap();
    (key, entry)
}
