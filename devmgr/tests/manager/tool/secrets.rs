//! Secrets appear in their files only: not in output, not in logs, and not in command lines that `ps`
//! shows.

use super::live::Terminal;
use super::{Secured, ToolOutput};

/// The texts that must not appear: a token, and the contents of keys.
fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let inside = lines.filter(|line| line.len() > 20 && !line.starts_with("---"));
    inside.map(str::to_owned).collect()
}

fn arguments_of(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(!line.is_empty());
    String::from_utf8_lossy(&line).into_owned()
}

#[test]
fn nothing_secret_is_shown_but_once_where_it_is_made() {
    let secured = Secured::start();
    let admin = secured.admin();
    let ann = secured.user("ann");
    let made = admin.run("tokens create ann");
    let from = secured.folder().to_str().unwrap();
    let mut said: Vec<ToolOutput> = vec![admin.run(&format!("certs client ann --from {from}"))];
    for arguments in [
        "users",
        "tokens list",
        "quota",
        "leases",
        "nodes",
        "doctor",
        "--json doctor",
        "top --once --interval 100ms",
        // Mistakes whose error messages could quote a secret.
        "tokens revoke nonsense",
        "tokens create nobody",
    ] {
        said.push(admin.run(arguments));
        said.push(ann.run(arguments));
    }
    // A file with a secret, named in place of another file.
    for name in ["CAUSEWAY_CA", "CAUSEWAY_KEY", "CAUSEWAY_CERTIFICATE"] {
        let wrong = secured.admin().with(name, secured.path("ann.token"));
        said.push(wrong.run("leases"));
        said.push(wrong.run("doctor"));
    }
    let read = |name: &str| std::fs::read_to_string(secured.path(name)).unwrap();
    let mut secrets = lines(&made.out);
    for file in ["ann.token", "ca.key", "manager.key", "ann.key"] {
        secrets.extend(lines(&read(file)));
    }
    assert!(secrets.len() >= 8, "{}", secrets.len());

    let mut top = Terminal::start(&admin, "top");
    top.see("q quits");
    let processes = [top.pid(), secured.manager.pid()].map(arguments_of);
    top.press("q");
    assert_eq!(top.end(), Some(0));

    let log = secured.manager.log();
    assert!(log.contains("token made"), "{log}");
    for secret in &secrets {
        assert!(
            said.iter()
                .all(|of| !of.out.contains(secret) && !of.err.contains(secret))
        );
        assert!(!made.err.contains(secret) && !log.contains(secret));
        assert!(processes.iter().all(|line| !line.contains(secret)));
    }
}
