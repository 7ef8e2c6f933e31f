//! Authentication and encryption: TLS, certificates, tokens.
//!
//! - [`ServerTls`], [`ClientTls`]: TLS of a node's or manager's port and of its clients, from PEM files;
//! - [`CaDigest`]: a short name of a CA, which a node announces;
//! - [`OwnCertificate`]: the names of a server's own certificate; [`Validity`]: when certificates expire;
//! - [`SessionCertificate`], [`Fingerprint`], [`pinned`]: a certificate for one session, which the client
//!   knows by its digest;
//! - [`Records`]: an established connection as two functions, from plain bytes to encrypted ones and
//!   back; [`Opener`], [`TlsStream`] and [`SecureStream`] put them in front of sockets;
//! - [`Authority`]: a small CA, for installations that have none;
//! - [`Token`], [`TokenList`]: the credential of a client without certificate, and a server's list of
//!   them;
//! - [`LeaseKey`], [`LeaseVerifier`]: leases that the device manager signs;
//! - [`NotStated`]: the manager's signed statements for measured links, which [`LeaseKey`] signs too;
//! - [`EndKey`]: the key with which a node proves that it is the other end of a measured link;
//! - [`seal_reason`], [`open_reason`]: why a session has ended, when its TLS connections cannot say so any more;
//! - [`StateFile`]: a file with a user's or a daemon's state, which nobody else reads;
//! - [`Secret`]: bytes that no log and no error text shows.
//!
//! TLS is rustls, version 1.3, with the algorithms of ring. This crate authenticates callers and decides
//! nothing else. It listens nowhere and knows only the messages that a manager signs. Invariants: a secret
//! leaves a type of this crate only through a method whose name says so. No error text contains any part
//! of a secret.
#![forbid(unsafe_code)]

mod asynchronous;
mod authority;
mod claim;
mod client;
mod digest;
mod files;
mod fingerprint;
mod handshake;
mod line;
mod own;
mod provider;
mod reason;
mod records;
mod secret;
mod server;
mod session;
mod state_file;
mod statement;
mod stream;
mod token;
mod token_list;
mod validity;

pub use asynchronous::{LINGER, SecureStream, linger, secure};
pub use authority::{Authority, Issued, NotCertified};
pub use claim::{BadKey, LeaseKey, LeaseVerifier, NotALease, VerifiedLease};
pub use client::{ClientTls, pinned};
pub use digest::{CaDigest, ca_digests};
pub use files::{BadFile, check_own, check_settings, read_secret};
pub use fingerprint::Fingerprint;
pub use handshake::{NotSecured, complete};
pub use line::Line;
pub use own::OwnCertificate;
pub use reason::{MAX_REASON, MAX_SEALED_REASON, open_reason, seal_reason};
pub use records::{Opener, Records};
pub use secret::Secret;
pub use server::{ClientCertificates, ServerTls, user_of};
pub use session::SessionCertificate;
pub use state_file::{BadState, LockedState, StateFile};
pub use statement::{EndKey, NotStated, is_end_of};
pub use stream::TlsStream;
pub use token::{BadToken, DerivingKey, Token, TokenHash};
pub use token_list::{NotAuthenticated, TokenList, TokenListState};
pub use validity::{CertificateOf, Validity};

/// A connection before and during its handshake.
pub type Handshake = rustls::Connection;

/// Type of the first record of a TLS connection.
pub const TLS_HANDSHAKE: u8 = 0x16;
