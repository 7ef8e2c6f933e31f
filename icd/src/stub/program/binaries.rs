//! `CL_PROGRAM_BINARIES` and `CL_PROGRAM_BINARY_SIZES`: the only facts about a program that are fetched
//! from the nodes.
//!
//! All sites are queried at the same time. Invariant: each binary has the size that the node reported before,
//! or the query fails.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{
    ProgramBinaries, Query, answer::Body, command::Kind, query::Question,
};
use causeway_proto::id::{DeviceIndex, RequestId};
use cl_headers::types::{CL_OUT_OF_RESOURCES, CL_PROGRAM_BINARY_TYPE_NONE};

use super::binary::Identity;
use super::{Build, Origin, Program};
use crate::error::{ClResult, Status, fail, require};
use crate::stub::server::ask::ask_all;
use crate::stub::{Device, next_id};

// A device's position in the program, its native binary, and the binary's size. Only the size if only sizes
// were requested.
type Told = (usize, Bytes, u64);

// The sizes that the application was last given, since the last build began.
#[derive(Debug)]
pub(super) struct BinarySizes {
    sizes: Vec<u64>,
    // Not while a build runs, because the build will change the sizes.
    are_final: bool,
}

impl Program {
    // Returns one result for each site that has some of the devices.
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

    // The devices that may have a binary.
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

    /// Returns `CL_PROGRAM_BINARY_SIZES`: the size in bytes of each device's container. 0 if there is no
    /// binary, or if its node is lost while others are alive. Costs one round trip after each build.
    ///
    /// # Errors
    /// The node's code; `CL_DEVICE_NOT_AVAILABLE` when all nodes are lost.
    pub fn binary_sizes(&self) -> ClResult<Vec<u64>> {
        if let Some(known) = &self.state.lock().binary_sizes
            && known.are_final
        {
            return Ok(known.sizes.clone());
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
        state.binary_sizes = Some(BinarySizes {
            sizes: sizes.clone(),
            are_final: !state.running,
        });
        Ok(sizes)
    }

    /// Returns `CL_PROGRAM_BINARIES`: each device's container, empty where the size is 0. Costs one round
    /// trip more than [`Program::binary_sizes`].
    ///
    /// # Errors
    /// The node's code; `CL_DEVICE_NOT_AVAILABLE` when a node is lost; `CL_OUT_OF_RESOURCES` when a binary has another
    /// size than the node reported before.
    pub fn binaries(&self) -> ClResult<Vec<Vec<u8>>> {
        // The application made room for the sizes that it knows, also if it asked while a build was running.
        let known = self
            .state
            .lock()
            .binary_sizes
            .as_ref()
            .map(|known| known.sizes.clone());
        let sizes = known.map_or_else(|| self.binary_sizes(), Ok)?;
        let promised = self.devices.iter().zip(&sizes);
        let promised: Vec<Arc<Device>> = promised
            .filter(|(_, size)| **size > 0)
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
        let as_reported = |(binary, size): (&Vec<u8>, &u64)| binary.len() as u64 == *size;
        if !binaries.iter().zip(&sizes).all(as_reported) {
            // The next query for the sizes asks the nodes again.
            self.state.lock().binary_sizes = None;
            return fail(CL_OUT_OF_RESOURCES);
        }
        Ok(binaries)
    }
}
