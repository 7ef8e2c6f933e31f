//! A small CA, for installations that have none: certificates for nodes, managers and users.
//!
//! No files are written and no list of certificates is kept. Invariant: the CA's own certificate only
//! signs certificates, and the certificates that it signs cannot sign others.

use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::files::{BadFile, read_public, read_secret};
use crate::secret::Secret;

/// Why a certificate cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum NotCertified {
    /// The name is not a DNS name.
    #[error("invalid certificate name {0:?}; use letters, digits, '-' and '.'")]
    Name(String),
    /// An error of the library that makes keys and signatures.
    #[error("the certificate could not be made: {0}")]
    Failed(#[from] rcgen::Error),
}

/// A certificate and its key in PEM format.
#[derive(Debug)]
pub struct Issued {
    /// The certificate, which is public.
    pub certificate: String,
    /// The private key, for its owner alone.
    pub key: Secret,
}

/// A CA with its private key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Generates a CA with this period of validity. Also returns its certificate and key, to be stored.
    ///
    /// # Errors
    /// [`NotCertified::Failed`].
    pub fn generate(
        name: &str,
        valid: Range<SystemTime>,
    ) -> Result<(Authority, Issued), NotCertified> {
        let mut parameters = parameters(Vec::new(), name, valid);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = parameters.self_signed(&key)?;
        let issued = issued(&certificate, &key);
        let issuer = Issuer::new(parameters, key);
        Ok((Authority { issuer }, issued))
    }

    /// Loads a CA from files with its certificate and key.
    ///
    /// # Errors
    /// [`BadFile`].
    pub fn load(certificate: &Path, key: &Path) -> Result<Authority, BadFile> {
        // The library's error text might quote the key, so it is not passed on.
        let unusable = |path| {
            BadFile::new(
                path,
                "the file is not a valid PEM file (certificate, or key in PKCS #8)",
            )
        };
        let secret = read_secret(key)?;
        let pair = std::str::from_utf8(secret.reveal())
            .ok()
            .and_then(|text| KeyPair::from_pem(text).ok())
            .ok_or_else(|| unusable(key))?;
        let text = String::from_utf8(read_public(certificate)?).ok();
        let issuer = text.and_then(|text| Issuer::from_ca_cert_pem(&text, pair).ok());
        issuer
            .map(|issuer| Authority { issuer })
            .ok_or_else(|| unusable(certificate))
    }

    /// Issues a certificate for a node or manager with these names and numeric addresses. The holder can
    /// also use it as a client certificate.
    ///
    /// # Errors
    /// [`NotCertified`].
    pub fn node(&self, names: &[String], valid: Range<SystemTime>) -> Result<Issued, NotCertified> {
        let all = names
            .iter()
            .map(|name| match name.parse::<IpAddr>() {
                Ok(address) => Ok(SanType::IpAddress(address)),
                Err(_) => dns(name),
            })
            .collect::<Result<_, _>>()?;
        let first = names.first().map_or("node", String::as_str);
        self.issue(
            parameters(all, first, valid),
            vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
        )
    }

    /// Issues a client certificate for a user.
    ///
    /// # Errors
    /// [`NotCertified`].
    pub fn user(&self, name: &str, valid: Range<SystemTime>) -> Result<Issued, NotCertified> {
        self.issue(
            parameters(vec![dns(name)?], name, valid),
            vec![ExtendedKeyUsagePurpose::ClientAuth],
        )
    }

    fn issue(
        &self,
        mut parameters: CertificateParams,
        purposes: Vec<ExtendedKeyUsagePurpose>,
    ) -> Result<Issued, NotCertified> {
        parameters.is_ca = IsCa::ExplicitNoCa;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = purposes;
        parameters.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        Ok(issued(&certificate, &key))
    }
}

fn parameters(names: Vec<SanType>, common: &str, valid: Range<SystemTime>) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.subject_alt_names = names;
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters
        .distinguished_name
        .push(DnType::CommonName, common);
    parameters.not_before = valid.start.into();
    parameters.not_after = valid.end.into();
    parameters
}

fn dns(name: &str) -> Result<SanType, NotCertified> {
    let bad = || NotCertified::Name(name.to_owned());
    let checked = rustls::pki_types::DnsName::try_from(name).map_err(|_| bad())?;
    let text = checked.as_ref().try_into().map_err(|_| bad())?;
    Ok(SanType::DnsName(text))
}

fn issued(certificate: &rcgen::Certificate, key: &KeyPair) -> Issued {
    Issued {
        certificate: certificate.pem(),
        key: Secret::new(key.serialize_pem()),
    }
}
