//! Checks of this machine: environment, loader, `.icd` file, library, configuration.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway::config::Settings;
use causeway_devmgr::{environment, installation};

use super::finding::Finding;
use crate::man;

const ENVIRONMENT: &str = "environment";
/// Prefix of the names of Causeway's variables.
const PREFIX: &str = "CAUSEWAY_";
/// Variables that the manual does not list: of the tool, the device manager and the tests.
const UNLISTED: [&str; 8] = [
    "CAUSEWAY_LIBRARY",
    "CAUSEWAY_DAEMON",
    "CAUSEWAY_BENCH",
    "CAUSEWAY_DEVMGR_LOG",
    "CAUSEWAY_DEVMGR_LOG_FORMAT",
    "CAUSEWAY_BUILT",
    causeway_proto::RECURSION_GUARD,
    causeway::transport::report::VARIABLE,
];

/// Findings for variables whose names begin like those of Causeway, and which nothing reads.
pub(super) fn variables(set: impl Iterator<Item = OsString>) -> Vec<Finding> {
    let known: Vec<&str> = man::variables().chain(UNLISTED).collect();
    let mut unknown: Vec<String> = set
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with(PREFIX) && !known.contains(&name.as_str()))
        .collect();
    unknown.sort();
    let note = |name: String| {
        Finding::note(
            ENVIRONMENT,
            format!("{name} is not a variable of Causeway, and has no effect"),
            format!("correct its name (`man causeway` lists them), or unset {name}"),
        )
    };
    unknown.into_iter().map(note).collect()
}

pub(super) fn guard() -> Finding {
    let name = causeway_proto::RECURSION_GUARD;
    if std::env::var_os(name).is_some() {
        Finding::problem(
            ENVIRONMENT,
            format!(
                "{name} is set, which hides Causeway's platform (it marks a daemon's own processes)"
            ),
            format!("unset {name}"),
        )
    } else {
        Finding::ok(ENVIRONMENT, format!("{name} is not set"))
    }
}

pub(super) fn loader() -> Finding {
    match loader_path() {
        Some(path) => Finding::ok("OpenCL loader", path.display().to_string()),
        None => Finding::problem(
            "OpenCL loader",
            "no libOpenCL.so.1 is known to the system's linker",
            "apt install ocl-icd-libopencl1, or put Causeway's own libOpenCL.so.1 on LD_LIBRARY_PATH",
        ),
    }
}

fn loader_path() -> Option<PathBuf> {
    let from_variable = std::env::var_os("LD_LIBRARY_PATH").and_then(|folders| {
        std::env::split_paths(&folders)
            .map(|folder| folder.join("libOpenCL.so.1"))
            .find(|path| path.exists())
    });
    from_variable.or_else(|| {
        let ldconfig = ["ldconfig", "/sbin/ldconfig"]
            .iter()
            .find_map(|name| Command::new(name).arg("-p").output().ok())?;
        let text = String::from_utf8_lossy(&ldconfig.stdout).into_owned();
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with("libOpenCL.so.1 "))?;
        line.split("=> ").nth(1).map(PathBuf::from)
    })
}

const ICD_FILE: &str = ".icd file";

pub(super) fn icd_file() -> Finding {
    let folder = environment::vendors_folder();
    let cure = || {
        let library = installation::library().map_or("/path/to/libcauseway.so".to_owned(), |p| {
            p.display().to_string()
        });
        format!(
            "echo {library} > {}/causeway.icd, or start programs by `causeway run`",
            folder.display()
        )
    };
    let files = match environment::system_icd_files() {
        Ok(files) => files,
        Err(error) => {
            return Finding::problem(ICD_FILE, format!("{}: {error}", folder.display()), cure());
        }
    };
    let ours = naming_files(files);
    match ours.as_slice() {
        [] => no_icd_file(&folder, cure()),
        [(file, named)] if named.starts_with('/') && !Path::new(named).is_file() => {
            Finding::problem(
                ICD_FILE,
                format!("{} names {named}, which does not exist", file.display()),
                cure(),
            )
        }
        [(file, named)] if !named.starts_with('/') => Finding::note(
            ICD_FILE,
            format!(
                "{} names {named} without a folder: found only where the system's linker looks",
                file.display()
            ),
            cure(),
        ),
        [(file, named)] => Finding::ok(ICD_FILE, format!("{} names {named}", file.display())),
        [_, .., (last, _)] => Finding::problem(
            ICD_FILE,
            format!(
                "{} files in {} name libcauseway.so, so programs see its platform more than once",
                ours.len(),
                folder.display()
            ),
            format!("keep only one of these files: rm {}", last.display()),
        ),
    }
}

/// Those of the files that name the library, with the name.
fn naming_files(files: Vec<PathBuf>) -> Vec<(PathBuf, String)> {
    let naming = files.into_iter().filter_map(|file| {
        let text = std::fs::read_to_string(&file).ok()?;
        let named = text.lines().next()?.trim().to_owned();
        is_library(&named).then_some((file, named))
    });
    naming.collect()
}

/// The finding where no file names the library.
fn no_icd_file(folder: &Path, cure: String) -> Finding {
    match std::env::var_os("OCL_ICD_VENDORS") {
        Some(value) if Path::new(&value).is_file() && is_library(&value.to_string_lossy()) => {
            Finding::ok(ICD_FILE, format!("OCL_ICD_VENDORS={}", value.display()))
        }
        // The system's folder, which the variable hides, may name the library.
        Some(value) if !value.is_empty() => Finding::problem(
            ICD_FILE,
            format!(
                "OCL_ICD_VENDORS={} hides Causeway: loaders look there only",
                value.display()
            ),
            "unset OCL_ICD_VENDORS, or start programs by `causeway run`",
        ),
        _ => Finding::note(
            ICD_FILE,
            format!("no file in {} names libcauseway.so", folder.display()),
            cure,
        ),
    }
}

fn is_library(path: &str) -> bool {
    path.contains("libcauseway")
}

pub(super) fn library() -> Finding {
    match installation::library() {
        Ok(path) => Finding::ok("library", path.display().to_string()),
        Err(error) => Finding::problem(
            "library",
            error.to_string(),
            "install libcauseway.so, or set CAUSEWAY_LIBRARY",
        ),
    }
}

pub(super) fn configuration(settings: &Settings) -> Vec<Finding> {
    const CHECK: &str = "configuration";
    let mut findings: Vec<Finding> = settings
        .problems
        .iter()
        .map(|problem| Finding::problem(CHECK, problem.to_string(), "correct this setting"))
        .collect();
    findings.push(if settings.servers.is_empty() && settings.lease.is_some() {
        Finding::ok(CHECK, "programs request devices of a device manager; no server is configured")
    } else if settings.servers.is_empty() && settings.manager.is_some() {
        Finding::note(
            CHECK,
            "a device manager is configured, but no request, so programs get no devices",
            "causeway run --request 1 -- PROGRAM, CAUSEWAY_REQUEST=1, or [[request]] in servers.toml",
        )
    } else if settings.servers.is_empty() && settings.discover {
        Finding::ok(CHECK, "no server is configured; nodes that announce themselves are used")
    } else if settings.servers.is_empty() {
        Finding::note(
            CHECK,
            "no server is configured, so `causeway run` uses this machine's own devices",
            "for others: set CAUSEWAY_SERVERS=host[:port],… or write ~/.config/causeway/servers.toml",
        )
    } else {
        let servers: Vec<String> = settings
            .servers
            .iter()
            .map(|server| server.address.to_string())
            .collect();
        Finding::ok(CHECK, format!("servers: {}", servers.join(", ")))
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_nothing_reads_is_noted() {
        let set = [
            "CAUSEWAY_SERVER",
            "CAUSEWAY_KEY",
            "CAUSEWAY_TIME_LIMIT",
            "CAUSEWAYD_LOG",
            "HOME",
        ];
        let found = variables(set.into_iter().map(OsString::from));
        let [one] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert!(one.found.starts_with("CAUSEWAY_SERVER is not"), "{one:?}");
    }
}
