//! `CL_PROGRAM_BINARIES` and their sizes: the one thing about a program that only the nodes have.
//!
//! Each site is asked for its devices' at the same time. Invariant: what the sizes have promised is
//! given, or the query fails.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{
    ProgramBinaries, Query, answer::Body, command::Kind, query::Question,
};
use causeway_proto::id::{DeviceIndex, RequestId};
use cl_headers::types::CL_PROGRAM_BINARY_TYPE_NONE;

use super::binary::Identity;
use super::{Build, Origin, Program};
use crate::error::{ClResult, Status, require};
use crate::stub::ask::ask_all;
use crate::stub::{Device, next_id};

// A device's native binary by its place in the program; only its length when sizes were asked for.
type Told = (usize, Bytes, u64);

impl Program {
    // One result a site that has some of the devices.
    fn ask_binaries(&self, devices: &[Arc<Device>], sizes_only: bool) -> Vec<ClResult<Vec<Told>>> {
        let mut sites = self.sites_of(devices);
        sites.retain(|site| self.known_on(site).is_some());
        let answers = ask_all(&sites, |place, receiver| {
            let (site, request) = (&sites[place], RequestId(next_id()));
            let query = Kind::Query(Query {
                request: request.0,
                question: Some(Question::ProgramBinaries(ProgramBinaries {
                    program: self.on(site)?.0,
                    sizes_only,
                })),
            });
            site.session().request_async(request, &query, receiver)
        });
        let told = sites.iter().zip(answers).map(|(site, answer)| {
            let answer = answer?;
            require(answer.status >= 0, answer.status)?;
            let Some(Body::Binaries(told)) = answer.body else {
                return Ok(Vec::new());
            };
            let sizes = told.sizes.into_iter().chain(std::iter::repeat(0));
            let placed = told
                .per_device
                .into_iter()
                .zip(sizes)
                .filter_map(|(of, size)| {
                    let at = self.position_on(site, DeviceIndex(of.device))?;
                    Some((at, of.binary, size))
                });
            Ok(placed.collect())
        });
        told.collect()
    }

    // The devices that can have a binary at all.
    fn with_binaries(&self) -> Vec<Arc<Device>> {
        if matches!(self.origin, Origin::Binaries) {
            return self.devices.clone();
        }
        let built = |build: &Build| build.binary_type != CL_PROGRAM_BINARY_TYPE_NONE;
        let state = self.state.lock();
        let all = self.devices.iter().zip(&state.builds);
        let with = all.filter(|(_, build)| built(build));
        with.map(|(device, _)| device.clone()).collect()
    }

    /// `CL_PROGRAM_BINARY_SIZES`: bytes of each device's container, 0 where there is no binary, or none to
    /// be had any more because its node is lost while others are there. One round trip after each build.
    ///
    /// # Errors
    /// What a node says; `CL_DEVICE_NOT_AVAILABLE` when all of them are lost.
    pub fn binary_sizes(&self) -> ClResult<Vec<u64>> {
        let known = self.state.lock().binary_sizes.clone();
        if let Some(sizes) = known {
            return Ok(sizes);
        }
        let mut sizes = vec![0; self.devices.len()];
        let answers = self.ask_binaries(&self.with_binaries(), true);
        let lost = |answer: &ClResult<_>| matches!(answer, Err(Status::DEVICE_NOT_AVAILABLE));
        let some_left = !answers.iter().all(lost);
        for answer in answers {
            if lost(&answer) && some_left {
                continue;
            }
            for (at, _, size) in answer? {
                if size > 0 {
                    sizes[at] = size + Identity::of(&self.devices[at]).overhead() as u64;
                }
            }
        }
        let mut state = self.state.lock();
        if !state.running {
            state.binary_sizes = Some(sizes.clone());
        }
        Ok(sizes)
    }

    /// `CL_PROGRAM_BINARIES`: each device's container, empty where the size is 0. One round trip more than
    /// [`Program::binary_sizes`].
    ///
    /// # Errors
    /// What a node says; `CL_DEVICE_NOT_AVAILABLE`.
    pub fn binaries(&self) -> ClResult<Vec<Vec<u8>>> {
        let sizes = self.binary_sizes()?;
        let promised = self.devices.iter().zip(sizes);
        let promised: Vec<Arc<Device>> = promised
            .filter(|(_, size)| *size > 0)
            .map(|(device, _)| device.clone())
            .collect();
        let mut binaries = vec![Vec::new(); self.devices.len()];
        for answer in self.ask_binaries(&promised, false) {
            for (at, native, _) in answer? {
                if !native.is_empty() {
                    binaries[at] = Identity::of(&self.devices[at]).wrap(&native);
                }
            }
        }
        Ok(binaries)
    }
}
