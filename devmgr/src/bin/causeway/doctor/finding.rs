//! The result of one check, with its cure.
//!
//! Invariant: everything that is not in order has a cure.

use serde::Serialize;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    /// The checked thing works, but deserves attention.
    Note,
    Problem,
}

/// A check's result with its text.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cure: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            check,
            verdict: Verdict::Ok,
            found: found.into(),
            cure: None,
        }
    }

    pub(crate) fn note(
        check: &'static str,
        found: impl Into<String>,
        cure: impl Into<String>,
    ) -> Finding {
        Finding {
            check,
            verdict: Verdict::Note,
            found: found.into(),
            cure: Some(cure.into()),
        }
    }

    pub(crate) fn problem(
        check: &'static str,
        found: impl Into<String>,
        cure: impl Into<String>,
    ) -> Finding {
        Finding {
            check,
            verdict: Verdict::Problem,
            found: found.into(),
            cure: Some(cure.into()),
        }
    }
}
