//! Checks what `--insecure` exposes of a device manager's cluster: the manager itself, and its nodes.
//!
//! Users who may not see the nodes get their number only.

use causeway_proto::manager::{KindList, NodeInfo};

use super::finding::Finding;
use crate::json;
use crate::text::NodeNames;

const MANAGER: &str = "device manager's TLS";
const NODES: &str = "device manager's nodes";

const CURE_OF_MANAGER: &str = "on its machine, set up [tls] and authenticate = true in manager.toml (causeway certs makes the \
                               certificates), and start it without --insecure";
const CURE_OF_NODES: &str = "on the node, set up [tls] in daemon.toml (causeway certs node NAME), and start causewayd without --insecure";

/// Makes a finding for the manager and each node that is exposed. `nodes`: `None` if this user may not
/// see them.
pub(super) fn exposed(told: &KindList, nodes: Option<&[NodeInfo]>) -> Vec<Finding> {
    let manager = told.insecure.then(|| {
        let found = "INSECURE: everyone who can reach the manager can use it under any name, or read the network \
                     traffic";
        Finding::note(MANAGER, found, CURE_OF_MANAGER)
    });
    let node = |who: &str| {
        let found =
            format!("INSECURE: everyone who can reach {who}, and read what crosses the network");
        Finding::note(NODES, found, CURE_OF_NODES)
    };
    let of_nodes = match (nodes, told.insecure_nodes) {
        (Some(nodes), _) => {
            let names = NodeNames::of_infos(nodes);
            let open = nodes.iter().filter(|of| of.insecure);
            open.map(|of| {
                node(&format!(
                    "node {} can use it",
                    names.label(&json::id(&of.node_uuid), &of.name)
                ))
            })
            .collect()
        }
        (None, 0) => Vec::new(),
        (None, 1) => vec![node("one of the nodes can use it")],
        (None, more) => vec![node(&format!("{more} of the nodes can use them"))],
    };
    manager.into_iter().chain(of_nodes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    fn node(id: u8, name: &str, insecure: bool) -> NodeInfo {
        NodeInfo {
            node_uuid: vec![id; 16].into(),
            name: name.to_owned(),
            connected: true,
            insecure,
            ..NodeInfo::default()
        }
    }

    fn told(insecure: bool, insecure_nodes: u32) -> KindList {
        KindList {
            insecure,
            insecure_nodes,
            ..KindList::default()
        }
    }

    #[test]
    fn what_is_closed_is_not_spoken_of() {
        assert_eq!(exposed(&told(false, 0), None), []);
        assert_eq!(exposed(&told(false, 0), Some(&[node(1, "a", false)])), []);
    }

    #[test]
    fn the_manager_and_each_node_are_named_to_who_is_shown_them() {
        let nodes = [node(1, "a", true), node(2, "b", false), node(3, "c", true)];
        let found = exposed(&told(true, 2), Some(&nodes));
        assert_eq!(found.len(), 3, "{found:?}");
        for (finding, word, cure) in [
            (&found[0], "can reach the manager", "manager.toml"),
            (&found[1], "can reach node a ", "daemon.toml"),
            (&found[2], "can reach node c ", "daemon.toml"),
        ] {
            let says = finding.found.contains("INSECURE") && finding.found.contains(word);
            let helps = finding.cure.as_deref().is_some_and(|of| of.contains(cure));
            assert!(
                says && helps && finding.verdict == Verdict::Note,
                "{finding:?}"
            );
        }
    }

    #[test]
    fn others_are_told_how_many_there_are() {
        for (count, word) in [(1, "one of the nodes"), (2, "2 of the nodes")] {
            let found = exposed(&told(false, count), None);
            assert!(
                found.len() == 1 && found[0].found.contains(word),
                "{found:?}"
            );
        }
    }
}
