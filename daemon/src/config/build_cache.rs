//! Settings of the build cache: its directory and its size.

use std::ffi::OsString;
use std::path::PathBuf;

use super::file::ConfigFile;
use super::flags::Flags;

/// Settings of the build cache.
#[derive(Clone, Debug)]
pub struct BuildCacheSettings {
    /// Directory of the cache; `None` if the user has no cache directory.
    pub folder: Option<PathBuf>,
    /// Maximum size in bytes; 0: no cache.
    pub size: u64,
}

/// Default size in bytes. It holds a few thousand PoCL programs of 50 KiB to 500 KiB each.
const BUILD_CACHE_SIZE: u64 = 512 << 20;

/// Combines flags and file; flags take precedence.
pub(super) fn build_cache(flags: &Flags, file: &ConfigFile) -> BuildCacheSettings {
    let table = &file.table.build_cache;
    let folder = flags.build_cache_dir.as_ref().or(table.directory.as_ref());
    BuildCacheSettings {
        folder: folder
            .cloned()
            .or_else(|| cache_folder(&|name| std::env::var_os(name))),
        size: flags
            .build_cache_size
            .or(table.size)
            .unwrap_or(BUILD_CACHE_SIZE),
    }
}

/// Returns the default directory, inside the cache directory of systemd or of the user.
fn cache_folder(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let given = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    // systemd's variable may contain a list. Its directories belong to the daemon alone, so no subdirectory
    // `causeway` is needed.
    let own = variable("CACHE_DIRECTORY")
        .and_then(|list| std::env::split_paths(&list).next())
        .filter(|path| path.is_absolute());
    own.or_else(|| {
        given("XDG_CACHE_HOME")
            .or_else(|| given("HOME").map(|home| home.join(".cache")))
            .map(|caches| caches.join("causeway"))
    })
    .map(|own| own.join("builds"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn builds_are_kept_where_caches_are() {
        let among = |set: &[(&str, &str)]| {
            let set: Vec<_> = set
                .iter()
                .map(|(n, v)| (n.to_string(), v.to_string()))
                .collect();
            cache_folder(&|name| {
                let found = set.iter().find(|(n, _)| n == name);
                found.map(|(_, value)| value.into())
            })
        };
        let systemd = ("CACHE_DIRECTORY", "/var/cache/causeway:/var/cache/more");
        let home = ("HOME", "/home/me");
        assert_eq!(
            among(&[systemd, home]),
            Some("/var/cache/causeway/builds".into())
        );
        let xdg = ("XDG_CACHE_HOME", "/tmp/caches");
        assert_eq!(
            among(&[xdg, home]),
            Some("/tmp/caches/causeway/builds".into())
        );
        assert_eq!(
            among(&[home]),
            Some("/home/me/.cache/causeway/builds".into())
        );
        assert_eq!(among(&[("HOME", "here")]), None);
        let flags = Flags {
            build_cache_size: Some(0),
            ..Flags::default()
        };
        let text = "[build_cache]\ndirectory = \"/x\"\nsize = 9\n";
        let settings = combine(&flags, text);
        assert_eq!(settings.folder, Some("/x".into()));
        assert_eq!(settings.size, 0);
        let size = |text| combine(&Flags::default(), text).size;
        assert_eq!((size(text), size("")), (9, BUILD_CACHE_SIZE));
    }

    fn combine(flags: &Flags, text: &str) -> BuildCacheSettings {
        let file = ConfigFile::parse(Path::new("daemon.toml"), text.to_owned()).unwrap();
        build_cache(flags, &file)
    }
}
