//! The text of a log filter: levels and `target=level` pairs, separated by commas.
//!
//! Not here: the filter itself, which `tracing-subscriber` makes from the text. Its parser takes whatever it
//! does not understand for the name of a target, and such a filter would silently log nothing. Invariant: a
//! text that [`directives`] returns means what its author wrote, or the author gets an error.

/// A part of a log filter is neither a level nor a target with a level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid directive `{0}`; expected a level (`info`) or a target with a level (`h2=trace`)")]
pub struct BadDirective(pub String);

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Returns the filter without blanks and empty directives. An empty directive would mean the level `error`
/// to the parser, and replace an earlier level.
///
/// # Errors
/// The first directive that is neither a level nor a target with a level.
pub fn directives(filter: &str) -> Result<String, BadDirective> {
    let directives = filter.split(',').map(str::trim);
    let directives: Result<Vec<&str>, BadDirective> = directives
        .filter(|directive| !directive.is_empty())
        .map(|directive| match is_valid(directive) {
            true => Ok(directive),
            false => Err(BadDirective(directive.to_owned())),
        })
        .collect();
    Ok(directives?.join(","))
}

fn is_valid(directive: &str) -> bool {
    let (target, level) = match directive.split_once('=') {
        Some((target, level)) => (target, Some(level)),
        None => (directive, None),
    };
    let is_level = |level: &str| LEVELS.iter().any(|name| name.eq_ignore_ascii_case(level));
    let in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ':');
    !target.is_empty() && target.chars().all(in_name) && level.is_none_or(is_level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_targets_pass() {
        for (filter, directives) in [
            ("info", "info"),
            (
                "WARN, causeway_daemon::worker=debug",
                "WARN,causeway_daemon::worker=debug",
            ),
            (",,h2=off,", "h2=off"),
            ("causeway", "causeway"),
            ("", ""),
        ] {
            assert_eq!(
                super::directives(filter).as_deref(),
                Ok(directives),
                "{filter}"
            );
        }
    }

    #[test]
    fn what_would_silently_log_nothing_is_refused() {
        for filter in [
            "\"info\"",
            "warn,x=loudly",
            "causeway_daemon[session]=debug",
            "[{field}]=debug",
            "*=debug",
            "=info",
            "target=",
        ] {
            let bad = filter.split(',').next_back().unwrap().to_owned();
            assert_eq!(directives(filter), Err(BadDirective(bad)), "{filter}");
        }
    }
}
