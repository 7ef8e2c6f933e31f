//! Who looks at the dashboard: by the cookie of a token, by a client certificate, or by the word of a manager without
//! authentication.
//!
//! The cookie has the token's id and a secret that is derived from the token's digest under a random key of this process.
//! The secret serves the dashboard alone, and whoever has it learns nothing about the token. Whoever reads the store cannot
//! make one. No session is kept: the cookie is checked against the directory each time. Invariant: the cookie ends with its
//! token, and with the process.

use std::net::IpAddr;

use axum::http::header::{COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method};
use causeway_security::{DerivingKey, Token, TokenHash};
use causeway_serving::gate::Peer;
use zeroize::Zeroizing;

use super::super::authentication::{Authenticator, wall_now};
use crate::identity::{Caller, NotKnown, Shown, TokenId};

/// The cookie's name and attributes, and the key of its secrets.
#[derive(Clone, Debug)]
pub(super) struct Cookie {
    name: String,
    is_secure: bool,
    key: DerivingKey,
}

impl Cookie {
    /// The cookie of a dashboard at this port. Hosts share cookies among their ports, so the name has the port.
    pub(super) fn new(port: u16, is_secure: bool) -> Cookie {
        let prefix = if is_secure { "__Host-" } else { "" };
        Cookie {
            name: format!("{prefix}causeway-dashboard-{port}"),
            is_secure,
            key: DerivingKey::generate(),
        }
    }

    /// The header that gives the cookie of a token to its caller.
    pub(super) fn given(&self, token: &Token, caller: &Caller) -> Option<HeaderValue> {
        let Shown::Token(TokenId(id)) = &caller.shown else {
            return None;
        };
        let secret = self.key.derive(&token.hash());
        let until = caller.until.map(|until| {
            let seconds = until.0.saturating_sub(wall_now().0) / 1000;
            format!("; Max-Age={seconds}")
        });
        self.header(&format!("{id}.{secret}"), &until.unwrap_or_default())
    }

    /// The header that takes the cookie away.
    pub(super) fn taken(&self) -> Option<HeaderValue> {
        self.header("", "; Max-Age=0")
    }

    fn header(&self, value: &str, until: &str) -> Option<HeaderValue> {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let name = &self.name;
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{until}");
        HeaderValue::from_str(&text).ok()
    }

    /// The token's id and the secret that a request shows.
    fn shown(&self, headers: &HeaderMap) -> Option<(TokenId, TokenHash)> {
        let all = headers.get_all(COOKIE).into_iter();
        let all = all.filter_map(|header| header.to_str().ok());
        let pairs = all.flat_map(|text| text.split(';'));
        let mut named = pairs.filter_map(|pair| pair.trim().split_once('='));
        let (_, value) = named.find(|(name, _)| *name == self.name)?;
        let (id, secret) = value.split_once('.')?;
        Some((TokenId(id.to_owned()), secret.parse().ok()?))
    }

    /// The caller of a request, who may see what the directory allows at present.
    ///
    /// # Errors
    /// [`NotKnown`]
    pub(super) fn caller(
        &self,
        authenticator: &Authenticator,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Result<Caller, NotKnown> {
        let directory = authenticator.directory();
        if !authenticator.authenticates() {
            return Ok(directory.by_word("nobody"));
        }
        // A cookie stays in a browser when its token is over, so a certificate serves beside a bad cookie.
        let by_cookie = match self.shown(headers) {
            Some((id, secret)) => directory.by_derived(&id, &self.key, &secret, wall_now()),
            None => Err(NotKnown::Nothing),
        };
        match (by_cookie, peer.certified.as_deref()) {
            (Err(_), Some(name)) => directory.by_certificate(name),
            (by_cookie, _) => by_cookie,
        }
    }
}

/// The caller of a token that was typed into the form.
///
/// # Errors
/// [`NotKnown`]
pub(super) fn by_token(authenticator: &Authenticator, token: &Token) -> Result<Caller, NotKnown> {
    let directory = authenticator.directory();
    directory.by_token(&token.hash(), wall_now())
}

/// The token in the form's body, `token=...` with escapes.
pub(super) fn token_in(body: &[u8]) -> Option<Token> {
    let text = body.strip_prefix(b"token=")?;
    // As large as it gets, so that no copy is left behind.
    let mut plain = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        plain.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(*rest.next()?).to_digit(16);
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            // Another field.
            b'&' => break,
            other => other,
        });
    }
    Token::parse(&plain).ok()
}

/// Whether a request comes from a page of this dashboard, or from no page. Browsers say so themselves.
pub(super) fn is_own(method: &Method, headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = text("sec-fetch-site");
    if !site.is_none_or(|site| matches!(site, "same-origin" | "none")) {
        return false;
    }
    let Some(origin) = text(ORIGIN.as_str()) else {
        return true;
    };
    let host = text(HOST.as_str());
    let named = origin.split_once("://").map(|(_, authority)| authority);
    *method == Method::GET || (named.is_some() && named == host)
}

/// Whether the request names this machine by an address, or as `localhost`. Any other name may be a stranger's that was
/// made to lead here, so that the stranger's page reads what this machine alone may read.
pub(super) fn names_an_address(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let host = match host.strip_prefix('[') {
        Some(host) => host.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_found_among_others() {
        let cookie = Cookie::new(9080, true);
        let secret = Token::generate().hash();
        let mut headers = HeaderMap::new();
        assert!(cookie.shown(&headers).is_none());
        let text = format!("a=b; __Host-causeway-dashboard-9080=12.{secret};c=d");
        headers.append(COOKIE, "x=y".parse().unwrap());
        headers.append(COOKIE, text.parse().unwrap());
        let (id, shown) = cookie.shown(&headers).unwrap();
        assert_eq!(id, TokenId("12".to_owned()));
        assert!(shown.matches(&secret));
        assert!(Cookie::new(9081, true).shown(&headers).is_none());
        let taken = cookie.taken().unwrap();
        for attribute in ["HttpOnly", "SameSite=Strict", "Secure", "Max-Age=0"] {
            assert!(taken.to_str().unwrap().contains(attribute));
        }
        assert!(
            !Cookie::new(1, false)
                .taken()
                .unwrap()
                .to_str()
                .unwrap()
                .contains("Secure")
        );
    }

    #[test]
    fn a_form_has_its_token_with_escapes() {
        let token = token_in(b"token=causeway_%61b%2Fc&next=1").unwrap();
        assert_eq!(token.reveal(), "causeway_ab/c");
        for wrong in [
            &b""[..],
            b"other=1",
            b"token=",
            b"token=%",
            b"token=%6",
            b"token=%zz",
            b"token=a+b",
        ] {
            assert!(token_in(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn requests_of_other_sites_and_names_are_told_apart() {
        let headers = |pairs: &[(&'static str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                let name = axum::http::HeaderName::from_static(name);
                (name, value.parse().unwrap())
            });
            pairs.collect::<HeaderMap>()
        };
        let own = |method, pairs: &[(&'static str, &str)]| is_own(&method, &headers(pairs));
        assert!(own(Method::POST, &[]));
        assert!(own(
            Method::POST,
            &[("host", "m:1"), ("origin", "https://m:1")]
        ));
        assert!(!own(
            Method::POST,
            &[("host", "m:1"), ("origin", "https://evil")]
        ));
        assert!(!own(Method::POST, &[("host", "m:1"), ("origin", "null")]));
        assert!(!own(Method::GET, &[("sec-fetch-site", "cross-site")]));
        assert!(!own(Method::GET, &[("sec-fetch-site", "same-site")]));
        assert!(own(Method::GET, &[("sec-fetch-site", "same-origin")]));
        for good in ["127.0.0.1:9080", "[::1]:9080", "localhost:1", "192.0.2.1"] {
            assert!(names_an_address(&headers(&[("host", good)])), "{good}");
        }
        for bad in ["evil.example:9080", "localhost.evil.example", ""] {
            assert!(!names_an_address(&headers(&[("host", bad)])), "{bad}");
        }
    }
}
