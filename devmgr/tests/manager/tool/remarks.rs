//! What a node says of itself reaches its users: by `causeway devices`, and by `causeway doctor` with a cure.

use super::super::real_node::Daemon;
use super::Tool;

#[test]
fn a_node_with_sessions_together_says_what_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::configured(folder.path(), "[sharing]\ntogether = \"user\"\n");
    let ann = Tool::of("ann").with("CAUSEWAY_SERVERS", daemon.address().to_string());
    let listed = ann.does("devices");
    let remark = listed.lines().find(|line| line.contains("SHARING"));
    let remark = remark.expect(&listed);
    for word in [
        "remark: ",
        "wild pointer",
        "a crash",
        "a kernel that goes on after its program has ended",
        "CAUSEWAY_ISOLATED=1",
    ] {
        assert!(remark.contains(word), "{remark}");
    }
    let findings = ann.json("doctor");
    let mut findings = findings.as_array().unwrap().iter();
    let found = findings.find(|of| of["found"].as_str().unwrap_or_default().contains("SHARING"));
    let cure = &found.expect("a finding")["cure"];
    assert!(cure.as_str().unwrap().contains("[sharing]"), "{cure}");
}
