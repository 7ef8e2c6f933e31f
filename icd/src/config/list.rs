//! The plain forms: a file with one `host[:port]` per line, and `CAUSEWAY_SERVERS`.

use super::{Problem, ServerSettings, Settings};

/// The variable that overrides the files' servers.
pub(super) const VARIABLE: &str = "CAUSEWAY_SERVERS";

/// Reads a list file. `#` starts a comment.
pub(super) fn read(text: &str, origin: &str, settings: &mut Settings) {
    for (line, text) in (1..).zip(text.lines()) {
        let entry = text.split('#').next().unwrap_or_default();
        add(entry, settings, |message| Problem {
            origin: origin.to_owned(),
            line: Some(line),
            message,
        });
    }
}

/// Reads the variable: addresses that commas or white space separate.
pub(super) fn read_variable(text: &str, settings: &mut Settings) {
    for entry in text.split(|c: char| c == ',' || c.is_whitespace()) {
        add(entry, settings, |message| Problem {
            origin: VARIABLE.to_owned(),
            line: None,
            message,
        });
    }
}

fn add(entry: &str, settings: &mut Settings, problem: impl Fn(String) -> Problem) {
    if entry.trim().is_empty() {
        return;
    }
    match entry.parse() {
        Ok(address) => settings.add(ServerSettings::at(address), problem),
        Err(error) => settings.problems.push(problem(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addresses(settings: &Settings) -> Vec<&str> {
        settings
            .servers
            .iter()
            .map(|server| server.address.as_str())
            .collect()
    }

    #[test]
    fn comments_and_blank_lines_say_nothing() {
        let mut settings = Settings::default();
        read(
            "# ours\n\n a:1 # the first\n::1\r\n",
            "servers.list",
            &mut settings,
        );
        assert_eq!(addresses(&settings), ["a:1", "[::1]:7079"]);
        assert_eq!(settings.problems, []);
    }

    #[test]
    fn a_bad_line_costs_only_itself() {
        let mut settings = Settings::default();
        read("a\nb:99999\na:7079\nc\n", "x.list", &mut settings);
        assert_eq!(addresses(&settings), ["a:7079", "c:7079"]);
        let shown: Vec<String> = settings.problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "x.list:2: invalid port `99999`; expected a number from 1 to 65535",
                "x.list:3: server a:7079 is configured twice; the second entry is ignored"
            ]
        );
    }

    #[test]
    fn the_variable_takes_commas() {
        let mut settings = Settings::default();
        read_variable("a:7079,b, [::1]:5 ,", &mut settings);
        assert_eq!(addresses(&settings), ["a:7079", "b:7079", "[::1]:5"]);
        assert_eq!(settings.problems, []);
    }

    proptest! {
        #[test]
        fn every_line_is_a_server_a_comment_or_a_problem(lines in proptest::collection::vec("[ab:0-9# \\[\\]]{0,8}", 0..20)) {
            let mut settings = Settings::default();
            read(&lines.join("\n"), "l", &mut settings);
            let said = lines.iter().filter(|line| !line.split('#').next().unwrap().trim().is_empty()).count();
            prop_assert_eq!(settings.servers.len() + settings.problems.len(), said);
        }
    }
}
