//! The text of a log filter: levels and `target=level` pairs, separated by commas.
//!
//! Not here: the filter itself, which `tracing-subscriber` makes from the text. Its parser takes whatever it
//! does not understand for the name of a target, and such a filter would silently log nothing. Invariant: a
//! text that [`directives`] returns means what its author wrote, or the author gets an error.

/// A part of a log filter is neither a level nor a target with a level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDirective {
    /// Not a list of levels and targets.
    #[error(
        "invalid directive `{0}`; expected a level (`info`) or a target with a level (`h2=trace`)"
    )]
    Invalid(String),
    /// No level has this name.
    #[error(
        "unknown level `{0}`; expected error, warn, info, debug, trace, off, or a target with a level (`h2=trace`)"
    )]
    Level(String),
    /// No module of Causeway has this name.
    #[error("unknown target `{0}`; expected e.g. `causeway=debug` or `causeway_daemon=debug`")]
    Target(String),
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Returns the filter without blanks and empty directives, with `warn` for `warning`. An empty directive would
/// mean the level `error` to the parser, and replace an earlier level.
///
/// # Errors
/// [`BadDirective`] for the first directive that is neither a level nor a target with a level.
pub fn directives(filter: &str) -> Result<String, BadDirective> {
    let directives = filter.split(',').map(str::trim);
    let directives: Result<Vec<String>, BadDirective> = directives
        .filter(|directive| !directive.is_empty())
        .map(directive)
        .collect();
    Ok(directives?.join(","))
}

fn directive(text: &str) -> Result<String, BadDirective> {
    let invalid = || BadDirective::Invalid(text.to_owned());
    let in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ':');
    let is_name = |name: &str| !name.is_empty() && name.chars().all(in_name);
    let Some((target, word)) = text.split_once('=') else {
        return match is_name(text) {
            true => level(text).map(str::to_owned),
            false => Err(invalid()),
        };
    };
    if !is_name(target) || word.is_empty() {
        return Err(invalid());
    }
    // The names of Causeway's crates go on with `_`, unlike those of its programs and packages.
    let ours = target.strip_prefix("causeway");
    if ours.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['_', ':'])) {
        return Err(BadDirective::Target(target.to_owned()));
    }
    Ok(format!("{target}={}", level(word)?))
}

fn level(word: &str) -> Result<&str, BadDirective> {
    if word.eq_ignore_ascii_case("warning") {
        return Ok("warn");
    }
    match LEVELS.iter().any(|name| name.eq_ignore_ascii_case(word)) {
        true => Ok(word),
        false => Err(BadDirective::Level(word.to_owned())),
    }
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
            ("causeway=off", "causeway=off"),
            ("Warning,h2=warning", "warn,h2=warn"),
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
        use BadDirective::{Invalid, Level, Target};
        for (filter, refused, bad) in [
            (
                "\"info\"",
                Invalid as fn(String) -> BadDirective,
                "\"info\"",
            ),
            (
                "causeway_daemon[session]=debug",
                Invalid,
                "causeway_daemon[session]=debug",
            ),
            ("[{field}]=debug", Invalid, "[{field}]=debug"),
            ("*=debug", Invalid, "*=debug"),
            ("=info", Invalid, "=info"),
            ("target=", Invalid, "target="),
            ("warn,x=loudly", Level, "loudly"),
            ("verbose", Level, "verbose"),
            ("info,debg", Level, "debg"),
            ("causeway", Level, "causeway"),
            ("causewayd=info", Target, "causewayd"),
            ("info,causeway-daemon=debug", Target, "causeway-daemon"),
        ] {
            assert_eq!(directives(filter), Err(refused(bad.to_owned())), "{filter}");
        }
    }
}
