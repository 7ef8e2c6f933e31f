//! Tests of a daemon with several device managers of which one leads: which one it joins, and in which term.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use causeway_proto::metadata::ClusterId;

use crate::common::manager::{Manager, Node, Part};
use crate::common::{Closed, Daemon, eventually};
use crate::support::DEVICES;

const OURS: ClusterId = ClusterId([1; 16]);
const OTHER: ClusterId = ClusterId([2; 16]);

/// A daemon with these managers, its log, and the folder of both.
struct Joining {
    _daemon: Daemon,
    state: tempfile::TempDir,
}

impl Joining {
    fn start(managers: &[SocketAddr]) -> Joining {
        Joining::start_with(tempfile::tempdir().unwrap(), managers)
    }

    /// Kills the daemon, and starts it again with the same state.
    fn start_again(self, managers: &[SocketAddr]) -> Joining {
        let Joining { _daemon, state } = self;
        drop(_daemon);
        Joining::start_with(state, managers)
    }

    fn start_with(state: tempfile::TempDir, managers: &[SocketAddr]) -> Joining {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_causewayd"));
        program.stderr(std::fs::File::create(log(state.path())).unwrap());
        let managers: Vec<String> = managers.iter().map(ToString::to_string).collect();
        let arguments: Vec<&str> = (managers.iter())
            .flat_map(|manager| ["--manager", manager.as_str()])
            .collect();
        let folder = [("STATE_DIRECTORY", state.path().to_str().unwrap())];
        Joining {
            _daemon: Daemon::by_fake(program, DEVICES, &arguments, &folder),
            state,
        }
    }

    /// Waits until the daemon has logged a text.
    fn says(&self, text: &str) {
        eventually(text, || {
            let log = std::fs::read_to_string(log(self.state.path())).unwrap();
            log.contains(text).then_some(())
        });
    }
}

/// Waits until a file of the daemon's state has this term.
fn remembers(state: &Path, term: u64) {
    let ends = format!(" {term}\n");
    eventually("the term is stored", || {
        let files = std::fs::read_dir(state).unwrap();
        let mut texts = files
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "term"))
            .filter_map(|path| std::fs::read_to_string(path).ok());
        texts.any(|text| text.ends_with(&ends)).then_some(())
    });
}

fn log(folder: &Path) -> std::path::PathBuf {
    folder.join("log")
}

/// Two managers: a leader in term 5, and a standby that names it.
fn pair() -> (Manager, Manager) {
    let leader = Manager::playing(Part::Leads(5, OURS));
    let standby = Manager::playing(Part::StandsBy(Some(leader.address)));
    (leader, standby)
}

/// Welcomes the next daemon in a term, after it has reported the highest term that it has met.
fn welcomed(manager: &Manager, met: u64, term: u64) -> Node {
    let node = manager.joined();
    let hello = (node.hello.term, &node.hello.cluster_id[..]);
    assert_eq!(hello, (met, &OURS.0[..]));
    node.welcome_in(&manager.key, 10, term, OURS);
    // A heartbeat shows that the daemon has taken the welcome in.
    node.beat(|_| true);
    node
}

#[test]
fn a_standby_leads_the_daemon_to_the_leader_and_gets_no_hello() {
    let (leader, standby) = pair();
    let _daemon = Joining::start(&[standby.address, leader.address]);
    let _node = welcomed(&leader, 5, 5);
    assert!(standby.is_alone());
}

#[test]
fn dead_and_silent_managers_do_not_matter() {
    let dead = Closed::port();
    // The kernel accepts connections to this one, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let leader = Manager::playing(Part::Leads(1, OURS));
    let addresses = [dead.address, silent.local_addr().unwrap(), leader.address];
    let _daemon = Joining::start(&addresses);
    welcomed(&leader, 1, 1);
}

#[test]
fn a_daemon_that_does_not_reach_the_leader_says_so_to_a_standby() {
    let leader = Closed::port();
    let standby = Manager::playing(Part::StandsBy(Some(leader.address)));
    let _daemon = Joining::start(&[standby.address, leader.address]);
    let node = eventually("the node is named", || standby.missing().pop());
    standby.plays(Part::Leads(5, OURS));
    let joined = standby.joined();
    let uuid: String = (joined.hello.node_uuid.iter())
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(node, uuid);
}

/// As after a search that finds one standby only.
#[test]
fn a_daemon_that_knows_only_a_standby_says_so_to_it() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    let leader = Some(elsewhere.local_addr().unwrap());
    let standby = Manager::playing(Part::StandsBy(leader));
    let _daemon = Joining::start(&[standby.address]);
    eventually("the node is named", || standby.missing().pop());
    standby.plays(Part::Leads(5, OURS));
    welcomed(&standby, 5, 5);
}

#[test]
fn a_daemon_misses_no_leader_while_there_is_none() {
    let standbys = [(); 2].map(|()| Manager::playing(Part::StandsBy(None)));
    let _daemon = Joining::start(&standbys.each_ref().map(|of| of.address));
    for standby in &standbys {
        // The first question names nobody.
        eventually("more questions", || (standby.asked() > 3).then_some(()));
        assert_eq!(standby.missing(), Vec::<String>::new());
    }
}

#[test]
fn a_single_manager_that_was_away_is_not_asked_in_advance() {
    let gone = Closed::port();
    let daemon = Joining::start(&[gone.address]);
    daemon.says("cannot join the device manager");
    let leader = Manager::playing_at(gone, Part::Leads(5, OURS));
    let _node = leader.joined();
    assert_eq!(leader.asked(), 0);
}

#[test]
fn a_daemon_that_the_leader_refuses_does_not_ask_a_standby_for_another_leader() {
    let (leader, standby) = pair();
    let dead = Closed::port();
    let _daemon = Joining::start(&[leader.address, standby.address, dead.address]);
    // The dead one alone, before the leader has answered, may count.
    drop(leader.joined());
    drop(leader.joined());
    let before = standby.missing().len();
    // Each connection is closed before a welcome; between two of them, a second passes at most.
    for _ in 0..4 {
        drop(leader.joined());
    }
    assert_eq!(standby.missing().len(), before);
}

#[test]
fn while_all_stand_by_the_daemon_asks_on_and_joins_the_next_leader() {
    let (leader, standby) = pair();
    leader.plays(Part::StandsBy(None));
    let daemon = Joining::start(&[standby.address, leader.address]);
    daemon.says("this device manager does not lead");
    assert!(leader.is_alone() && standby.is_alone());
    standby.plays(Part::Leads(6, OURS));
    welcomed(&standby, 6, 6);
}

#[test]
fn the_daemon_follows_the_lead_and_reports_the_highest_term() {
    let (leader, standby) = pair();
    let _daemon = Joining::start(&[standby.address, leader.address]);
    let node = welcomed(&leader, 5, 5);
    leader.plays(Part::StandsBy(Some(standby.address)));
    standby.plays(Part::Leads(6, OURS));
    drop(node);
    welcomed(&standby, 6, 6);
    assert!(leader.is_alone());
}

#[test]
fn a_manager_in_a_lower_term_is_not_joined() {
    let (leader, other) = pair();
    let daemon = Joining::start(&[other.address, leader.address]);
    let node = welcomed(&leader, 5, 5);
    // The store was restored: this one leads in a term that has passed.
    other.plays(Part::Leads(4, OURS));
    leader.plays(Part::StandsBy(Some(other.address)));
    drop(node);
    daemon.says("answers in term 4, but term 5 has begun");
    assert!(other.is_alone());
    // The welcome counts, whatever the answer before it has said.
    other.plays(Part::Leads(5, OURS));
    let node = other.joined();
    node.welcome_in(&other.key, 10, 4, OURS);
    node.left();
    welcomed(&other, 5, 7);
}

#[test]
fn a_manager_of_another_cluster_is_not_joined_and_the_cure_is_named() {
    let (leader, other) = pair();
    let daemon = Joining::start(&[other.address, leader.address]);
    let node = welcomed(&leader, 5, 5);
    other.plays(Part::Leads(9, OTHER));
    leader.plays(Part::StandsBy(Some(other.address)));
    drop(node);
    daemon.says("name only managers of one cluster");
    assert!(other.is_alone());
    leader.plays(Part::Leads(6, OURS));
    // The other cluster's term does not count.
    welcomed(&leader, 6, 6);
}

#[test]
fn a_daemon_that_was_started_again_believes_no_lower_term_and_a_store_that_was_made_anew() {
    let (leader, other) = pair();
    let managers = [other.address, leader.address];
    let daemon = Joining::start(&managers);
    let node = welcomed(&leader, 5, 5);
    remembers(daemon.state.path(), 5);
    // The store was restored, and the daemon's host was started anew.
    other.plays(Part::Leads(4, OURS));
    leader.plays(Part::StandsBy(Some(other.address)));
    let daemon = daemon.start_again(&managers);
    drop(node);
    daemon.says("answers in term 4, but term 5 has begun");
    // A restart alone does not help, so the cure names the file.
    daemon.says(".term and then restart this daemon");
    assert!(other.is_alone());
    other.plays(Part::Leads(6, OURS));
    let node = welcomed(&other, 6, 6);
    remembers(daemon.state.path(), 6);
    // Another cluster, whose terms begin anew.
    other.plays(Part::Leads(1, OTHER));
    let _daemon = daemon.start_again(&managers);
    drop(node);
    let node = other.joined();
    let hello = (node.hello.term, &node.hello.cluster_id[..]);
    assert_eq!(hello, (1, &OTHER.0[..]));
}

#[test]
fn a_single_manager_in_a_lower_term_than_before_the_restart_is_left() {
    let leader = Manager::playing(Part::Leads(5, OURS));
    let daemon = Joining::start(&[leader.address]);
    let node = leader.joined();
    node.welcome_in(&leader.key, 10, 5, OURS);
    node.beat(|_| true);
    remembers(daemon.state.path(), 5);
    let daemon = daemon.start_again(&[leader.address]);
    drop(node);
    // Nothing is told before the cluster is known.
    let node = leader.joined();
    assert_eq!(node.hello.term, 0);
    node.welcome_in(&leader.key, 10, 4, OURS);
    node.left();
    daemon.says("answers in term 4, but term 5 has begun");
}
