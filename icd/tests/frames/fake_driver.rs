//! A daemon's folder with the fake driver as its only driver.

use std::path::Path;
use std::process::Command;

/// Puts the driver and its settings into a daemon's folder.
pub fn put(folder: &Path, settings: &str) {
    // Cargo puts the library beside this test, because it is a development dependency.
    let tests = std::env::current_exe().expect("a path");
    let driver = tests.with_file_name("libfake_opencl.so");
    assert!(driver.exists(), "{}", driver.display());
    // The folder contains nothing else: if a folder changes, the daemon lists its drivers again.
    let vendors = folder.join("vendors");
    std::fs::create_dir_all(&vendors)
        .and_then(|()| std::fs::write(vendors.join("fake.icd"), format!("{}\n", driver.display())))
        .expect("written");
    set(folder, settings);
}

/// Changes the driver's settings. They are valid from the next call on.
pub fn set(folder: &Path, settings: &str) {
    let next = folder.join("settings.next");
    std::fs::write(&next, settings)
        .and_then(|()| std::fs::rename(next, folder.join("settings.toml")))
        .expect("written");
}

/// Makes a daemon use the driver in its folder, and keep its identity there.
pub fn used_by<'a>(daemon: &'a mut Command, folder: &Path) -> &'a mut Command {
    daemon
        .env("OCL_ICD_VENDORS", folder.join("vendors"))
        .env("FAKE_OPENCL_CONFIG", folder.join("settings.toml"))
        .env("STATE_DIRECTORY", folder)
        .env_remove("OCL_ICD_FILENAMES")
}
