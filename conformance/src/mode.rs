//! Modes: on which nodes the devices of an unmodified program are.
//!
//! In all modes but the plain one, the platform has one device from each of several nodes, and
//! `programs/preload/span.c` presents them to the program. Either the program's one device is another
//! node's, or its context has all devices. The native side does the same with as many native devices.
//! Invariant: a mode changes what a program sees, never what is compared.

use std::fmt;

use clap::ValueEnum;

/// The place of a program's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// One node with one device.
    Plain,
    /// The program's only device is the second node's.
    Second,
    /// Every context for one device spans all nodes; the program works on the first node.
    Span,
    /// As `span`, but the second node's device is listed first, so the program works there.
    SpanSecond,
    /// As `span`, but each context's queues are assigned to the nodes in turn.
    SpanDealt,
}

impl Mode {
    /// All modes with several nodes.
    pub(crate) const SEVERAL: &[Self] =
        &[Self::Second, Self::Span, Self::SpanSecond, Self::SpanDealt];

    /// The name on the command line and in the report.
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Second => "second",
            Self::Span => "span",
            Self::SpanSecond => "span-second",
            Self::SpanDealt => "span-dealt",
        }
    }

    /// Whether contexts span several nodes, which not every program supports.
    pub(crate) fn spans(self) -> bool {
        matches!(self, Self::Span | Self::SpanSecond | Self::SpanDealt)
    }

    /// The variables for the preloaded library.
    pub(crate) fn variables(self, nodes: usize) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        let mut set = |name: &str, value: String| variables.push((name.to_owned(), value));
        if matches!(self, Self::Second | Self::SpanSecond) {
            set("SPAN_FIRST", "1".to_owned());
        }
        if self.spans() {
            set("SPAN_DEVICES", nodes.to_string());
        }
        if self == Self::SpanDealt {
            set("SPAN_QUEUES", "deal".to_owned());
        }
        variables
    }

    /// Returns a suite's or a case's name in this mode. The mode follows the suite's name.
    pub(crate) fn title(self, name: &str) -> String {
        if self == Self::Plain {
            return name.to_owned();
        }
        match name.split_once('/') {
            Some((suite, rest)) => format!("{suite}@{self}/{rest}"),
            None => format!("{name}@{self}"),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_name_the_mode() {
        assert_eq!(Mode::Plain.title("api/buffer/x"), "api/buffer/x");
        assert_eq!(Mode::Span.title("api/buffer/x"), "api@span/buffer/x");
        assert_eq!(Mode::SpanSecond.title("clpeak"), "clpeak@span-second");
    }

    #[test]
    fn only_spanning_modes_make_contexts_of_several_devices() {
        for mode in [Mode::Plain, Mode::Second] {
            let variables = mode.variables(2);
            assert!(variables.iter().all(|(name, _)| name != "SPAN_DEVICES"));
        }
        assert!(
            Mode::SpanDealt
                .variables(3)
                .contains(&("SPAN_DEVICES".into(), "3".into()))
        );
    }
}
