//! A device manager steps down: a node, a program and the tool find the next leader by the managers' name.

use std::path::{Path, PathBuf};

use causeway_cluster::Manager;
use causeway_network::Host;

use crate::frames::servers::*;
use crate::managers::{ANNOUNCE, node, program, tool_does};
use crate::stage::*;

/// Starts two managers over one etcd, which announce themselves as `mgr1`. Clients renew leases every third second.
fn two_managers(host: &Host) -> Manager {
    let settings = format!("{ANNOUNCE}[policy.timing]\nlease = 9000\n");
    let (address, devmgr) = (host.address().into(), program("causeway-devmgr"));
    let start = || Manager::start_several_at(address, &devmgr, &settings, 2);
    let started = host.enter(start).expect("the host's network");
    started.expect("two managers")
}

/// The processes in a host's network that announce a manager.
pub(crate) fn announcers(host: &Host) -> Vec<u32> {
    let own = || std::fs::read_link("/proc/thread-self/ns/net").expect("procfs");
    let network = host.enter(own).expect("the host's network");
    let entries = std::fs::read_dir("/proc").expect("procfs").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let announces = |pid: &u32| {
        let is_here = |of: PathBuf| of == network;
        if !std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(is_here) {
            return false;
        }
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.starts_with(b"causeway-devmgr\0--internal-announce")
    };
    numbers.filter(announces).collect()
}

/// The settings of a program that knows the managers by their name only.
pub(crate) fn by_name(manager: &Manager, token: &Path) -> String {
    format!(
        "[tls]\nca = {:?}\n[manager]\naddress = \"discover\"\nname = \"mgr1\"\ntoken_file = {token:?}\n[[request]]\ncount = 1\n",
        manager.certificates.ca(),
    )
}

/// The leader's address, as the tool says that finds the managers by their name. `None`: nobody leads at present.
fn leader(host: &Host, config: &Path) -> Option<String> {
    let listed = tool_does(host, config, "managers");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut lines = text.lines().filter(|line| line.contains("leader"));
    let line = lines.next().filter(|_| listed.status.success())?;
    let address = line.split_whitespace().find(|word| word.contains(':'))?;
    Some(address.to_owned())
}

/// Makes another manager lead, as soon as one can.
fn step_down(host: &Host, config: &Path) {
    let before = eventually("a leader, and another manager that can lead", || {
        let before = leader(host, config)?;
        let done = tool_does(host, config, "managers step-down");
        done.status.success().then_some(before)
    });
    eventually("another leader", || {
        leader(host, config).filter(|after| *after != before)
    });
}

/// The tool makes another manager lead. It, the node and the program know the managers by their name only. When node and
/// program look for the first time, only one manager runs.
#[test]
fn node_and_program_find_the_next_leader_by_the_name() {
    own_process!(waits);
    if std::process::Command::new("etcd")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("skipped: etcd is not installed (Debian: etcd-server)");
        return;
    }
    let Some(network) = network(3) else { return };
    let host = |number: usize| network.host(number);
    let manager = two_managers(host(1));
    let kill = || manager.kill_leader().expect("a leader");
    host(1).enter(kill).expect("the host's network");
    eventually("one announced manager", || {
        (announcers(host(1)).len() == 1).then_some(())
    });
    let _node = node(&manager, host(2));
    let (admin, config) = (
        manager.certificates.path("admin.toml"),
        manager.certificates.path("servers.toml"),
    );
    let token = manager.certificates.path("store.admin-token");
    std::fs::write(&admin, by_name(&manager, &token)).expect("written");
    let prepare = || {
        manager.see_devices(1).expect("the node has joined");
        manager.user("tester").expect("a user").1
    };
    let token = host(1).enter(prepare).expect("the host's network");
    crate::stage::configure(&config, &by_name(&manager, &token));
    // A context confirms the lease, and opens a session.
    let open = || {
        let cl = std::mem::ManuallyDrop::new(Fixture::on(devices()[0]));
        [cl.device as usize, cl.context as usize, cl.queue as usize]
    };
    let [device, context, queue] = host(0).enter(open).expect("the host's network");
    let revive = || manager.revive().expect("the other manager");
    host(1).enter(revive).expect("the host's network");
    for _ in 0..2 {
        step_down(host(0), &admin);
        let goes_on = || {
            let mut last = u64::MAX;
            eventually("a renewal at the next leader", || {
                let leases = manager.admin().leases().ok()?;
                let [lease] = &leases[..] else { return None };
                let before = std::mem::replace(&mut last, lease.lifetime_ms);
                // Because of the session, the manager itself goes on with a lease whose time is over.
                (last > before && before > 1_500).then_some(())
            });
            manager
                .see_devices(1)
                .expect("the node finds the next leader");
        };
        host(1).enter(goes_on).expect("the host's network");
    }
    let program = || {
        let cl = Fixture {
            device: device as cl_device_id,
            context: context as cl_context,
            queue: queue as cl_command_queue,
        };
        let buffer = cl.buffer(CL_MEM_READ_WRITE, 1 << 16);
        cl.write(buffer, 0, &pattern(1, 1 << 16));
        assert!(cl.read(buffer, 0, 1 << 16) == pattern(1, 1 << 16));
        ok!(clReleaseMemObject(buffer));
    };
    host(0).enter(program).expect("the host's network");
}
