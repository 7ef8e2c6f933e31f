//! Configuration: `servers.toml`, `servers.list`, the request file, variables, `daemon.toml`, `manager.toml`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use causeway::config::Settings;
use tempfile::TempDir;

use super::{Form, Target, words};

const SERVERS: &str = include_str!("../../../../etc/servers.toml");
const DAEMON: &str = include_str!("../../../../etc/daemon.toml");
const MANAGER: &str = include_str!("../../../../etc/manager.toml");
const LIST: &str = "# nodes\ngpu1.example:7079\n\n[::1]:80\ngpu2 # late\n127.0.0.1\n";
const PAPER: &str = r#"<?xml version="1.0"?>
<devmngr>manager.example</devmngr>
<devices>
  <device count="2">
    <attribute name="TYPE">CPU</attribute>
    <attribute name="VENDOR" is="contains">Intel &amp; sons</attribute>
    <attribute name="MAX_COMPUTE_UNITS" is=">=">2</attribute>
  </device>
  <device><!-- any --><attribute name="TYPE">GPU</attribute></device>
</devices>
"#;

pub(super) fn targets() -> io::Result<Vec<Target>> {
    Ok(vec![
        servers("servers.toml", "servers.toml", SERVERS)?,
        servers("servers.list", "servers.list", LIST)?.weighing(4),
        paper()?,
        variables(),
        daemon(),
        manager(),
    ])
}

// A shipped file as it is, and with its examples enabled.
fn with_examples(text: &str) -> Vec<Vec<u8>> {
    let shown: String = text
        .lines()
        .map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned() + "\n")
        .collect();
    let without: String = shown
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.to_owned() + "\n")
        .collect();
    [text, &shown, &without]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

// Loads settings. Checks that they can be printed.
fn understood(variables: &[(&str, OsString)]) -> bool {
    let settings = Settings::load_with(variables);
    let shown = format!("{settings:?}");
    assert!(!shown.is_empty());
    settings.problems.is_empty()
}

fn empty_folder() -> io::Result<(TempDir, OsString)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().as_os_str().to_owned();
    Ok((folder, path))
}

fn servers(name: &'static str, file: &str, text: &str) -> io::Result<Target> {
    let (folder, path) = empty_folder()?;
    let file = folder.path().join(file);
    Ok(Target::new(
        name,
        Form::Text(words(&[text])),
        with_examples(text),
        move |bytes| {
            fs::write(&file, bytes).expect("the folder is ours");
            understood(&[("CAUSEWAY_CONFIG", path.clone())]) && folder.path().exists()
        },
    )
    .holding(1 << 20))
}

fn paper() -> io::Result<Target> {
    let (folder, path) = empty_folder()?;
    fs::write(folder.path().join("servers.toml"), [])?;
    let file = folder.path().join("request.xml");
    let variables = [
        ("CAUSEWAY_CONFIG", path),
        ("CAUSEWAY_REQUEST_FILE", file.as_os_str().to_owned()),
    ];
    let valid = vec![PAPER.as_bytes().to_vec()];
    Ok(Target::new(
        "request file (XML)",
        Form::Text(words(&[PAPER])),
        valid,
        move |bytes| {
            fs::write(&file, bytes).expect("the folder is ours");
            understood(&variables) && folder.path().exists()
        },
    )
    .holding(1 << 20))
}

// One line for each variable, in this order.
fn variables() -> Target {
    const NAMES: [&str; 7] = [
        "CAUSEWAY_SERVERS",
        "CAUSEWAY_MANAGER",
        "CAUSEWAY_REQUEST",
        "CAUSEWAY_PRIORITY",
        "CAUSEWAY_TIME_LIMIT",
        "CAUSEWAY_COMPRESSION",
        "CAUSEWAY_LEASE",
    ];
    const VALUES: &str = "gpu1,[::1]:80,gpu2:7079\nmanager.example:7078\n2, TYPE=GPU, NAME contains A\nhigh\n2h30m\nlz4\n";
    let valid = vec![VALUES.as_bytes().to_vec()];
    Target::new("variables", Form::Text(words(&[VALUES])), valid, |bytes| {
        let lines = bytes.split(|byte| *byte == b'\n');
        let value = |line: &[u8]| std::ffi::OsStr::from_bytes(line).to_owned();
        let mut variables: Vec<_> = NAMES.into_iter().zip(lines.map(value)).collect();
        variables.push(("CAUSEWAY_CONFIG", "/nonexistent/causeway".into()));
        let settings = Settings::load_with(&variables);
        settings.problems.len() <= 1
    })
    .holding(1 << 20)
}

fn daemon() -> Target {
    use causeway_daemon::config::{ConfigFile, Flags, Settings};
    let read = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let file = ConfigFile::parse(Path::new("daemon.toml"), text);
        let settings = file.map_err(|error| error.to_string());
        let settings = settings.and_then(|file| {
            Settings::combine(&Flags::default(), &file).map_err(|error| error.to_string())
        });
        settings.is_ok()
    };
    Target::new(
        "daemon.toml",
        Form::Text(words(&[DAEMON])),
        with_examples(DAEMON),
        read,
    )
    .holding(1 << 20)
}

fn manager() -> Target {
    use causeway_devmgr::settings::{ConfigFile, Flags, Settings};
    let read = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let file = ConfigFile::parse(Path::new("manager.toml"), text);
        let settings = file.map_err(|error| error.to_string());
        let settings = settings.and_then(|file| {
            Settings::combine(&Flags::default(), &file).map_err(|error| error.to_string())
        });
        settings.is_ok()
    };
    Target::new(
        "manager.toml",
        Form::Text(words(&[MANAGER])),
        with_examples(MANAGER),
        read,
    )
    .holding(1 << 20)
}
