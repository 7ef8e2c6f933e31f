//! Lets a leader step aside if most of its nodes are lost, and more of them ask a standby.
//!
//! etcd is asked only while most nodes are lost. [`StepsAside`] decides.

use std::time::Duration;

use tokio::sync::mpsc;

use super::book::Book;
use super::input::Input;
use super::others::Others;
use super::reading::read;
use crate::etcd::{Tenure, now};
use crate::leadership::turned_away::{Reached, StepsAside};

/// Interval of the looks at the nodes.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Looks at the nodes until the tenure ends. `leader` is this manager's address.
pub(super) async fn watch(
    owner: mpsc::Sender<Input>,
    others: Others,
    leader: String,
    tenure: Tenure,
) {
    let looking = async {
        let mut aside = StepsAside::new(now());
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            looks.tick().await;
            let reached = read(&owner, |sight| reached(sight.book));
            // The owner ends with the tenure.
            let Ok(reached) = reached.await else { return };
            let wanted = match reached.lacks_most() {
                true => others.most_wanted(&leader).await,
                false => None,
            };
            let turned_away = wanted.map_or(0, |(_, count)| count);
            let wants = aside.look(now(), reached, turned_away);
            let Some((chosen, _)) = wanted.filter(|_| wants) else {
                continue;
            };
            let Reached { connected, lost } = reached;
            match others.may_step_aside(chosen).await {
                Ok(true) => {
                    tracing::warn!(
                        connected,
                        lost,
                        turned_away,
                        "most nodes do not reach this manager, but a standby; stepping aside"
                    );
                    return others.step_aside();
                }
                Ok(false) => tracing::warn!(
                    connected,
                    lost,
                    turned_away,
                    "most nodes do not reach this manager, but a standby; a manager has stepped aside for that within \
                     the last minutes, so this one goes on"
                ),
                Err(fault) => tracing::warn!(%fault, "this manager cannot step aside"),
            }
            aside.refused(now());
        }
    };
    tokio::select! {
        () = looking => {}
        () = tenure.ended() => {}
    }
}

/// The nodes that the leader reaches, and those that it misses. A drained node is not missed: it is most often switched off.
fn reached(book: &Book) -> Reached {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let expected = book.nodes.values().filter(|node| !node.draining);
    let lost = expected.filter(|node| !book.connected.contains_key(&node.node));
    Reached {
        connected: number(book.connected.len()),
        lost: number(lost.count()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::inventory::NodeId;
    use crate::lease::change::NodeRow;
    use crate::service::book::Connected;
    use crate::service::input::ConnectionId;

    #[test]
    fn drained_nodes_that_are_switched_off_are_not_missed() {
        let mut book = Book::default();
        for number in 0..6 {
            let node = NodeId([number; 16]);
            let row = NodeRow {
                node,
                name: format!("node{number}"),
                addresses: Vec::new(),
                draining: number < 4,
                account: None,
            };
            book.nodes.insert(node, row);
        }
        let connected = Connected {
            connection: ConnectionId::fresh(),
            devices: Vec::new(),
            stopping: false,
            insecure: false,
            place: Default::default(),
            load: Arc::default(),
        };
        book.connected.insert(NodeId([5; 16]), connected);
        let expected = Reached {
            connected: 1,
            lost: 1,
        };
        assert_eq!(reached(&book), expected);
        assert!(!expected.lacks_most());
    }
}
