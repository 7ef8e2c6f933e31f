//! What the kernel knows of a process: memory at its peak, threads, sockets, children.
#![forbid(unsafe_code)]

use std::fs;
use std::io;

/// Forgets the peak so far of a process; bytes resident now. 0 where the kernel does not tell.
pub(crate) fn start_peak(process: u32) -> u64 {
    // Where this is refused the old peak stands, and the figure is too large, never too small.
    let _ = fs::write(format!("/proc/{process}/clear_refs"), "5");
    status(process, "VmRSS:")
}

/// Bytes resident at the peak since [`start_peak`].
pub(crate) fn peak(process: u32) -> u64 {
    status(process, "VmHWM:")
}

fn status(process: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    kilobytes(&text, name)
}

/// Bytes that can be had without swapping.
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

/// How many threads and sockets this process has.
pub(crate) fn threads_and_sockets() -> io::Result<usize> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    let sockets = fs::read_dir("/proc/self/fd")?.flatten().filter(|entry| {
        fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    });
    Ok(threads + sockets.count())
}

/// The processes that a process has started and that live.
pub(crate) fn children(process: u32) -> io::Result<Vec<u32>> {
    let numbers = fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers
        .filter(|child| parent(*child) == Some(process))
        .collect())
}

/// The second field after the name, which may contain anything but ends with the last bracket.
fn parent(process: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
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
    fn children_are_found() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let found = children(std::process::id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()));
    }
}
