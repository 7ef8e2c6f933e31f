//! The token of the first administrator, in a file of the manager's host. It is written for a manager without
//! any administrator, and on request after the last token was lost.
//!
//! Invariant: a token is in its file before its digest is stored. A stored token that nobody has would
//! lock everyone out.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use causeway_security::Token;

use super::authentication::wall_now;
use super::error::CannotStart;
use crate::identity::{Directory, IdentityChange, TokenId, TokenRow, User};
use crate::store::{Store, Stored, Write};

/// The first administrator's name.
const FIRST_ADMIN: &str = "admin";

/// The file for the token beside a store's file.
#[must_use]
pub fn token_file(store: &Path) -> PathBuf {
    let mut file = store.to_owned().into_os_string();
    file.push(".admin-token");
    PathBuf::from(file)
}

/// Adds an administrator with a token in this file, if an authenticating manager has none.
pub(super) fn ensure(
    path: &Path,
    file: &Path,
    store: &mut dyn Store,
    directory: &mut Directory,
) -> Result<(), CannotStart> {
    if directory.users().any(|user| user.admin) {
        return Ok(());
    }
    put(path, file, store, directory, "first")?;
    tracing::warn!(path = %file.display(), "there was no administrator: the token of {FIRST_ADMIN:?} is in this file; move it to where you need it");
    Ok(())
}

/// Makes another token for the administrator `admin` of the store at `path`, in this file. Adds that user
/// if necessary. Earlier tokens stay valid.
///
/// # Errors
/// [`CannotStart`]: the store or the file cannot be used.
pub(super) fn renew_admin(
    path: &Path,
    file: &Path,
    store: &mut dyn Store,
) -> Result<(), CannotStart> {
    let Stored {
        users,
        tokens,
        removed,
        ..
    } = store.load().map_err(CannotStart::store(path))?;
    let mut directory = Directory::new(users, tokens, removed);
    put(path, file, store, &mut directory, "renewed")
}

fn put(
    path: &Path,
    file: &Path,
    store: &mut dyn Store,
    directory: &mut Directory,
    label: &str,
) -> Result<(), CannotStart> {
    let known = directory.user(&FIRST_ADMIN.into());
    let user = User {
        name: FIRST_ADMIN.into(),
        groups: known.map_or_else(Vec::new, |known| known.groups.clone()),
        admin: true,
        node: false,
    };
    let token = Token::generate();
    let row = TokenRow {
        id: TokenId(format!("{:016x}", rand::random::<u64>())),
        user: user.name.clone(),
        label: label.to_owned(),
        hash: token.hash().0,
        expires: None,
    };
    let mut changes = Vec::new();
    for wanted in [IdentityChange::PutUser(user), IdentityChange::PutToken(row)] {
        let decided = directory.decide(wanted, wall_now());
        let decided = decided.map_err(CannotStart::NoAdmin)?;
        decided
            .iter()
            .cloned()
            .for_each(|change| directory.apply(change));
        changes.extend(decided.into_iter().map(Write::Identity));
    }
    // The file comes first, by the invariant of the module. If the store then fails, the file has a token
    // that is not valid.
    write(file, &token).map_err(|error| CannotStart::AdminToken {
        path: file.to_owned(),
        error,
    })?;
    store.apply(&changes).map_err(CannotStart::store(path))
}

/// Writes the token durably. An existing file of this name, or the target of a link, is replaced and not
/// changed.
fn write(path: &Path, token: &Token) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // The temporary file is readable by its owner only, from the beginning.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    writeln!(file, "{}", token.reveal())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}
