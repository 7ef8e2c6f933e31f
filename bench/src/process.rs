//! The kernel's figures of a process: memory, processor time, threads, descriptors, children.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

/// Resets the peak of a process; bytes resident now. 0 if the kernel does not report it.
pub(crate) fn start_peak(process: u32) -> u64 {
    // If the kernel refuses this, the old peak stays. The figure is then too large, never too small.
    let _ = fs::write(format!("/proc/{process}/clear_refs"), "5");
    status(process, "VmRSS:")
}

/// Bytes resident at the peak since [`start_peak`].
pub(crate) fn peak(process: u32) -> u64 {
    status(process, "VmHWM:")
}

/// Bytes resident now.
pub(crate) fn resident(process: u32) -> u64 {
    status(process, "VmRSS:")
}

/// Processor time in seconds that a process has used, in user and kernel mode.
pub(crate) fn cpu(process: u32) -> f64 {
    // The kernel reports hundredths of a second, whatever its own ticks are.
    const TICKS: f64 = 100.0;
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let ticks = |number| field(&text, number).unwrap_or(0);
    (ticks(13) + ticks(14)) as f64 / TICKS
}

/// Processor time that all threads of this process have used.
pub(crate) fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Processor time that the calling thread has used.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn status(process: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    kilobytes(&text, name)
}

/// Bytes of memory that are available without swapping.
pub(crate) fn available() -> u64 {
    kilobytes(
        &fs::read_to_string("/proc/meminfo").unwrap_or_default(),
        "MemAvailable:",
    )
}

fn kilobytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) << 10
}

/// The system's resources that a process uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footprint {
    /// Number of threads.
    pub(crate) threads: usize,
    /// Number of sockets.
    pub(crate) sockets: usize,
    /// Number of descriptors, sockets included.
    pub(crate) descriptors: usize,
    /// Resident pages of 4 KiB.
    pub(crate) pages: usize,
}

impl Footprint {
    /// The footprint of this process now.
    pub(crate) fn now() -> io::Result<Footprint> {
        let descriptors: Vec<_> = fs::read_dir("/proc/self/fd")?.flatten().collect();
        let is_socket = |entry: &&fs::DirEntry| {
            fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        };
        // The other counters of resident memory lag behind by some pages for each processor.
        let memory = fs::read_to_string("/proc/self/smaps_rollup")?;
        Ok(Footprint {
            threads: fs::read_dir("/proc/self/task")?.count(),
            sockets: descriptors.iter().filter(is_socket).count(),
            descriptors: descriptors.len(),
            pages: (kilobytes(&memory, "Rss:") >> 12) as usize,
        })
    }

    /// The difference to an earlier footprint; 0 for a smaller figure.
    pub(crate) fn since(self, before: Footprint) -> Footprint {
        Footprint {
            threads: self.threads.saturating_sub(before.threads),
            sockets: self.sockets.saturating_sub(before.sockets),
            descriptors: self.descriptors.saturating_sub(before.descriptors),
            pages: self.pages.saturating_sub(before.pages),
        }
    }
}

/// The living children of a process.
pub(crate) fn children(process: u32) -> io::Result<Vec<u32>> {
    let numbers = fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers
        .filter(|child| parent(*child) == Some(process))
        .collect())
}

/// The living children of a process whose program has this name, in ascending order.
pub(crate) fn children_named(process: u32, name: &str) -> io::Result<Vec<u32>> {
    let mut found = children(process)?;
    found.retain(|child| is_named(*child, name));
    found.sort_unstable();
    Ok(found)
}

/// Kills a process, unless it has ended by itself.
pub(crate) fn kill(process: u32) -> io::Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    match kill_process(pid, Signal::KILL) {
        // The process has just ended by itself.
        Err(rustix::io::Errno::SRCH) => Ok(()),
        killed => Ok(killed?),
    }
}

/// Whether a process exists and its program has this name.
pub(crate) fn is_named(process: u32, name: &str) -> bool {
    let comm = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    comm.trim_end() == name
}

fn parent(process: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    field(&text, 3)?.try_into().ok()
}

/// A field of `stat` behind the name. The name is field 1, may contain anything, and ends with the last bracket.
fn field(stat: &str, number: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number - 2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(
            kilobytes("VmRSS:\t  12 kB\nVmHWM: 20 kB\n", "VmHWM:"),
            20 << 10
        );
        assert_eq!(kilobytes("", "VmHWM:"), 0);
        assert!(peak(std::process::id()) > 0);
    }

    #[test]
    fn a_footprint_counts_what_is_added() {
        // Other tests of this process open and free things at the same time, so the figures are taken in a process
        // that executes this test only.
        const ALONE: &str = "BENCH_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let test = std::process::Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "process::tests::a_footprint_counts_what_is_added",
                ])
                .env(ALONE, "1")
                .output()
                .unwrap();
            let output = String::from_utf8_lossy(&test.stdout);
            assert!(
                test.status.success() && output.contains("1 passed"),
                "{output}"
            );
            return;
        }
        let before = Footprint::now().unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = fs::File::open("/dev/null").unwrap();
        let bytes = std::hint::black_box(vec![1u8; 4 << 20]);
        let added = Footprint::now().unwrap().since(before);
        drop((socket, file));
        assert_eq!((added.sockets, added.descriptors), (1, 2), "{added:?}");
        assert!(added.pages >= bytes.len() >> 12, "{added:?}");
    }

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "7 (a) b) S 3 7 7 0 -1 4194560 1 0 0 0 25 50 0 0";
        assert_eq!((field(stat, 3), field(stat, 13)), (Some(3), Some(25)));
        assert_eq!(field(stat, 14), Some(50));
        assert_eq!(field("", 3), None);
    }

    #[test]
    fn children_are_found() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let found = children(std::process::id()).unwrap();
        let named = ["sleep", "slee"].map(|name| children_named(std::process::id(), name).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()));
        assert!(named[0].contains(&child.id()) && !named[1].contains(&child.id()));
    }
}
