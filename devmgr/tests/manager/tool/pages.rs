//! The tool's completions and manual pages, and the path of its measurements.

use std::process::{Command, Stdio};

use super::Tool;

#[test]
fn shells_take_the_completions() {
    let tool = Tool::of("ann");
    for shell in ["bash", "zsh", "fish"] {
        let script = tool.does(&format!("completions {shell}"));
        for verb in ["quota", "certs", "top", "doctor"] {
            assert!(script.contains(verb), "{shell}: no {verb}");
        }
    }
    let script = tool.does("completions bash");
    let file = tool.home().join("completions");
    std::fs::write(&file, script).unwrap();
    let checked = Command::new("bash")
        .arg("-n")
        .arg(&file)
        .stdin(Stdio::null())
        .status();
    assert!(checked.unwrap().success());
    assert_eq!(tool.json("completions fish")["shell"], "fish");
}

#[test]
fn every_verb_has_a_page() {
    let tool = Tool::of("ann");
    let help = tool.does("--help");
    let verbs = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs = verbs.take_while(|line| !line.is_empty());
    let verbs: Vec<&str> = verbs
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(verbs.len() > 10, "{help}");
    tool.does("man pages");
    let page = |name: &str| std::fs::read_to_string(tool.home().join("pages").join(name));
    for verb in verbs.into_iter().filter(|verb| *verb != "help") {
        assert!(page(&format!("causeway-{verb}.1")).is_ok(), "{verb}");
    }
    let run = page("causeway-run.1").unwrap();
    for section in [
        "REQUESTS",
        "ENVIRONMENT",
        "FILES",
        "EXIT STATUS",
        "EXAMPLES",
    ] {
        assert!(run.contains(&format!(".SH {section}\n")), "{section}");
    }
    assert!(page("causeway-certs-node.1").unwrap().contains("address"));
    assert!(page("causeway.1").is_ok() && page("causeway-devmgr.1").is_ok());
    assert!(page("causeway-help.1").is_err());
}

#[test]
fn the_measurements_are_another_program_or_told_where_to_get() {
    let none = Tool::of("ann").with("CAUSEWAY_BENCH", "/nowhere/bench");
    let said = none.run("bench all");
    assert_eq!(said.code, Some(127), "{said:?}");
    assert!(
        said.err.contains("cargo build --release -p bench"),
        "{said:?}"
    );
    let echo = Tool::of("ann").with("CAUSEWAY_BENCH", "/bin/echo");
    assert_eq!(echo.does("bench latency --quick"), "latency --quick\n");
}
