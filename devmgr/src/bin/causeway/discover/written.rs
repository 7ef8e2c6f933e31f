//! `causeway discover --write`: adds found nodes to `servers.toml`.
//!
//! Entries are appended, so everything that the file has stays as it is, with its comments. Invariant: the file is
//! replaced as a whole, and only if the new text is valid.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use causeway::config::{Address, ServerSettings, Settings, own_file};

use crate::failure::Failure;
use crate::new_file::{NewFile, PUBLIC};

/// Adds servers to the file that the settings came from, else to the user's. Returns the file's name.
pub(super) fn add(settings: &Settings, servers: &[ServerSettings]) -> Result<PathBuf, Failure> {
    let path = file(settings)?;
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    // A link stays a link.
    let target = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let (before, mode) = match fs::read_to_string(&target) {
        Ok(text) => {
            let metadata = fs::metadata(&target).map_err(|error| failed(&error))?;
            (text, metadata.permissions().mode() & 0o777)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => (String::new(), PUBLIC),
        Err(error) => return Err(failed(&error)),
    };
    let after = with(&before, servers)?;
    toml::from_str::<toml::Table>(&after)
        .map_err(|error| failed(&format!("the servers cannot be added: {}", error.message())))?;
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    }
    let next = target.with_extension(format!("toml.{}", std::process::id()));
    NewFile::create(next.clone(), mode)?.write(after.as_bytes())?;
    fs::rename(&next, &target).map_err(|error| {
        // Only the new text is lost.
        let _ = fs::remove_file(&next);
        failed(&error)
    })?;
    Ok(path)
}

/// The text with further entries at its end. Entries name the files of TLS themselves if the text has no `[tls]`: those
/// of the environment are not there later, and the program would dial without TLS.
fn with(before: &str, servers: &[ServerSettings]) -> Result<String, Failure> {
    let has_tls = toml::from_str::<toml::Table>(before).is_ok_and(|of| of.contains_key("tls"));
    let mut text = before.to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    for server in servers {
        let addresses: Vec<String> = server.addresses().map(|of| quoted(of.as_str())).collect();
        let name = server.name.as_deref().unwrap_or_default();
        if !text.is_empty() {
            text.push('\n');
        }
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "[[server]]\naddress = [{}]\nname = {}",
            addresses.join(", "),
            quoted(name)
        );
        if let Some(name) = &server.tls.name {
            let _ = writeln!(text, "tls_name = {}", quoted(name));
        }
        let tls = &server.tls;
        let files = [
            ("ca", &tls.ca),
            ("certificate", &tls.certificate),
            ("key", &tls.key),
            ("token_file", &tls.token_file),
        ];
        for (key, file) in files {
            let Some(file) = file.as_ref().filter(|_| !has_tls) else {
                continue;
            };
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            let file = file.to_str().ok_or_else(|| {
                let what = format!(
                    "{} cannot be written into servers.toml: it is not UTF-8",
                    file.display()
                );
                Failure::new(what).cure("rename the file")
            })?;
            let _ = writeln!(text, "{key} = {}", toml::Value::from(file));
        }
    }
    Ok(text)
}

/// Names and addresses have been checked, so they contain nothing to escape.
fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

fn file(settings: &Settings) -> Result<PathBuf, Failure> {
    let of_settings = settings.origins.iter().map(Path::new);
    let mut files = of_settings.filter(|path| path.extension().is_some_and(|of| of == "toml"));
    if let Some(path) = files.next() {
        return Ok(path.to_owned());
    }
    own_file().ok_or_else(|| {
        Failure::new("there is no folder for servers.toml").cure("set HOME or CAUSEWAY_CONFIG")
    })
}

/// Whether a server has one of these addresses, or this name.
pub(super) fn is_configured(
    settings: &Settings,
    name: &str,
    server: Option<&ServerSettings>,
) -> bool {
    let is_it = |address: &Address| {
        address.host() == name || server.is_some_and(|server| server.is_at(address))
    };
    settings
        .servers
        .iter()
        .flat_map(ServerSettings::addresses)
        .any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_appended_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("servers.toml");
        let before = "# ours\ndiscover = true # yes\n[tls]\nca = \"ca.pem\"";
        fs::write(&path, before).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let mut settings = Settings::default();
        settings.origins.push(path.display().to_string());
        let mut server = ServerSettings::at("10.0.0.7:7079".parse().unwrap());
        server.further = vec!["[fe80::1%eth0]:7079".parse().unwrap()];
        (server.name, server.tls.name) = (Some("gpu1".into()), Some("gpu1".into()));
        assert_eq!(add(&settings, &[server]).unwrap(), path);
        let after = fs::read_to_string(&path).unwrap();
        let expected = "\n\n[[server]]\naddress = [\"10.0.0.7:7079\", \"[fe80::1%eth0]:7079\"]\nname = \"gpu1\"\ntls_name = \"gpu1\"\n";
        assert_eq!(after, format!("{before}{expected}"));
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o640
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // Without `[tls]` in the file, the entry has what it takes to be dialled with TLS.
        fs::write(&path, "discover = true\n").unwrap();
        let mut server = ServerSettings::at("10.0.0.7:7079".parse().unwrap());
        server.tls.ca = Some("/etc/ca \"1\".pem".into());
        server.tls.certificate = Some("/home/ann/ann.pem".into());
        add(&settings, &[server]).unwrap();
        let after: toml::Table = toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let entry = after["server"][0].as_table().unwrap();
        assert_eq!(entry["ca"].as_str(), Some("/etc/ca \"1\".pem"));
        assert_eq!(entry["certificate"].as_str(), Some("/home/ann/ann.pem"));
        assert!(!entry.contains_key("key"));
        // A file that cannot take entries stays as it is.
        fs::write(&path, "server = []\n").unwrap();
        let server = ServerSettings::at("10.0.0.7:7079".parse().unwrap());
        assert!(add(&settings, &[server]).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "server = []\n");
    }
}
