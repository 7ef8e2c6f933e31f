//! What a leader knows about the other managers, and how it gives up the lead.
//!
//! Each question is a call to etcd; nothing is remembered.

use std::time::Duration;

use causeway_proto::manager as pb;
use tonic::Status;

use super::authentication::wall_now;
use crate::etcd::{
    Etcd, Fault, Instruction, Instructions, Member, Registration, managers, mark_aside, members,
    registrations,
};
use crate::leadership::{ManagerId, Reign};

/// Time for the answer to an administrator who wants another leader.
const ANSWERS_FIRST: Duration = Duration::from_millis(50);

/// What administrators may ask a leader about the others.
#[derive(Clone)]
pub(super) struct Others {
    etcd: Etcd,
    instructions: Instructions,
    reign: Reign,
}

impl Others {
    /// For the leader of a reign. `etcd` has connections of its own.
    pub(super) fn new(etcd: Etcd, instructions: Instructions, reign: Reign) -> Others {
        Others {
            etcd,
            instructions,
            reign,
        }
    }

    /// The standby that has turned most nodes away, of those that can lead, and the number of these nodes.
    pub(super) async fn most_wanted(&self, leader: &str) -> Option<(ManagerId, u32)> {
        // Without an answer, nothing is known of the standbys.
        let managers = registrations(&self.etcd).await.unwrap_or_default();
        let standbys = managers
            .into_iter()
            .filter(|(_, of)| of.problem.is_empty() && of.address != leader);
        let counts = standbys.map(|(id, of)| (id, of.turned_away));
        counts.max_by_key(|(_, count)| *count)
    }

    /// Whether this leader may step aside for `chosen`, because its nodes do not reach it. It must do so then.
    pub(super) async fn may_step_aside(&self, chosen: ManagerId) -> Result<bool, Fault> {
        mark_aside(&self.etcd, self.reign, chosen).await
    }

    /// Gives up the lead.
    pub(super) fn step_aside(&self) {
        self.instructions.send(Instruction::StepDown);
    }

    /// The managers that run, and etcd's members.
    pub(super) async fn list(
        &self,
        leader: &str,
    ) -> Result<(Vec<pb::ManagerState>, Vec<pb::StoreMember>), Status> {
        let failed = |fault: Fault| Status::unavailable(fault.to_string());
        let managers = managers(&self.etcd).await.map_err(failed)?;
        let mut managers: Vec<_> = managers.into_iter().map(|of| state(of, leader)).collect();
        managers.sort_by(|a, b| (a.role, &a.address).cmp(&(b.role, &b.address)));
        let members = members(&self.etcd).await.into_iter().map(member);
        Ok((managers, members.collect()))
    }

    /// Gives up the lead, if somebody can take it.
    pub(super) async fn step_down(&self, leader: &str) -> Result<(), Status> {
        let (managers, _) = self.list(leader).await?;
        let standby = i32::from(pb::ManagerRole::Standby);
        let can_lead = |of: &pb::ManagerState| of.role == standby && of.problem.is_empty();
        if !managers.iter().any(can_lead) {
            return Err(Status::failed_precondition(
                "no other manager can take over: see `causeway managers`",
            ));
        }
        let instructions = self.instructions.clone();
        tokio::spawn(async move {
            // The caller's connection ends with the reign, so the answer goes first.
            tokio::time::sleep(ANSWERS_FIRST).await;
            instructions.send(Instruction::StepDown);
        });
        Ok(())
    }
}

fn state(of: Registration, leader: &str) -> pb::ManagerState {
    let role = match of.address == leader {
        true => pb::ManagerRole::Leader,
        false => pb::ManagerRole::Standby,
    };
    pb::ManagerState {
        role: role.into(),
        since_ms: wall_now().0.saturating_sub(of.since_unix_ms),
        address: of.address,
        version: of.version,
        schema: of.schema,
        problem: of.problem,
        dashboard: of.dashboard,
    }
}

fn member(of: Member) -> pb::StoreMember {
    pb::StoreMember {
        name: of.name,
        addresses: of.addresses,
        version: of.version,
        leader: of.leads,
        database_bytes: of.database,
        problem: of.problem,
    }
}
