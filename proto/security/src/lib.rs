//! Who may, and who is it: TLS, certificates, tokens.
//!
//! - [`ServerTls`], [`ClientTls`]: a node's or a manager's port, and who calls it, from PEM files;
//! - [`OwnCertificate`]: by which names a server may be reached, and until when;
//! - [`SessionCertificate`], [`Fingerprint`], [`pinned`]: a certificate for one session alone, which the
//!   client knows by its digest;
//! - [`Records`]: an established connection as two functions, from plain bytes to sealed ones and back;
//!   [`Opener`], [`TlsStream`] and [`SecureStream`] put them before the kinds of sockets that there are here;
//! - [`Authority`]: a small CA, for those who have none;
//! - [`Token`], [`TokenList`]: what a client says that has no certificate, and what a server keeps of it;
//! - [`LeaseKey`], [`LeaseVerifier`]: leases that the device manager signs;
//! - [`Secret`]: bytes that no log and no error text shows.
//!
//! TLS is rustls', version 1.3, with the algorithms of ring.
//!
//! What it is not: it knows no message of ours but the signed lease, listens nowhere and decides nothing but whether somebody is
//! who he says. Invariants: nothing secret leaves a type of this crate but by a method that says so in its
//! name; no error text has anything of a secret in it.
#![forbid(unsafe_code)]

mod asynchronous;
mod authority;
mod claim;
mod client;
mod files;
mod fingerprint;
mod handshake;
mod line;
mod own;
mod provider;
mod records;
mod secret;
mod server;
mod session;
mod stream;
mod token;
mod token_list;

pub use asynchronous::{SecureStream, secure};
pub use authority::{Authority, Issued, NotCertified};
pub use claim::{BadKey, LeaseKey, LeaseVerifier, NotALease, VerifiedLease};
pub use client::{ClientTls, pinned};
pub use files::{BadFile, check_own, check_settings, read_secret};
pub use fingerprint::Fingerprint;
pub use handshake::{BadCertificate, NotSecured, complete};
pub use line::Line;
pub use own::OwnCertificate;
pub use records::{Opener, Records};
pub use secret::Secret;
pub use server::{ClientCertificates, ServerTls, user_of};
pub use session::{SessionCertificate, SessionTls};
pub use stream::TlsStream;
pub use token::{BadToken, Token, TokenHash};
pub use token_list::{NotAuthenticated, State as TokenListState, TokenList};

/// A connection before its handshake.
pub type Handshake = rustls::Connection;

/// A TLS conversation begins with a record of this type.
pub const TLS_HANDSHAKE: u8 = 0x16;
