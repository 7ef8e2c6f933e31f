//! Tests of how files and environment combine.

use super::*;
use crate::config::file;

const FILE: &str = "[manager]\naddress = \"m\"\nplacement = \"spread\"\nca = \"ca.pem\"\ncarrier = \"grpc\"\n\
                    [[request]]\ncount = 2\nTYPE = \"GPU\"\nGLOBAL_MEM_SIZE = \">=8GiB\"\n\
                    [[request]]\nMAX_COMPUTE_UNITS = 4\nNAME = \"contains x\"\n";

fn resolve(text: &str, variables: &Variables) -> (Option<LeaseSettings>, Vec<String>) {
    let settings = settings(text, variables);
    let problems = settings.problems.iter().map(ToString::to_string).collect();
    (settings.lease, problems)
}

fn settings(text: &str, variables: &Variables) -> Settings {
    let mut settings = Settings::default();
    file::read(text, "s.toml", Path::new("/conf"), &mut settings);
    variables.resolve(&mut settings, |path| match path.to_str() {
        Some("/request.xml") => Ok("<devmngr>paper</devmngr>\n<device/>".to_owned()),
        Some("/several.xml") => Ok("<devmngr>m3,m1</devmngr>\n<device/>".to_owned()),
        Some("/wrong.xml") => Ok("\n<devic>".to_owned()),
        _ => Err("file does not exist".to_owned()),
    });
    settings
}

fn asked(text: &str, variables: &Variables) -> (String, String) {
    let (lease, problems) = resolve(text, variables);
    assert_eq!(problems, [""; 0]);
    let lease = lease.expect("a request");
    let wanted = match lease.wanted {
        LeaseWanted::Devices(devices) => devices.to_string(),
        LeaseWanted::Lease(id) => format!("{:032x}", u128::from_be_bytes(id)),
    };
    (lease.manager.address.to_string(), wanted)
}

fn request(line: &str) -> Variables {
    Variables {
        request: Some(line.into()),
        ..Variables::default()
    }
}

#[test]
fn the_file_alone_says_all() {
    let (address, wanted) = asked(FILE, &Variables::default());
    assert_eq!(address, "m:7078");
    let line: DeviceRequest =
        "2, GLOBAL_MEM_SIZE>=8GiB, TYPE=GPU; 1, MAX_COMPUTE_UNITS=4, NAME contains x; spread"
            .parse()
            .unwrap();
    assert_eq!(wanted.parse(), Ok(line));
    let manager = resolve(FILE, &Variables::default()).0.unwrap().manager;
    assert_eq!(manager.tls.ca, Some("/conf/ca.pem".into()));
    assert_eq!(manager.carrier, crate::config::Carrier::Grpc);
}

#[test]
fn a_manager_of_whom_nothing_is_asked_is_not_asked() {
    let variables = Variables {
        manager: Some("other".into()),
        ..Variables::default()
    };
    for variables in [&variables, &Variables::default()] {
        assert_eq!(
            resolve("[manager]\naddress = \"m\"\n", variables),
            (None, vec![])
        );
        assert_eq!(resolve("", variables), (None, vec![]));
    }
}

#[test]
fn terms_are_the_files_unless_the_environment_has_others() {
    let file = FILE.replace(
        "address",
        "priority = \"low\"\ntime_limit = \"2h\"\naddress",
    );
    let terms = |variables: &Variables| resolve(&file, variables).0.map(|lease| lease.terms);
    let hours = |hours: u64| Some(Duration::from_secs(3600 * hours));
    let written = terms(&Variables::default()).unwrap();
    assert_eq!(
        (written.priority, written.time_limit),
        (Priority::Low, hours(2))
    );
    let set = Variables {
        priority: Some("high".into()),
        time_limit: Some("1h".into()),
        ..request("1")
    };
    let others = terms(&set).unwrap();
    assert_eq!(
        (others.priority, others.time_limit),
        (Priority::High, hours(1))
    );
    for wrong in [
        Variables {
            priority: Some("urgent".into()),
            ..set.clone()
        },
        Variables {
            time_limit: Some("1".into()),
            ..set
        },
    ] {
        let (lease, problems) = resolve(&file, &wrong);
        assert!(lease.is_none() && problems.len() == 1, "{problems:?}");
    }
}

#[test]
fn who_the_manager_is_does_not_depend_on_what_is_asked() {
    let other = Variables {
        manager: Some("other".into()),
        ..Variables::default()
    };
    let manager = |text, variables: &Variables| {
        let manager = settings(text, variables).manager;
        manager.map(|manager| manager.address.to_string())
    };
    let file = "[manager]\naddress = \"m\"\n";
    assert_eq!(manager("", &Variables::default()), None);
    assert_eq!(manager("", &other), Some("other:7078".to_owned()));
    assert_eq!(manager(file, &other), Some("other:7078".to_owned()));
    for line in ["1", "2, TIPE=GPU"] {
        assert_eq!(manager(file, &request(line)), Some("m:7078".to_owned()));
    }
    let wrong = Variables {
        manager: Some("other:port".into()),
        ..request("1")
    };
    let settings = settings(file, &wrong);
    assert_eq!((settings.manager, settings.lease), (None, None));
    let problems = settings.problems;
    assert!(
        problems.len() == 1 && problems[0].origin == "CAUSEWAY_MANAGER",
        "{problems:?}"
    );
}

#[test]
fn a_manager_may_be_found_by_its_name_if_a_ca_can_vouch_for_it() {
    let named = |text: &str| Variables {
        manager: Some(text.into()),
        ..Variables::default()
    };
    let file = "[discovery]\nrouted = true\n[manager]\naddress = \"discover\"\nname = \"MGR1\"\nca = \"ca.pem\"\n";
    let of_tls = "[tls]\nca = \"ca.pem\"\n";
    for (text, variables, is_routed) in [
        (file, Variables::default(), true),
        (file, named("discover:mgr1"), true),
        (of_tls, named("discover:mgr1"), false),
    ] {
        let settings = settings(text, &variables);
        assert_eq!(settings.problems, []);
        let manager = settings.manager.expect("a manager");
        assert_eq!(manager.all_addresses(), "discover:mgr1");
        assert_eq!(manager.tls.name.as_deref(), Some("mgr1"));
        assert!(manager.tls.servers_only && manager.tls.ca.is_some());
        assert_eq!(manager.sought.expect("a name").routed, is_routed);
    }
    for (text, variables) in [
        (
            "[manager]\naddress = \"discover\"\nca = \"ca.pem\"\n",
            Variables::default(),
        ),
        (
            "[manager]\naddress = \"discover\"\nname = \"mgr1\"\n",
            Variables::default(),
        ),
        (
            "[manager]\naddress = \"m1\"\nname = \"mgr1\"\n",
            Variables::default(),
        ),
        (
            "[manager]\nname = \"mgr1\"\nca = \"ca.pem\"\n",
            Variables::default(),
        ),
        (
            "[manager]\naddress = [\"discover\", \"m2\"]\nname = \"mgr1\"\nca = \"ca.pem\"\n",
            Variables::default(),
        ),
        (of_tls, named("discover")),
        (of_tls, named("discover:a b")),
        ("", named("discover:mgr1")),
    ] {
        let settings = settings(text, &variables);
        assert_eq!(settings.manager, None, "{text}");
        assert!(!settings.problems.is_empty(), "{text}");
    }
    let host = settings("", &named("discover:7078"))
        .manager
        .expect("a host");
    assert_eq!(host.all_addresses(), "discover:7078");
}

#[test]
fn the_environment_wins() {
    assert_eq!(
        asked(FILE, &request("1")),
        ("m:7078".to_owned(), "1".to_owned())
    );
    let everything = Variables {
        manager: Some("other:1".into()),
        lease: Some("000102030405060708090a0b0c0d0e0f".into()),
        file: Some("/request.xml".into()),
        ..request("3")
    };
    let (address, wanted) = asked(FILE, &everything);
    assert_eq!(address, "other:1");
    assert_eq!(wanted, "000102030405060708090a0b0c0d0e0f");
    // The file's CA applies only to the manager that the file names.
    assert_eq!(resolve(FILE, &everything).0.unwrap().manager.tls.ca, None);
}

#[test]
fn several_managers_may_be_named_everywhere() {
    let addresses = |text: &str, variables: &Variables| {
        let settings = settings(text, variables);
        assert_eq!(settings.problems, []);
        let manager = settings.manager.expect("a manager");
        (manager.all_addresses(), manager.tls.ca.is_some())
    };
    let file = "[manager]\naddress = [\"m1\", \"m2:1\", \"m3\"]\nca = \"ca.pem\"\n";
    let named = |text: &str| Variables {
        manager: Some(text.into()),
        ..Variables::default()
    };
    let (all, two) = ("m1:7078,m2:1,m3:7078", "m3:7078,m1:7078");
    for (variables, expected) in [
        (Variables::default(), (all, true)),
        (named("m3, m1 m3"), (two, true)),
        // Another manager than the file's gets none of the file's settings.
        (named("m1,other"), ("m1:7078,other:7078", false)),
    ] {
        assert_eq!(
            addresses(file, &variables),
            (expected.0.to_owned(), expected.1)
        );
    }
    let paper = Variables {
        file: Some("/several.xml".into()),
        ..Variables::default()
    };
    assert_eq!(addresses(file, &paper), (two.to_owned(), true));
    let wrong = |variables: &Variables| settings("", variables).problems[0].to_string();
    let many: Vec<String> = (0..9).map(|number| format!("m{number}")).collect();
    let many = wrong(&named(&many.join(",")));
    assert!(many.contains("name at most 8"), "{many}");
    assert!(wrong(&named(" , ")).contains("the address is empty"));
}

#[test]
fn the_file_of_the_paper_names_the_manager_unless_the_environment_does() {
    let mut variables = Variables {
        file: Some("/request.xml".into()),
        ..Variables::default()
    };
    assert_eq!(asked(FILE, &variables).0, "paper:7078");
    variables.manager = Some("other".into());
    assert_eq!(asked(FILE, &variables).0, "other:7078");
}

#[test]
fn with_a_mistake_there_is_no_request_and_a_line_says_why() {
    let named = |name: &str| Variables {
        file: Some(name.into()),
        ..Variables::default()
    };
    let lease = Variables {
        lease: Some("+00102030405060708090a0b0c0d0e0f".into()),
        ..Variables::default()
    };
    for (text, variables, said) in [
        (
            FILE,
            request("2, TIPE=GPU"),
            "CAUSEWAY_REQUEST: unknown property 'TIPE'",
        ),
        (
            "",
            request("1"),
            "CAUSEWAY_REQUEST: devices are requested but no device manager",
        ),
        (
            FILE,
            named("/nowhere"),
            "CAUSEWAY_REQUEST_FILE: /nowhere: file does not exist",
        ),
        (FILE, named("/wrong.xml"), "/wrong.xml:2: "),
        (FILE, lease, "CAUSEWAY_LEASE: "),
        (
            "[[request]]\ncount = 1\n",
            Variables::default(),
            "[[request]]: devices are requested but no device manager",
        ),
    ] {
        let (lease, problems) = resolve(text, &variables);
        assert_eq!(lease, None, "{said}");
        assert!(
            problems.len() == 1 && problems[0].starts_with(said),
            "{said}: {problems:?}"
        );
    }
    for (text, said) in [
        (
            "[manager]\nadress = \"m\"\n",
            "s.toml:2: [manager]: unknown field `adress`, expected one of `address`, ",
        ),
        (
            "[manager]\naddress = \"m\"\nplacement = \"x\"\n",
            "s.toml:3: [manager]: invalid placement `x`; expected `any`, `same-node` or `spread` in `placement`; the manager",
        ),
        (
            "[[request]]\ncount = -1\n",
            "s.toml:2: [[request]]: invalid value; expected a string, a number, true or false in `count`; no devices",
        ),
        (
            "[manager]\naddress = \"m\"\npriority = \"urgent\"\n",
            "s.toml:3: [manager]: invalid priority `urgent`",
        ),
        (
            "[manager]\naddress = \"m\"\ntime_limit = \"long\"\n",
            "s.toml:3: [manager]: invalid duration `long`",
        ),
        (
            "[[request]]\ncount = 0\n",
            "s.toml:1: invalid number of devices",
        ),
        (
            "[[request]]\nTIPE = 1\n",
            "s.toml:2: unknown property 'TIPE'",
        ),
        (
            "[[request]]\nNAME = [1]\n",
            "s.toml:2: [[request]]: invalid value; expected a string, a number, true or false in `NAME`",
        ),
        (
            "[[request]]\ncount = \"2\"\n",
            "s.toml:2: count must be a number",
        ),
        (
            "[request]\nNAME = \"x\"\n",
            "s.toml:1: `request` must be an array",
        ),
    ] {
        let (lease, problems) = resolve(text, &Variables::default());
        assert_eq!(lease, None, "{said}");
        assert!(problems[0].starts_with(said), "{said}: {problems:?}");
    }
}

#[test]
fn a_node_that_the_manager_names_is_not_given_the_users_token() {
    let text = "[tls]\nca = \"ca.pem\"\ntoken_file = \"t\"\n[[server]]\naddress = \"own\"\n\
                ca = \"ca.pem\"\ntoken_file = \"t\"\n";
    let settings = settings(text, &Variables::default());
    let token_of = |hosts: &[&str]| {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let server = settings.server_at(&hosts, "n").unwrap();
        assert!(server.tls.ca.is_some());
        server.tls.token_file
    };
    assert_eq!(token_of(&["named"]), None);
    assert_eq!(token_of(&["own"]), Some("/conf/t".into()));
    assert_eq!(token_of(&["own", "named"]), None);
}
