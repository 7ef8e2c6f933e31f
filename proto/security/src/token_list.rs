//! A server's list of tokens: a file with digests, users and expiry dates, which is read again whenever
//! it has changed.
//!
//! One token per line, `SHA256 USER [UNTIL]`: the digest in hexadecimal digits, a name without spaces,
//! and the expiry. That is a day (`2026-12-31`, UTC, to its end) or a second of Unix time. `#` begins a
//! comment. Removing a line revokes the token. Invariant: an unreadable file or an invalid line admits
//! nobody.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use crate::files::{BadFile, read_public};
use crate::token::{Token, TokenHash};

/// Longer than the resolution of any system's clock.
const TICK: Duration = Duration::from_secs(2);
const SECONDS_A_DAY: u64 = 86_400;

/// Why a client is not admitted.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum NotAuthenticated {
    /// The client has sent no token, and the node accepts nothing else.
    #[error(
        "the node requires a token; name its file (token_file below [tls] in servers.toml, or CAUSEWAY_TOKEN_FILE)"
    )]
    NoToken,
    /// The client has shown no certificate, and the node accepts nothing else.
    #[error(
        "the node requires a client certificate; name it and its key (certificate and key below [tls] in \
         servers.toml, or CAUSEWAY_CERTIFICATE and CAUSEWAY_KEY)"
    )]
    NoCertificate,
    /// The client has sent neither of the two that the node accepts.
    #[error(
        "the node requires a token or a client certificate; name one of them (token_file, or certificate and key, \
         below [tls] in servers.toml; CAUSEWAY_TOKEN_FILE, or CAUSEWAY_CERTIFICATE and CAUSEWAY_KEY)"
    )]
    Nothing,
    /// The token is not on the list, or not any more.
    #[error("the token is unknown or was revoked; ask for a new one")]
    Unknown,
    /// The token has expired.
    #[error("the token has expired; ask for a new one")]
    Expired,
    /// The list cannot be read.
    #[error(
        "the node cannot read its list of tokens and rejects all tokens; its log and /healthz give the reason"
    )]
    Unreadable,
}

/// A list of tokens in a file; see the module.
#[derive(Debug)]
pub struct TokenList {
    path: PathBuf,
    read: Mutex<Read>,
}

#[derive(Debug)]
struct Read {
    stamp: Option<Stamp>,
    tokens: Vec<Listed>,
    state: TokenListState,
    /// The last state that [`TokenList::news`] has returned.
    reported: TokenListState,
}

/// Result of reading a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TokenListState {
    /// The whole file is valid.
    #[default]
    Good,
    /// These lines, counted from 1, are invalid and admit nobody.
    Wrong(Vec<usize>),
    /// The file cannot be read, so no token is admitted. Contains the reason.
    Unreadable(String),
}

/// Identifies a version of the file. Another file, or a changed one, has another stamp.
type Stamp = (u64, u64, i64, i64, u64, i64, i64);

#[derive(Debug)]
struct Listed {
    hash: TokenHash,
    user: String,
    until: Option<u64>,
}

impl TokenList {
    /// Loads the list, which must be without errors at first.
    ///
    /// # Errors
    /// [`BadFile`] with the number of the invalid line, and nothing of its contents.
    pub fn load(path: &Path) -> Result<TokenList, BadFile> {
        let (tokens, wrong) = parse(&text(path)?);
        if let Some(line) = wrong.first() {
            let problem = format!(
                "line {line} is invalid; expected SHA256 USER [UNTIL], e.g. \"ab12… alice 2026-12-31\""
            );
            return Err(BadFile::new(path, problem));
        }
        Ok(TokenList {
            path: path.to_owned(),
            read: Mutex::new(Read {
                stamp: None,
                tokens,
                state: TokenListState::Good,
                reported: TokenListState::Good,
            }),
        })
    }

    /// Reads the file if it has changed, and returns its state.
    pub fn state(&self, now: SystemTime) -> TokenListState {
        let mut read = self.read.lock();
        read.renew(&self.path, now);
        read.state.clone()
    }

    /// The state of the last reading, if it differs from the one that this function returned before.
    pub fn news(&self) -> Option<TokenListState> {
        let mut read = self.read.lock();
        if read.state == read.reported {
            return None;
        }
        read.reported = read.state.clone();
        Some(read.state.clone())
    }

    /// The user of a token, according to the current file.
    ///
    /// # Errors
    /// [`NotAuthenticated`].
    pub fn user(&self, token: &Token, now: SystemTime) -> Result<String, NotAuthenticated> {
        let mut read = self.read.lock();
        read.renew(&self.path, now);
        let hash = token.hash();
        let found = read.tokens.iter().find(|listed| listed.hash.matches(&hash));
        let found = found.ok_or(match read.state {
            TokenListState::Unreadable(_) => NotAuthenticated::Unreadable,
            _ => NotAuthenticated::Unknown,
        })?;
        // A clock before 1970 is not set. Tokens with an expiry then count as expired.
        let now = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(u64::MAX, |since| since.as_secs());
        if found.until.is_some_and(|until| now >= until) {
            return Err(NotAuthenticated::Expired);
        }
        Ok(found.user.clone())
    }
}

impl Read {
    fn renew(&mut self, path: &Path, now: SystemTime) {
        let stamp = stamp(path).filter(|_| is_settled(path, now));
        // A missing file has no stamp, so it is looked for again each time.
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        let text = text(path);
        // If reading failed, for example for lack of descriptors, the next call tries again.
        self.stamp = stamp.filter(|_| text.is_ok());
        (self.tokens, self.state) = match text {
            Ok(text) => {
                let (tokens, wrong) = parse(&text);
                let state = match wrong.is_empty() {
                    true => TokenListState::Good,
                    false => TokenListState::Wrong(wrong),
                };
                (tokens, state)
            }
            Err(error) => (Vec::new(), TokenListState::Unreadable(error.to_string())),
        };
    }
}

// Whether the file's stamp is reliable. A file that changes twice within a tick of the system's clock
// keeps its stamp, so a recent one is not relied on.
fn is_settled(path: &Path, now: SystemTime) -> bool {
    let changed = fs::metadata(path).and_then(|of| of.modified());
    changed.is_ok_and(|changed| now.duration_since(changed).is_ok_and(|age| age > TICK))
}

fn stamp(path: &Path) -> Option<Stamp> {
    let of = fs::metadata(path).ok()?;
    Some((
        of.dev(),
        of.ino(),
        of.mtime(),
        of.mtime_nsec(),
        of.size(),
        of.ctime(),
        of.ctime_nsec(),
    ))
}

fn text(path: &Path) -> Result<String, BadFile> {
    String::from_utf8(read_public(path)?)
        .map_err(|_| BadFile::new(path, "the file is not UTF-8 text"))
}

// Returns the tokens, and the numbers of the invalid lines.
fn parse(text: &str) -> (Vec<Listed>, Vec<usize>) {
    let (mut tokens, mut wrong) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        match listed(line) {
            Some(listed) => tokens.push(listed),
            None => wrong.push(number),
        }
    }
    (tokens, wrong)
}

fn listed(line: &str) -> Option<Listed> {
    let mut words = line.split_ascii_whitespace();
    let hash = words.next()?.parse().ok()?;
    let user = words.next()?.to_owned();
    let until = match words.next() {
        Some(until) => Some(end_of(until)?),
        None => None,
    };
    words
        .next()
        .is_none()
        .then_some(Listed { hash, user, until })
}

// Parses an expiry into the second of Unix time at which it takes effect: the end of a day, or the given
// second.
fn end_of(text: &str) -> Option<u64> {
    match text.split('-').collect::<Vec<_>>()[..] {
        [second] => second.parse().ok(),
        [year, month, day] => {
            let midnight = format!("{year}-{month:0>2}-{day:0>2}T00:00:00Z");
            let midnight = humantime::parse_rfc3339(&midnight).ok()?;
            let since = midnight.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            Some(since.as_secs() + SECONDS_A_DAY)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn what_could_not_be_read_is_read_again_although_it_did_not_change() {
        let folder = tempfile::tempdir().unwrap();
        let mut read = Read {
            stamp: None,
            tokens: Vec::new(),
            state: TokenListState::Good,
            reported: TokenListState::Good,
        };
        // A folder has metadata, but reading it fails.
        read.renew(folder.path(), SystemTime::now() + 60 * TICK);
        assert_eq!(read.stamp, None);
        let file = folder.path().join("tokens");
        fs::write(&file, format!("{} ann\n", "0".repeat(64))).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        read.renew(&file, SystemTime::now() + 60 * TICK);
        assert!(read.stamp.is_some() && read.tokens.len() == 1);
    }

    #[test]
    fn what_is_wrong_with_the_file_is_told_once_and_at_each_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let ann = Token::generate();
        let good = format!("{} ann\n", ann.hash());
        fs::write(&path, &good).unwrap();
        let list = TokenList::load(&path).unwrap();
        let ask = || list.user(&ann, SystemTime::now());
        assert!(ask().is_ok() && list.news().is_none());
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o666);
        for round in 0..3 {
            assert_eq!(ask(), Err(NotAuthenticated::Unreadable));
            match list.news() {
                Some(TokenListState::Unreadable(why)) if round == 0 => {
                    assert!(why.contains("chmod") && why.contains("tokens"), "{why}");
                }
                news => assert!(news.is_none() && round > 0, "{news:?}"),
            }
        }
        fs::remove_file(&path).unwrap();
        let gone = list.state(SystemTime::now());
        assert!(matches!(gone, TokenListState::Unreadable(_)), "{gone:?}");
        assert_eq!(list.news(), Some(gone));
        fs::write(&path, format!("{good}\nnonsense\n")).unwrap();
        assert!(ask().is_ok());
        assert_eq!(list.news(), Some(TokenListState::Wrong(vec![3])));
        fs::write(&path, good).unwrap();
        assert!(ask().is_ok());
        assert_eq!(list.news(), Some(TokenListState::Good));
    }

    #[test]
    fn days_are_counted_as_calendars_do() {
        for (text, end) in [
            ("1970-01-01", 86_400),
            ("2000-02-29", 951_868_800),
            ("2000-03-01", 951_955_200),
            ("2026-12-31", 1_798_761_600),
            ("2100-03-01", 4_107_628_800),
            ("1700000000", 1_700_000_000),
        ] {
            assert_eq!(end_of(text), Some(end), "{text}");
        }
        for text in [
            "",
            "x",
            "2026-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-01-00",
            "2026-01",
            "2100-02-29",
            "1-1-1",
            "2026-1-1-1",
            "soon",
            "-1",
        ] {
            assert_eq!(end_of(text), None, "{text}");
        }
    }

    #[test]
    fn tokens_come_go_and_expire_with_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let (alice, bob) = (Token::generate(), Token::generate());
        let write = |text: String| {
            let fresh = folder.path().join("fresh");
            fs::write(&fresh, text).unwrap();
            fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).unwrap();
            fs::rename(&fresh, &path).unwrap();
        };
        write(format!(
            "# ours\n{} alice\n\n{} bob 2026-12-31 # leaves\n",
            alice.hash(),
            bob.hash()
        ));
        let list = TokenList::load(&path).unwrap();
        assert_eq!(list.user(&alice, at(0)), Ok("alice".to_owned()));
        assert_eq!(list.user(&bob, at(1_798_761_599)), Ok("bob".to_owned()));
        assert_eq!(
            list.user(&bob, at(1_798_761_600)),
            Err(NotAuthenticated::Expired)
        );
        let stranger = Token::generate();
        assert_eq!(list.user(&stranger, at(0)), Err(NotAuthenticated::Unknown));

        // One token is removed, and an invalid line is added.
        write(format!("nonsense\n{} bob\n", bob.hash()));
        assert_eq!(list.user(&alice, at(0)), Err(NotAuthenticated::Unknown));
        assert_eq!(list.user(&bob, at(u64::MAX / 4)), Ok("bob".to_owned()));
        // Without the file, nobody is admitted.
        fs::remove_file(&path).unwrap();
        assert_eq!(list.user(&bob, at(0)), Err(NotAuthenticated::Unreadable));
    }

    #[test]
    fn a_list_with_a_mistake_is_no_begin() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let hash = Token::generate().hash().to_string();
        for wrong in [
            hash.clone(),
            format!("{hash} a b"),
            format!("{hash} a 2026-12-31 b"),
            "hunter2 alice".to_owned(),
        ] {
            fs::write(&path, format!("\n{wrong}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let error = TokenList::load(&path).unwrap_err().to_string();
            assert!(
                error.contains("line 2") && !error.contains("hunter2"),
                "{error}"
            );
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(TokenList::load(&path).is_err());
    }
}
