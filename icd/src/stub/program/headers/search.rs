//! The search for headers in the folders and files of this machine that the options name.
//!
//! The order is Clang's. A quoted name is searched beside the including file, and then in the folders of
//! `-iquote`. After that, like a name in angle brackets, in the folders of `-I`, `-isystem` and
//! `-idirafter`. Folders of one kind are searched in the given order. Invariant: each file is read once for
//! a build.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use causeway_proto::source::{Header, narrow, without_mark, words};

use super::level::Level;

/// Reads a file; `None` when the file does not exist.
pub(in crate::stub::program) type Read<'a> = &'a dyn Fn(&Path) -> Option<Vec<u8>>;

/// Reads a regular file of this machine.
pub(in crate::stub::program) fn from_disk(path: &Path) -> Option<Vec<u8>> {
    // Opening a pipe or a device might block for ever.
    let regular = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    regular.then(|| std::fs::read(path).ok())?
}

/// Options that name a folder, in the order in which Clang searches the kinds.
const FOLDERS: [&str; 4] = ["-iquote", "-I", "-isystem", "-idirafter"];
const FORCED: &str = "-include";

/// A header that was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// Number of the file among the files of this build.
    pub(super) number: usize,
    /// The contents without a byte order mark.
    pub(super) contents: Rc<[u8]>,
    /// Index of the folder in which the file was found. A file beside the including file has that file's
    /// folder. `None` if an absolute path or the working directory led to it.
    pub(super) folder: Option<usize>,
}

// A file's number and contents.
type Known = (usize, Rc<[u8]>);

/// The folders and files of one build; see the module.
pub(super) struct Search<'a> {
    // Each with the index of its kind in FOLDERS.
    folders: Vec<(usize, PathBuf)>,
    /// The files that `-include` names.
    pub(super) forced: Vec<String>,
    read: Read<'a>,
    known: HashMap<PathBuf, Option<Known>>,
}

impl<'a> Search<'a> {
    pub(super) fn new(options: &str, read: Read<'a>) -> Search<'a> {
        let mut search = Search {
            folders: Vec::new(),
            forced: Vec::new(),
            read,
            known: HashMap::new(),
        };
        let mut words = words(options).into_iter();
        while let Some(word) = words.next() {
            let mut operand = |option| {
                let joined = word.strip_prefix(option)?;
                let named = match joined {
                    "" => words.next().unwrap_or(""),
                    _ => joined,
                };
                Some(bare(named))
            };
            if let Some(file) = operand(FORCED) {
                search.forced.push(file);
                continue;
            }
            let folder = FOLDERS.iter().enumerate().find_map(|(kind, option)| {
                let folder = narrow(&operand(option)?);
                Some((kind, tidy(path_of(&folder))))
            });
            search.folders.extend(folder);
        }
        search.folders.sort_by_key(|(kind, _)| *kind);
        // A second copy of a folder would let `#include_next` find the including file itself.
        let mut known = HashSet::new();
        let folders = &mut search.folders;
        folders.retain(|(kind, path)| known.insert((*kind == 0, path.clone())));
        search
    }

    /// Returns the file that a directive in `from` refers to; `None` is the program's text. With `next`,
    /// searches only the folders behind the one in which `from` was found.
    pub(super) fn find(
        &mut self,
        header: &Header,
        from: Option<&Level>,
        next: bool,
    ) -> Option<Found> {
        let name = path_of(&header.name);
        if name.is_absolute() {
            return self.file(name, None);
        }
        let after = from.filter(|_| next).and_then(|from| from.folder);
        // Beside the including file first; the program's text counts as being in the working directory.
        if header.quoted && after.is_none() {
            let beside = from.and_then(|from| from.path.parent());
            let path = beside.unwrap_or(Path::new("")).join(name);
            if let Some(found) = self.file(&path, from.and_then(|from| from.folder)) {
                return Some(found);
            }
        }
        let first = after.map_or(0, |after| after + 1);
        (first..self.folders.len()).find_map(|place| {
            // Names in angle brackets skip the folders of `-iquote`, kind 0.
            let (kind, folder) = &self.folders[place];
            let searched = header.quoted || *kind > 0;
            let path = searched.then(|| folder.join(name))?;
            self.file(&path, Some(place))
        })
    }

    fn file(&mut self, path: &Path, folder: Option<usize>) -> Option<Found> {
        let (read, path) = (self.read, tidy(path));
        let count = self.known.len();
        let known = self.known.entry(path.clone());
        let known =
            known.or_insert_with_key(|path| Some((count, without_mark(&read(path)?).into())));
        let (number, contents) = known.clone()?;
        Some(Found {
            path,
            number,
            contents,
            folder,
        })
    }
}

fn path_of(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

fn bare(word: &str) -> String {
    word.trim_matches(|c| c == '"' || c == '\'').to_owned()
}

/// Removes `.` components, so that a file has one name.
fn tidy(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| *part != Component::CurDir)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, quoted: bool) -> Header {
        Header {
            name: name.as_bytes().to_vec(),
            quoted,
        }
    }

    #[test]
    fn folders_are_searched_by_kind_and_then_in_order() {
        let there = ["/i/x", "/s/x", "/q/x", "/a/x", "src/x"];
        let read = |path: &Path| there.contains(&path.to_str()?).then(Vec::new);
        let options = "-idirafter /a -isystem /s -I/i -iquote \"/q\" -include \"f g\" -I /i2";
        let mut search = Search::new(options, &read);
        assert_eq!(search.forced, ["f g"]);
        let mut from = Level::outermost();
        from.path = "src/main".into();
        let mut order = Vec::new();
        order.extend(search.find(&header("x", true), Some(&from), false));
        from.path = "main".into();
        while let Some(found) = search.find(&header("x", true), Some(&from), from.folder.is_some())
        {
            from.folder = found.folder;
            order.push(found);
        }
        let order: Vec<PathBuf> = order.into_iter().map(|found| found.path).collect();
        let expected = ["src/x", "/q/x", "/i/x", "/s/x", "/a/x"].map(PathBuf::from);
        assert_eq!(order, expected);
        let angled = search
            .find(&header("x", false), Some(&from), false)
            .unwrap();
        assert_eq!(angled.path, Path::new("/i/x"));
        let absolute = search.find(&header("/s/./x", false), None, false).unwrap();
        assert_eq!(absolute.path, Path::new("/s/x"));
    }
}
