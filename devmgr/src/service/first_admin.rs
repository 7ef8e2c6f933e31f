//! The token of the first administrator, in a file next to the store. It is written for a manager without
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

/// Adds an administrator with a token, if an authenticating manager has none.
pub(super) fn ensure(
    path: &Path,
    store: &mut dyn Store,
    directory: &mut Directory,
) -> Result<(), CannotStart> {
    if directory.users().any(|user| user.admin) {
        return Ok(());
    }
    let file = put(path, store, directory, "first")?;
    tracing::warn!(path = %file.display(), "there was no administrator: the token of {FIRST_ADMIN:?} is in this file; move it to where you need it");
    Ok(())
}

/// Makes another token for the administrator `admin`, next to the store at `path`, and returns the file.
/// Adds that user if necessary. Earlier tokens stay valid.
///
/// # Errors
/// [`CannotStart`]: the store or the file cannot be used.
pub fn renew_admin(path: &Path, store: &mut dyn Store) -> Result<PathBuf, CannotStart> {
    let Stored {
        users,
        tokens,
        removed,
        ..
    } = store.load().map_err(CannotStart::store(path))?;
    let mut directory = Directory::new(users, tokens, removed);
    put(path, store, &mut directory, "renewed")
}

fn put(
    path: &Path,
    store: &mut dyn Store,
    directory: &mut Directory,
    label: &str,
) -> Result<PathBuf, CannotStart> {
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
    let mut file = path.to_owned().into_os_string();
    file.push(".admin-token");
    let file = PathBuf::from(file);
    // The file comes first, by the invariant of the module. If the store then fails, the file has a token
    // that is not valid.
    write(&file, &token).map_err(|error| CannotStart::AdminToken {
        path: file.clone(),
        error,
    })?;
    store.apply(&changes).map_err(CannotStart::store(path))?;
    Ok(file)
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
