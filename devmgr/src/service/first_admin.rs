//! The first administrator of a manager that has nobody else, and the way back for who has lost the last token: a token in
//! a file beside the store.
//!
//! Invariant: a token is in its file before its digest is stored, for one that nobody has would lock everybody out.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use causeway_security::Token;

use super::CannotStart;
use super::gate::wall_now;
use crate::identity::{Directory, IdentityChange, TokenId, TokenRow, User};
use crate::store::{Store, Stored, Write};

/// His name.
const FIRST_ADMIN: &str = "admin";

/// A manager that lets nobody in who has no token needs a first one.
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

/// Makes another token of the administrator `admin`, who is added if he is not there, beside the store at `path`; returns the
/// file. Tokens that he had before count on.
///
/// # Errors
/// [`CannotStart`].
pub fn renew_admin(path: &Path, store: &mut dyn Store) -> Result<PathBuf, CannotStart> {
    let Stored {
        users,
        tokens,
        removed,
        ..
    } = store.load()?;
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
    write(&file, &token).map_err(|error| CannotStart::AdminToken {
        path: file.clone(),
        error,
    })?;
    store.apply(&changes)?;
    Ok(file)
}

/// On the disk when this returns. What had the file's name before, or where a link of its name led, stays as it was.
fn write(path: &Path, token: &Token) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // For its owner alone from the beginning.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    writeln!(file, "{}", token.reveal())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}
