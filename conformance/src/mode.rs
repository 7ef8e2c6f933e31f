//! Modes: where the devices of an unmodified program lie.
//!
//! In all modes but the plain one the platform has a device of each of several nodes, and
//! `programs/preload/span.c` shows them to the program: its one device is another node's, or its
//! context is of all. The native side gets the same treatment with as many native devices, so that
//! both sides do the same. Invariant: a mode changes what a program is shown, never what is compared.

use std::fmt;

use clap::ValueEnum;

/// Where a program's devices lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// One node with one device.
    Plain,
    /// The program's one device is the second node's.
    Second,
    /// Every context of one device spans all nodes; work is done on the first.
    Span,
    /// The same, with the second node's device listed first, so that work is done there.
    SpanSecond,
    /// The same, and each context's queues are dealt to the nodes in turn.
    SpanDealt,
}

impl Mode {
    /// All modes of several nodes.
    pub(crate) const SEVERAL: &[Self] =
        &[Self::Second, Self::Span, Self::SpanSecond, Self::SpanDealt];

    /// What the command line and the report call it.
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Second => "second",
            Self::Span => "span",
            Self::SpanSecond => "span-second",
            Self::SpanDealt => "span-dealt",
        }
    }

    /// Whether contexts span several nodes: something that not every program can stand.
    pub(crate) fn spans(self) -> bool {
        matches!(self, Self::Span | Self::SpanSecond | Self::SpanDealt)
    }

    /// What the preloaded library is told.
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

    /// A suite's or a case's name in this mode: the mode stands behind the suite.
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
