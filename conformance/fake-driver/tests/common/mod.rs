//! Runs the probe programs on the driver, through the system's loader.

#![allow(dead_code, reason = "each test program takes what it needs")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The compiled probe and the folder with the `.icd` file. Each test program makes them once.
struct Setup {
    probe: PathBuf,
    vendors: PathBuf,
}

static SETUP: LazyLock<Setup> = LazyLock::new(|| {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    // Test programs run side by side, so each has its own folder.
    let name = std::env::current_exe().unwrap();
    let name = name.file_name().unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let vendors = folder.join("vendors");
    std::fs::create_dir_all(&vendors).unwrap();
    let probe = folder.join("probe");
    let compiled = Command::new("cc")
        .args([
            "-std=c11",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            "-o",
        ])
        .arg(&probe)
        .args(["probe.c", "probe_work.c", "probe_objects.c"].map(|file| sources.join(file)))
        .args(["-lOpenCL", "-lpthread"])
        .status()
        .expect("a C compiler");
    assert!(compiled.success());
    std::fs::write(vendors.join("fake.icd"), driver().to_str().unwrap()).unwrap();
    Setup { probe, vendors }
});

/// Returns the driver that cargo built for the tests, which lies beside them. Only `cargo build` updates
/// the driver in the profile's folder above.
fn driver() -> PathBuf {
    let driver = std::env::current_exe().unwrap();
    let driver = driver.with_file_name("libfake_opencl.so");
    assert!(driver.exists(), "{} is missing", driver.display());
    driver
}

/// A probe that has ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
}

impl Ended {
    /// Asserts that the probe succeeded.
    #[track_caller]
    pub(crate) fn assert_good(&self) -> &str {
        assert!(self.status.success(), "{:?}: {}", self.status, self.output);
        &self.output
    }
}

/// Returns a command that runs a probe with a configuration.
pub(crate) fn probe(arguments: &[&str], config: &str) -> Command {
    let mut command = Command::new(&SETUP.probe);
    command
        .args(arguments)
        .env("OCL_ICD_VENDORS", &SETUP.vendors)
        .env("FAKE_OPENCL_CONFIG", config)
        .env_remove("FAKE_OPENCL_LOG")
        .stdout(Stdio::piped());
    command
}

/// Runs a probe to its end, for a minute at most.
#[track_caller]
pub(crate) fn run(arguments: &[&str], config: &str) -> Ended {
    end(
        probe(arguments, config).spawn().unwrap(),
        Duration::from_secs(60),
    )
    .expect("the probe hangs")
}

/// Waits for a probe's end. After the time limit, kills the probe and returns `None`.
pub(crate) fn end(mut child: Child, limit: Duration) -> Option<Ended> {
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut output = String::new();
        let _ = stdout.read_to_string(&mut output);
        output
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if start.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let output = reader.join().unwrap();
    status.map(|status| Ended { status, output })
}
