//! The algorithms: ring's, the quickest first.

use std::sync::{Arc, OnceLock};

use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};

/// The one version that is spoken.
pub(crate) const VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// What every configuration of this crate is made with. No other part of the process is asked for its
/// choice: the library lives in programs of others, which may have made one.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let made = PROVIDER.get_or_init(|| {
        Arc::new(CryptoProvider {
            // All three are sound; the first is the one that processors are quickest at.
            cipher_suites: vec![
                cipher_suite::TLS13_AES_128_GCM_SHA256,
                cipher_suite::TLS13_AES_256_GCM_SHA384,
                cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            ],
            ..default_provider()
        })
    });
    Arc::clone(made)
}
