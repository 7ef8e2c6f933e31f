//! Control groups: a share of this machine's processors for a process and its children.
//!
//! Groups make one processor into several devices that compute for real and do not disturb each other. They need root
//! and the controller `cpu` of either version. Invariant: the group is removed with the [`Slice`], which must outlive
//! its processes.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The period of a share. It is short, so that a device that has used its share pauses for a few milliseconds only.
const PERIOD_MICROSECONDS: u64 = 10_000;

/// A control group.
pub(crate) struct Slice {
    folder: PathBuf,
}

impl Slice {
    /// Makes a group with at most this number of cores.
    pub(crate) fn new(name: &str, cores: f64) -> io::Result<Slice> {
        let quota = (cores * PERIOD_MICROSECONDS as f64) as u64;
        let name = format!("causeway-bench-{}-{name}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/cpu");
        if first.join("cpu.cfs_quota_us").is_file() || first.join("tasks").is_file() {
            let slice = Slice::made(first.join(name))?;
            fs::write(
                slice.folder.join("cpu.cfs_period_us"),
                PERIOD_MICROSECONDS.to_string(),
            )?;
            fs::write(slice.folder.join("cpu.cfs_quota_us"), quota.to_string())?;
            return Ok(slice);
        }
        let slice = Slice::made(Path::new("/sys/fs/cgroup").join(name))?;
        fs::write(
            slice.folder.join("cpu.max"),
            format!("{quota} {PERIOD_MICROSECONDS}"),
        )?;
        Ok(slice)
    }

    /// Whether this machine allows such groups.
    pub(crate) fn possible() -> io::Result<()> {
        Slice::new("trial", 1.0).map(drop).map_err(|error| {
            let text = format!("no control group for the processor could be made: {error}");
            io::Error::new(error.kind(), text)
        })
    }

    fn made(folder: PathBuf) -> io::Result<Slice> {
        fs::create_dir(&folder)?;
        Ok(Slice { folder })
    }

    /// Makes a command start inside of the group.
    pub(crate) fn command(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.folder.join("cgroup.procs"))
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        // Workers end a little after their daemon. A group that cannot be removed is harmless.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
