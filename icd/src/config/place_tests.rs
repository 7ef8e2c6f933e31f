//! Tests of [`super`]: which places count, and which files are trusted.

use super::*;
use crate::config::{Carrier, Hold};
use std::os::unix::fs::PermissionsExt;

struct Places {
    root: tempfile::TempDir,
    environment: Environment,
}

impl Places {
    fn new() -> Places {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let environment = Environment {
            working_directory: Some(at("cwd")),
            user: Some(at("user")),
            system: at("system"),
            uid: rustix::process::geteuid().as_raw(),
            ..Environment::default()
        };
        Places { root, environment }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    }

    fn addresses(&self) -> Vec<String> {
        self.environment
            .load()
            .servers
            .iter()
            .map(|server| server.address.to_string())
            .collect()
    }
}

// `etc/servers.toml` as shipped, and with its examples uncommented.
#[test]
fn the_sample_is_understood() {
    let sample = include_str!("../../../etc/servers.toml");
    let places = Places::new();
    places.write("system/servers.toml", sample);
    assert_eq!(places.addresses(), ["127.0.0.1:7079"]);
    let plain = places.environment.load();
    assert_eq!(
        (plain.problems, plain.lease.is_none()),
        (Vec::new(), true),
        "as it is"
    );
    places.write("system/servers.toml", &sample.replace("#: ", ""));
    let settings = places.environment.load();
    assert_eq!(settings.problems, []);
    assert_eq!(settings.servers.len(), 3);
    assert!(settings.tls.ca.is_some() && settings.lease.is_some());
}

#[test]
fn the_variable_overrides_whether_memory_is_shared() {
    let mut places = Places::new();
    let two = "[[server]]\naddress = \"a\"\nshared_memory = false\n[[server]]\naddress = \"b\"\n";
    places.write("system/servers.toml", two);
    for (set, expected, problems) in [
        (None, [false, true], 0),
        (Some("0"), [false, false], 0),
        (Some("1"), [true, true], 0),
        (Some("off"), [false, true], 1),
    ] {
        places.environment.shared_memory = set.map(OsString::from);
        let settings = places.environment.load();
        let shared: Vec<_> = settings.servers.iter().map(|s| s.shared_memory).collect();
        assert_eq!(shared, expected, "{set:?}");
        assert_eq!(settings.problems.len(), problems, "{set:?}");
    }
}

#[test]
fn the_variable_overrides_whether_sessions_are_isolated() {
    let mut places = Places::new();
    let two = "[[server]]\naddress = \"a\"\nisolated = true\n[[server]]\naddress = \"b\"\n";
    places.write("system/servers.toml", two);
    for (set, expected, problems) in [
        (None, [true, false], 0),
        (Some("0"), [false, false], 0),
        (Some("1"), [true, true], 0),
        (Some("yes"), [true, false], 1),
    ] {
        places.environment.isolated = set.map(OsString::from);
        let settings = places.environment.load();
        let isolated: Vec<_> = settings.servers.iter().map(|s| s.isolated).collect();
        assert_eq!(isolated, expected, "{set:?}");
        assert_eq!(settings.problems.len(), problems, "{set:?}");
        for problem in settings.problems {
            let text = "CAUSEWAY_ISOLATED: invalid value `yes`; expected 0 or 1";
            assert_eq!(problem.to_string(), text);
        }
    }
}

#[test]
fn the_variable_overrides_what_is_compressed() {
    let mut places = Places::new();
    let two = "[[server]]\naddress = \"a\"\ncompression = \"lz4\"\n[[server]]\naddress = \"b\"\n";
    places.write("system/servers.toml", two);
    let (off, lz4) = (Compression::Off, Compression::Lz4);
    for (set, expected, problems) in [
        (None, [lz4, off], 0),
        (Some("lz4"), [lz4, lz4], 0),
        (Some("off"), [off, off], 0),
        (Some("1"), [lz4, off], 1),
    ] {
        places.environment.compression = set.map(OsString::from);
        let settings = places.environment.load();
        let found: Vec<_> = settings.servers.iter().map(|s| s.compression).collect();
        assert_eq!(found, expected, "{set:?}");
        assert_eq!(settings.problems.len(), problems, "{set:?}");
    }
}

#[test]
fn who_to_believe_is_said_by_the_server_the_environment_and_the_file() {
    let mut places = Places::new();
    let text = "[tls]\nca = \"ca\"\ncertificate = \"c\"\nkey = \"k\"\n[[server]]\naddress = \"a\"\n\
                [[server]]\naddress = \"b\"\nca = \"/own\"\ncertificate = \"/c\"\nkey = \"/k\"\n";
    places.write("system/servers.toml", text);
    places.environment.tls.ca = Some("/environment".into());
    places.environment.servers = Some("a,b,c".into());
    let settings = places.environment.load();
    assert_eq!(settings.problems, []);
    let said: Vec<_> = settings.servers.iter().map(|server| &server.tls).collect();
    let system = &places.environment.system;
    for (tls, ca, key) in [
        (said[0], "/environment".into(), system.join("k")),
        (said[1], PathBuf::from("/own"), "/k".into()),
        (said[2], "/environment".into(), system.join("k")),
    ] {
        assert_eq!((tls.ca.as_ref(), tls.key.as_ref()), (Some(&ca), Some(&key)));
    }
    assert_eq!(settings.tls.certificate, Some(system.join("c")));
}

#[test]
fn nothing_configured_says_nothing() {
    assert_eq!(Places::new().environment.load(), Settings::default());
}

#[test]
fn the_first_place_that_says_anything_counts() {
    let mut places = Places::new();
    places.write("system/servers.list", "system\n");
    assert_eq!(places.addresses(), ["system:7079"]);
    places.write("user/servers.toml", "[[server]]\naddress = \"user\"\n");
    places.write("user/servers.list", "user2\n");
    assert_eq!(places.addresses(), ["user:7079", "user2:7079"]);
    places.write("cwd/servers.list", "here\n");
    assert_eq!(places.addresses(), ["here:7079"]);
    places.environment.config = Some(places.write("named.list", "named\n"));
    assert_eq!(places.addresses(), ["named:7079"]);
    places.environment.config = Some(places.root.path().join("system"));
    assert_eq!(places.addresses(), ["system:7079"]);
}

#[test]
fn a_named_file_must_be_there() {
    let mut places = Places::new();
    places.write("user/servers.list", "user\n");
    places.environment.config = Some(PathBuf::from("/nowhere/servers.toml"));
    let settings = places.environment.load();
    assert_eq!(settings.servers, []);
    assert_eq!(
        settings.problems[0].to_string(),
        "CAUSEWAY_CONFIG: /nowhere/servers.toml does not exist; correct CAUSEWAY_CONFIG"
    );
}

#[test]
fn a_file_in_the_working_directory_that_others_can_write_is_passed_over() {
    let mut places = Places::new();
    places.write("user/servers.list", "user\n");
    let path = places.write("cwd/servers.toml", "[[server]]\naddress = \"evil\"\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let settings = places.environment.load();
    assert_eq!(settings.servers[0].address.as_str(), "user:7079");
    assert!(
        settings.problems[0]
            .to_string()
            .contains("other users can write it")
    );
    // Root's files are always trusted. So a foreign owner can be tested only with a file that is not
    // root's.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
        places.environment.uid = 54321;
        assert!(
            places.environment.load().problems[0]
                .to_string()
                .contains("another user")
        );
    }
}

#[test]
fn the_variable_overrides_and_keeps_what_the_file_says() {
    let mut places = Places::new();
    places.write(
        "user/servers.toml",
        "[[server]]\naddress = \"a\"\ncarrier = \"grpc\"\n[[server]]\naddress = \"b\"\n",
    );
    places.environment.servers = Some("c,a".into());
    let settings = places.environment.load();
    assert_eq!(places.addresses(), ["c:7079", "a:7079"]);
    assert_eq!(settings.servers[1].carrier, Carrier::Grpc);
    assert_eq!(settings.origins, ["CAUSEWAY_SERVERS"]);
}

#[test]
fn servers_of_the_variable_have_the_settings_of_all_servers() {
    let mut places = Places::new();
    let text = "resume = \"5min\"\nkeep = \"1h\"\nrestart = \"2min\"\n[survival]\nreexecute = true\nlog = \"64MiB\"\n\
                [[server]]\naddress = \"a\"\nresume = \"7min\"\n";
    places.write("user/servers.toml", text);
    places.environment.servers = Some("c,a".into());
    let settings = places.environment.load();
    assert_eq!(settings.problems, []);
    let minutes = |of: u64| Some(Duration::from_secs(of * 60));
    for (server, resume) in settings.servers.iter().zip([5, 7]) {
        assert_eq!(server.resume, minutes(resume));
        assert_eq!((server.keep, server.restart), (minutes(60), minutes(2)));
        assert!(server.survival.reexecute);
        assert_eq!(server.survival.log, 64 << 20);
    }
    assert_eq!(settings.survival, settings.servers[0].survival);
}

#[test]
fn a_variable_names_the_holder_of_checkpoints() {
    let mut places = Places::new();
    let text = "[survival]\nhold = \"auto\"\n[[server]]\naddress = \"a\"\n";
    places.write("user/servers.toml", text);
    places.environment.hold = Some("client".into());
    let settings = places.environment.load();
    assert_eq!(settings.problems, []);
    assert_eq!(settings.servers[0].survival.hold, Hold::Client);
    places.environment.hold = Some("nobody".into());
    let settings = places.environment.load();
    assert_eq!(settings.servers[0].survival.hold, Hold::Auto);
    assert_eq!(settings.problems.len(), 1);
}

#[test]
fn a_server_with_several_addresses_is_found_by_each_of_them() {
    let mut places = Places::new();
    let text = "[[server]]\naddress = [\"a\", \"b:80\"]\nname = \"x\"\n";
    places.write("user/servers.toml", text);
    let server = places.environment.load().servers.remove(0);
    assert_eq!(server.further, ["b:80".parse().unwrap()]);
    let settings = places.environment.load();
    let reported = ["b:80".to_owned()];
    assert_eq!(settings.server_at(&reported, "n"), Some(server.clone()));
    // A manager may report more. Each address is there once, the user's first.
    let reported = ["c", "b:80", "no address", "c"].map(str::to_owned);
    let assigned = settings.server_at(&reported, "n").unwrap();
    let addresses: Vec<_> = assigned
        .addresses()
        .map(crate::config::Address::as_str)
        .collect();
    assert_eq!(addresses, ["a:7079", "b:80", "c:7079"]);
    assert_eq!(assigned.name, server.name);
    assert_eq!(settings.server_at(&["no address".to_owned()], "n"), None);
    // The variable may name the server more than once.
    places.environment.servers = Some("b:80,c,a".into());
    let settings = places.environment.load();
    assert_eq!(places.addresses(), ["a:7079", "c:7079"]);
    assert_eq!(settings.servers[0], server);
    assert_eq!(settings.problems, []);
}

#[test]
fn what_is_no_file_is_not_read() {
    let places = Places::new();
    fs::create_dir(places.root.path().join("user/servers.toml")).unwrap();
    assert!(
        places.environment.load().problems[0]
            .to_string()
            .contains("not a regular file")
    );
}

#[test]
fn a_session_is_kept_for_as_long_as_the_program_waits_unless_the_file_says_otherwise() {
    let seconds = Duration::from_secs;
    for (text, variable, resume, keep) in [
        ("", None, 60, 600),
        ("resume = \"20min\"\n", None, 1200, 1200),
        ("resume = \"20min\"\n", Some("0s"), 0, 600),
        ("keep = \"3s\"\n", Some("20min"), 1200, 3),
    ] {
        let mut places = Places::new();
        let server = "[[server]]\naddress = \"a\"\n";
        places.write("user/servers.toml", &format!("{text}{server}"));
        places.environment.resume = variable.map(Into::into);
        let settings = places.environment.load();
        let server = &settings.servers[0];
        let times = (server.resume(), server.keep());
        assert_eq!(
            times,
            (seconds(resume), seconds(keep)),
            "{text}{variable:?}"
        );
    }
}

#[test]
fn the_times_of_the_whole_file_apply_to_the_manager_s_nodes() {
    let seconds = Duration::from_secs;
    let places = Places::new();
    let text = "resume = \"2s\"\nkeep = \"3s\"\n[manager]\naddress = \"m\"\n";
    for (own, resume) in [("", 2), ("resume = \"5s\"\n", 5)] {
        places.write("user/servers.toml", &format!("{text}{own}"));
        let manager = places.environment.load().manager.unwrap();
        assert_eq!(
            (manager.resume(), manager.keep()),
            (seconds(resume), seconds(3)),
            "{own}"
        );
    }
}

#[test]
fn nodes_are_looked_for_if_file_or_variable_says_so() {
    let mut places = Places::new();
    let text = "discover = true\n[discovery]\nnames = [\"gpu*.lab\"]\n[tls]\nca = \"ca.pem\"\n";
    places.write("system/servers.toml", text);
    let settings = places.environment.load();
    assert!(settings.discover && settings.problems.is_empty());
    assert_eq!(settings.discovery.names, ["gpu*.lab".parse().unwrap()]);
    assert!(settings.discovery.like.tls.ca.is_some());
    // A variable that names the servers names all of them, unless another one asks for more.
    places.environment.servers = Some("a".into());
    let settings = places.environment.load();
    assert!(!settings.discover && !settings.discovery.names.is_empty());
    for (set, expected) in [("1", true), ("0", false)] {
        places.environment.discover = Some(set.into());
        assert_eq!(places.environment.load().discover, expected);
    }
    // A name that cannot be read might be the one that keeps a token from others.
    places.write("system/servers.toml", "[discovery]\nnames = [\"a b\"]\n");
    let settings = places.environment.load();
    assert!(settings.discovery.is_broken);
    let problem = settings.problems[0].to_string();
    assert!(
        problem.contains("invalid name `a b` in `names`"),
        "{problem}"
    );
}
