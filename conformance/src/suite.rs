//! The suites: one module each, one table of them all.

mod api;
mod calllog;
mod clblast;
mod clinfo;
mod clpeak;
mod faults;
mod mandelbrot;
mod pyopencl;
mod threads;

use crate::SetupError;
use crate::case::Case;
use crate::programs::Programs;
use crate::sides::Sides;

/// A named set of cases.
pub(crate) struct Suite {
    /// What the command line calls it.
    pub(crate) name: &'static str,
    /// One line for `list`.
    pub(crate) about: &'static str,
    /// Whether its cases run one at a time, because they measure or fill the machine.
    pub(crate) alone: bool,
    /// Finds the cases.
    pub(crate) cases: fn(&Programs, &Sides) -> Result<Vec<Case>, SetupError>,
}

/// All suites, in the order in which `all` runs them.
pub(crate) const ALL: &[Suite] = &[
    Suite {
        name: "mandelbrot",
        about: "a picture drawn by a plain program: the PNG's bytes",
        alone: false,
        cases: mandelbrot::cases,
    },
    Suite {
        name: "clinfo",
        about: "every line of clinfo, with a table of the differences that are right",
        alone: false,
        cases: clinfo::cases,
    },
    Suite {
        name: "api",
        about: "our C programs over OpenCL 1.2 without images: answers, data, error codes",
        alone: false,
        cases: api::cases,
    },
    Suite {
        name: "calllog",
        about: "what reaches the fake driver: each call with the arguments given",
        alone: true,
        cases: calllog::cases,
    },
    Suite {
        name: "threads",
        about: "32 threads that enqueue, map and release",
        alone: true,
        cases: threads::cases,
    },
    Suite {
        name: "faults",
        about: "what breaks: processes, networks, kernels, strangers; how soon each ends",
        alone: false,
        cases: faults::cases,
    },
    Suite {
        name: "clblast",
        about: "tests and tuners of CLBlast from Debian (minutes)",
        alone: true,
        cases: clblast::cases,
    },
    Suite {
        name: "clpeak",
        about: "clpeak to its end, figures side by side (minutes)",
        alone: true,
        cases: clpeak::cases,
    },
    Suite {
        name: "pyopencl",
        about: "PyOpenCL's own tests, those that pass natively (many minutes, needs PyPI)",
        alone: true,
        cases: pyopencl::cases,
    },
];

/// The suites of these names; `all` stands for every one.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Suite>, SetupError> {
    if names.iter().any(|name| name == "all") {
        return Ok(ALL.iter().collect());
    }
    names
        .iter()
        .map(|name| {
            ALL.iter()
                .find(|suite| suite.name == name)
                .ok_or_else(|| SetupError::UnknownSuite(name.clone()))
        })
        .collect()
}

/// Whether a program of this name is on the path.
fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
