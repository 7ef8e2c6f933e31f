//! Checks of the files of certificates, keys and tokens in the configuration: whether they can be used,
//! and whether others can read secrets.

use std::path::Path;

use causeway::config::{Settings, TlsSettings};
use causeway_security::{CertificateOf, ClientTls, Token, Validity, read_secret};
use humantime::format_rfc3339_seconds;

use super::finding::Finding;
use crate::validity::RENEW;

const CHECK: &str = "certificates and tokens";
const MISSING: &str = "name the right file (token_file and key in servers.toml, CAUSEWAY_TOKEN_FILE, CAUSEWAY_KEY), or ask an \
                       administrator for it";

/// Checks each file once, wherever it is named.
pub(super) fn secrets(settings: &Settings) -> Vec<Finding> {
    let servers = settings.servers.iter().map(|server| &server.tls);
    let manager = settings.manager.iter().map(|manager| &manager.tls);
    let mut looked_at: Vec<&TlsSettings> = Vec::new();
    for tls in servers.chain(manager).chain([&settings.tls]) {
        if *tls != TlsSettings::default() && !looked_at.contains(&tls) {
            looked_at.push(tls);
        }
    }
    let mut findings: Vec<Finding> = Vec::new();
    let of_each = looked_at.into_iter().flat_map(look_at);
    for finding in of_each.chain(for_the_manager_alone(settings)) {
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings
}

/// A finding for a CA that is configured for the manager only: the nodes of its leases are reached
/// without TLS then. That may be intended.
fn for_the_manager_alone(settings: &Settings) -> Option<Finding> {
    let manager = settings.manager.as_ref()?;
    let is_for_all = settings.tls.ca.is_some();
    (manager.tls.ca.is_some() && !is_for_all).then(|| {
        Finding::note(
            CHECK,
            "the CA is configured in [manager] only: programs reject TLS nodes of their leases",
            "write ca below [tls] in servers.toml (or set CAUSEWAY_CA), which is for the manager and its nodes",
        )
    })
}

/// Findings for the files that nobody else may read: the key, and the token's file.
fn secret_files(tls: &TlsSettings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let secret = |path: &Path| {
        read_secret(path).err().map(|error| {
            let cure = match path.exists() {
                true => format!(
                    "chmod 600 {}, and make sure that you own it",
                    path.display()
                ),
                false => MISSING.to_owned(),
            };
            Finding::problem(CHECK, error.to_string(), cure)
        })
    };
    if let Some(path) = &tls.key {
        findings.extend(secret(path));
    }
    if let Some(path) = &tls.token_file {
        let unreadable = secret(path);
        let is_readable = unreadable.is_none();
        findings.extend(unreadable);
        // A file that cannot be read has a finding already.
        if is_readable && let Err(error) = Token::from_file(path) {
            let cure = "ask an administrator for a token, or create one with causeway tokens create --out FILE";
            findings.push(Finding::problem(CHECK, error.to_string(), cure));
        }
    }
    findings
}

fn look_at(tls: &TlsSettings) -> Vec<Finding> {
    let mut findings = secret_files(tls);
    let identity = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => Some((certificate.as_path(), key.as_path())),
        (None, None) => None,
        _ => {
            findings.push(Finding::problem(
                CHECK,
                "only one of certificate and key is configured",
                "name both (certificate and key in servers.toml, CAUSEWAY_CERTIFICATE and CAUSEWAY_KEY)",
            ));
            return findings;
        }
    };
    let Some(ca) = &tls.ca else {
        if identity.is_some() || tls.token_file.is_some() {
            findings.push(Finding::problem(
                CHECK,
                "a token or certificate is configured, but no CA: without TLS it is not used",
                "name the CA of the other side's certificate (ca in servers.toml, CAUSEWAY_CA)",
            ));
        }
        return findings;
    };
    let owned = tls
        .certificate
        .as_deref()
        .map(|path| (path, CertificateOf::Owner));
    let all = [(ca.as_path(), CertificateOf::Authorities)]
        .into_iter()
        .chain(owned);
    let endings: Vec<Finding> = all.filter_map(|(path, of)| ending(path, of)).collect();
    // Otherwise the load would report a problem from above once more.
    if findings.is_empty() {
        match ClientTls::load(ca, identity) {
            Ok(_) if endings.is_empty() => findings.push(Finding::ok(
                CHECK,
                format!("{}: TLS settings are valid", ca.display()),
            )),
            Ok(_) => {}
            Err(error) => findings.push(Finding::problem(
                CHECK,
                error.to_string(),
                "name the right file; `causeway certs` makes new ones",
            )),
        }
    }
    findings.extend(endings);
    findings
}

/// A finding for a certificate that has expired or expires soon.
fn ending(path: &Path, of: CertificateOf) -> Option<Finding> {
    let found = |what, at| {
        let at = format_rfc3339_seconds(at);
        format!("{}: {what} {at}", path.display())
    };
    let cure = match of {
        CertificateOf::Owner => RENEW,
        CertificateOf::Authorities => {
            "ask the CA's administrator for a new CA (causeway certs ca DIR) and new certificates"
        }
    };
    match Validity::of_file(path, of)? {
        Validity::Until(_) => None,
        Validity::Soon(at) => Some(Finding::note(CHECK, found("expires on", at), cure)),
        Validity::Over(at) => Some(Finding::problem(CHECK, found("has expired on", at), cure)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;
    use causeway::config::{Address, ServerSettings};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_others_can_read_is_a_problem_and_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "hunter2\n").unwrap();
        let ca = folder.path().join("ca.pem");
        let look = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            look_at(&TlsSettings {
                token_file: Some(path.clone()),
                ca: Some(ca.clone()),
                ..TlsSettings::default()
            })
        };
        let open = look(0o644);
        assert_eq!(open.len(), 1);
        assert!(open[0].found.contains("mode 644") && !format!("{open:?}").contains("hunter2"));
        // With the token in order, the missing CA is reported.
        let closed = look(0o600);
        assert!(closed[0].verdict == Verdict::Problem && closed[0].found.contains("ca.pem"));
    }

    #[test]
    fn a_ca_for_the_manager_alone_is_found() {
        let mut manager = ServerSettings::at(Address::with_port("manager", 7078).unwrap());
        manager.tls.ca = Some("ca.pem".into());
        let mut settings = Settings::default();
        settings.manager = Some(manager);
        let found = for_the_manager_alone(&settings).unwrap();
        assert!(found.cure.unwrap().contains("[tls]"));
        settings.tls.ca = Some("ca.pem".into());
        assert_eq!(for_the_manager_alone(&settings), None);
    }

    #[test]
    fn halves_and_words_in_the_clear_are_found() {
        let half = TlsSettings {
            certificate: Some("a.pem".into()),
            ..TlsSettings::default()
        };
        assert!(
            look_at(&half)[0]
                .found
                .contains("only one of certificate and key")
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "hunter2\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let clear = TlsSettings {
            token_file: Some(path),
            ..TlsSettings::default()
        };
        assert!(look_at(&clear)[0].found.contains("no CA"));
    }
}
