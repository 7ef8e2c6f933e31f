//! Signals of a tool that runs a program: which of them are the program's, and how the tool ends as the program did.
//!
//! Ctrl-C reaches the program by itself, as one of the terminal's foreground group: what the kernel sends is not passed
//! on. What a process sends is: it may have meant the tool alone, and a program that gets a signal twice ends once. So is
//! every hangup: the terminal tells it to the leader of its session alone, which the tool is in `xterm -e causeway run`.
//! A hangup that was ignored when the tool was started (`nohup`) stays so, for the program as well.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::emulate_default_handler;
use signal_hook::low_level::siginfo::Cause;
use tokio::sync::mpsc;

/// A signal that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    /// Its number.
    pub(crate) number: i32,
    /// By the terminal, and so to the program as well.
    is_the_terminals: bool,
}

/// Those that end a process that does not listen, and that people and batch systems send.
const ENDING: [i32; 8] = [
    SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU,
];

impl Came {
    /// What the program is sent; none: it has got it.
    pub(crate) fn to_pass_on(self) -> Option<Signal> {
        match self.number {
            SIGHUP => Some(Signal::HUP),
            _ if self.is_the_terminals => None,
            SIGINT => Some(Signal::INT),
            SIGQUIT => Some(Signal::QUIT),
            SIGTERM => Some(Signal::TERM),
            SIGUSR1 => Some(Signal::USR1),
            SIGUSR2 => Some(Signal::USR2),
            SIGALRM => Some(Signal::ALARM),
            SIGXCPU => Some(Signal::XCPU),
            _ => None,
        }
    }
}

/// Signals that end programs, from now on.
///
/// # Errors
/// What the system says.
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

/// Those that a process ignores, by its status: a bit each, the lowest is signal 1.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.map_or(0, |bits| u64::from_str_radix(bits.trim(), 16).unwrap_or(0))
}

/// Ends this process by this signal, as it would have without a handler; the code for a shell if it lives on.
pub(crate) fn end_by(number: i32) -> ExitCode {
    // The program has left a core, if anybody wanted one.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    let _ = emulate_default_handler(number);
    ExitCode::from(u8::try_from(128 + number).unwrap_or(1))
}

/// Ends as the program did.
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
