//! The text of a log filter: levels and `target=level` pairs, separated by commas.
//!
//! Not here: the filter itself, which `tracing-subscriber` makes from the text. Its parser takes whatever it
//! does not understand for the name of a target, and such a filter would silently log nothing. Invariant: a
//! text that [`directives`] returns means what its author wrote, or the author gets an error.

/// A part of a log filter is neither a level nor a target with a level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDirective {
    /// A word stands where a level must stand.
    #[error(
        "unknown level `{0}`; expected error, warn, info, debug, trace, off, or target=level (`h2=trace`)"
    )]
    Level(String),
    /// No crate of Causeway has a target of this name.
    #[error(
        "unknown log target `{0}`; expected `causeway` or the name of a crate, such as `causeway_daemon`"
    )]
    Target(String),
    /// The text has another form.
    #[error(
        "invalid directive `{0}`; expected a level (`info`) or a target with a level (`h2=trace`)"
    )]
    Form(String),
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Prefix of Causeway's own targets.
const OWN: &str = "causeway";
/// Causeway's crates. A target that is the beginning of such a name means all these crates.
const CRATES: [&str; 6] = [
    "causeway_daemon",
    "causeway_devmgr",
    "causeway_lane",
    "causeway_proto",
    "causeway_security",
    "causeway_serving",
];

/// Returns the filter without blanks and empty directives, and with the parser's names of levels. An empty directive
/// would mean the level `error` to the parser, and replace an earlier level.
///
/// # Errors
/// The first directive that is neither a level nor a target with a level.
pub fn directives(filter: &str) -> Result<String, BadDirective> {
    let directives = filter.split(',').map(str::trim);
    let directives: Result<Vec<String>, BadDirective> = directives
        .filter(|directive| !directive.is_empty())
        .map(directive)
        .collect();
    Ok(directives?.join(","))
}

fn directive(text: &str) -> Result<String, BadDirective> {
    let Some((target, level)) = text.split_once('=') else {
        // The parser would take any other word for a target, and log nothing of other targets, not even errors.
        return known_level(text).map(str::to_owned);
    };
    let in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ':');
    if target.is_empty() || level.is_empty() || !target.chars().all(in_name) {
        return Err(BadDirective::Form(text.to_owned()));
    }
    let first = target.split(':').next().unwrap_or(target);
    let exists = first == OWN || CRATES.iter().any(|name| name.starts_with(first));
    if first.starts_with(OWN) && !exists {
        return Err(BadDirective::Target(target.to_owned()));
    }
    Ok(format!("{target}={}", known_level(level)?))
}

fn known_level(level: &str) -> Result<&str, BadDirective> {
    if level.eq_ignore_ascii_case("warning") {
        return Ok("warn");
    }
    let is_known = LEVELS.iter().any(|name| name.eq_ignore_ascii_case(level));
    is_known
        .then_some(level)
        .ok_or_else(|| BadDirective::Level(level.to_owned()))
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
            ("Warning,causeway=warning", "warn,causeway=warn"),
            ("causeway::transport=debug", "causeway::transport=debug"),
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
        use BadDirective::{Form, Level, Target};
        let bad = |bad: fn(String) -> BadDirective, text: &str| Err(bad(text.to_owned()));
        for (filter, error) in [
            ("\"info\"", bad(Level, "\"info\"")),
            ("verbose", bad(Level, "verbose")),
            ("info,causeway", bad(Level, "causeway")),
            ("warn,x=loudly", bad(Level, "loudly")),
            ("causewayd=info", bad(Target, "causewayd")),
            (
                "causeway_demon::worker=info",
                bad(Target, "causeway_demon::worker"),
            ),
            (
                "causeway_daemon[session]=debug",
                bad(Form, "causeway_daemon[session]=debug"),
            ),
            ("[{field}]=debug", bad(Form, "[{field}]=debug")),
            ("*=debug", bad(Form, "*=debug")),
            ("=info", bad(Form, "=info")),
            ("target=", bad(Form, "target=")),
        ] {
            assert_eq!(directives(filter), error, "{filter}");
        }
    }
}
