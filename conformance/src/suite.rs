//! The suites: one module each, and one table of all.

pub(crate) mod api;
mod calllog;
mod clblast;
mod clinfo;
mod clpeak;
mod coherence;
mod debian;
mod faults;
mod forward;
mod graphs;
mod mandelbrot;
mod pyopencl;
mod sandbox;
mod survival;
mod threads;

pub(crate) use forward::forward;
pub(crate) use survival::made::summary as survived;

use crate::SetupError;
use crate::case::Case;
use crate::mode::Mode;
use crate::options::Options;
use crate::programs::Programs;
use crate::sides::Sides;

/// A named set of cases.
pub(crate) struct Suite {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// A description in one line, for `list`.
    pub(crate) about: &'static str,
    /// Whether the cases run one at a time, because they measure or use the whole machine.
    pub(crate) alone: bool,
    /// The modes with several nodes that make sense for the suite; `--nightly` runs all of them.
    pub(crate) modes: &'static [Mode],
    /// The modes among `modes` that `all` runs every day.
    pub(crate) everyday: &'static [Mode],
    /// Finds the cases.
    pub(crate) cases: fn(&Programs, &Sides) -> Result<Vec<Case>, SetupError>,
}

/// All suites, in the order in which `all` runs them.
pub(crate) const ALL: &[Suite] = &[
    Suite {
        name: "mandelbrot",
        about: "a picture drawn by a plain program: the PNG's bytes",
        alone: false,
        modes: Mode::SEVERAL,
        everyday: &[Mode::Second, Mode::SpanSecond],
        cases: mandelbrot::cases,
    },
    Suite {
        name: "clinfo",
        about: "every line of clinfo, with a table of the differences that are right",
        alone: false,
        modes: &[Mode::Second],
        everyday: &[Mode::Second],
        cases: clinfo::cases,
    },
    Suite {
        name: "api",
        about: "our C programs over the whole API: answers, data, error codes",
        alone: false,
        modes: Mode::SEVERAL,
        everyday: &[Mode::SpanDealt],
        cases: api::cases,
    },
    Suite {
        name: "calllog",
        about: "what reaches the fake driver: each call with the arguments given",
        alone: true,
        modes: &[Mode::Second],
        everyday: &[Mode::Second],
        cases: calllog::cases,
    },
    Suite {
        name: "threads",
        about: "32 threads that enqueue, map and release",
        alone: true,
        modes: Mode::SEVERAL,
        everyday: &[Mode::Second, Mode::SpanDealt],
        cases: threads::cases,
    },
    Suite {
        name: "graphs",
        about: "random event graphs between three nodes: never a deadlock, every status as it must be",
        alone: true,
        modes: &[],
        everyday: &[],
        cases: graphs::cases,
    },
    Suite {
        name: "coherence",
        about: "random programs over buffers that three nodes share, against flat memory",
        alone: true,
        modes: &[],
        everyday: &[],
        cases: coherence::cases,
    },
    Suite {
        name: "sandbox",
        about: "system calls from inside of a session's process: what each of 300 gives, what it changes",
        alone: true,
        modes: &[],
        everyday: &[],
        cases: sandbox::cases,
    },
    Suite {
        name: "faults",
        about: "what breaks: processes, networks, kernels, strangers; how soon each ends",
        alone: false,
        modes: &[],
        everyday: &[],
        cases: faults::cases,
    },
    Suite {
        name: "hosts",
        about: "several hosts for real: bytes on each link, cuts between nodes, a node lost (root)",
        alone: false,
        modes: &[],
        everyday: &[],
        cases: faults::hosts,
    },
    Suite {
        name: "survival",
        about: "programs while networks, clients and workers fail at random times (minutes)",
        alone: false,
        modes: &[],
        everyday: &[],
        cases: survival::cases,
    },
    Suite {
        name: "debian",
        about: "real programs of Debian, each by a script: filters, a password tool, solvers, Python stacks (minutes)",
        alone: true,
        modes: &[],
        everyday: &[],
        cases: debian::cases,
    },
    Suite {
        name: "clblast",
        about: "tests and tuners of CLBlast from Debian (minutes)",
        alone: true,
        modes: &[Mode::Second, Mode::SpanSecond],
        everyday: &[],
        cases: clblast::cases,
    },
    Suite {
        name: "clpeak",
        about: "clpeak to its end, figures side by side (minutes)",
        alone: true,
        modes: &[],
        everyday: &[],
        cases: clpeak::cases,
    },
    Suite {
        name: "pyopencl",
        about: "PyOpenCL's own tests, those that pass natively (many minutes, needs PyPI)",
        alone: true,
        modes: &[Mode::Second, Mode::Span],
        everyday: &[],
        cases: pyopencl::cases,
    },
    Suite {
        name: "pyopencl-pypi",
        about: "the same over the newest PoCL of PyPI (many minutes, needs PyPI)",
        alone: true,
        modes: &[],
        everyday: &[],
        cases: pyopencl::cases_on_pypi,
    },
];

/// Returns the suites of these names, each with the modes to run. `all` stands for every suite.
pub(crate) fn chosen(
    names: &[String],
    options: &Options,
) -> Result<Vec<(&'static Suite, Mode)>, SetupError> {
    let all = names.iter().any(|name| name == "all");
    let mut chosen = Vec::new();
    if all {
        for suite in ALL {
            let modes = modes_of(suite, options, suite.everyday);
            chosen.extend(modes.into_iter().map(|mode| (suite, mode)));
        }
        return Ok(chosen);
    }
    for name in names {
        let suite = ALL
            .iter()
            .find(|suite| suite.name == name)
            .ok_or_else(|| SetupError::UnknownSuite(name.clone()))?;
        let modes = modes_of(suite, options, &[]);
        chosen.extend(modes.into_iter().map(|mode| (suite, mode)));
    }
    Ok(chosen)
}

/// Returns the requested modes that make sense for the suite. Without a request: plain, and
/// the everyday or nightly modes.
fn modes_of(suite: &Suite, options: &Options, everyday: &[Mode]) -> Vec<Mode> {
    let fits = |mode: &Mode| *mode == Mode::Plain || suite.modes.contains(mode);
    if !options.modes.is_empty() {
        return options.modes.iter().copied().filter(fits).collect();
    }
    let several = if options.nightly {
        suite.modes
    } else {
        everyday
    };
    [&[Mode::Plain], several].concat()
}

/// Whether a program of this name is on the path.
fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
