//! Signals of a tool that runs a program: which ones it passes on, and how it ends like the program.
//!
//! Ctrl-C reaches the program by itself, which is in the terminal's foreground group, so signals from the
//! kernel are not passed on. Signals from a process are passed on, because they may have been sent to the
//! tool alone. A program that gets one twice ends once. Hangups are always passed on: the terminal sends
//! them only to the leader of its session, which is the tool in `xterm -e causeway run`. If hangups were
//! ignored at the tool's start (`nohup`), they stay ignored, for the program too.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::emulate_default_handler;
use signal_hook::low_level::siginfo::Cause;
use tokio::sync::mpsc;

/// A signal that the tool has received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    /// The signal's number.
    pub(crate) number: i32,
    /// Whether the kernel sent the signal, so that the program got it as well.
    is_the_terminals: bool,
}

/// Signals that end a process by default, and that people and batch systems send.
const ENDING: [i32; 8] = [
    SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU,
];

impl Came {
    /// The signal to send to the program. `None`: the program has received it already.
    pub(crate) fn to_pass_on(self) -> Option<Signal> {
        let has_got_it = self.is_the_terminals && self.number != SIGHUP;
        Signal::from_named_raw(self.number).filter(|_| !has_got_it)
    }
}

/// Receives the signals that end programs, from now on.
///
/// # Errors
/// The handlers or the thread cannot be set up.
pub(crate) fn listen() -> std::io::Result<mpsc::UnboundedReceiver<Came>> {
    let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |text| ignored(&text));
    let hears_hangups = ignored >> (SIGHUP - 1) & 1 == 0;
    let heard = ENDING
        .iter()
        .filter(|signal| **signal != SIGHUP || hears_hangups);
    let mut signals = SignalsInfo::<WithOrigin>::new(heard)?;
    let (tell, told) = mpsc::unbounded_channel();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for origin in signals.forever() {
                let came = Came {
                    number: origin.signal,
                    is_the_terminals: matches!(origin.cause, Cause::Kernel),
                };
                if tell.send(came).is_err() {
                    return;
                }
            }
        })?;
    Ok(told)
}

/// The signals that a process ignores, from its status file: one bit each, the lowest for signal 1.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.map_or(0, |bits| u64::from_str_radix(bits.trim(), 16).unwrap_or(0))
}

/// Ends this process by a signal, as without a handler. If the process survives, returns a shell's exit
/// code for it.
pub(crate) fn end_by(number: i32) -> ExitCode {
    // The program has written a core file if that is enabled; the tool must write none.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    let _ = emulate_default_handler(number);
    ExitCode::from(u8::try_from(128 + number).unwrap_or(1))
}

/// Ends this process like the program.
pub(crate) fn end_as(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        (None, Some(signal)) => end_by(signal),
        (None, None) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_of_the_status() {
        assert_eq!(
            ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t1\n"),
            1 << 12 | 1
        );
        assert_eq!((ignored(""), ignored("SigIgn:\tx")), (0, 0));
    }
}
