//! A build request, read and prepared once for all sites.
//!
//! Not here: the requests and answers themselves, which are in [`build`](super::build). Invariant: this
//! contains everything that a request to a site needs.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::SpecConstant;

use super::Program;
use super::build::{BuildRequest, Verb};
use crate::stub::{Device, Site};

/// The data for the requests to the sites.
pub(super) struct Work {
    pub(super) task: Task,
    pub(super) devices: Vec<Arc<Device>>,
    pub(super) options: Bytes,
    // The source with the application's headers inserted; empty if none was inserted.
    pub(super) source: Bytes,
    pub(super) constants: Vec<SpecConstant>,
}

pub(super) enum Task {
    Build {
        null_options: bool,
    },
    Compile {
        headers: Vec<(Bytes, Arc<Program>, Bytes)>,
    },
    Link {
        inputs: Vec<Arc<Program>>,
    },
}

impl Work {
    // The indices of a site's devices, as the site knows them.
    pub(super) fn devices_of(&self, site: &Site) -> Vec<u32> {
        let own = self.devices.iter().filter(|device| site.has(device));
        own.map(|device| device.index().0).collect()
    }

    pub(super) fn new(program: &Program, request: BuildRequest) -> Work {
        let BuildRequest {
            verb,
            devices,
            options,
        } = request;
        let (task, source) = match verb {
            Verb::Build { null_options } => (
                Task::Build { null_options },
                program.source_with_headers(&options, &[]),
            ),
            Verb::Link { inputs } => (Task::Link { inputs }, Bytes::new()),
            Verb::Compile { headers } => {
                let embedded: Vec<&[u8]> = headers.iter().map(|(name, _)| &name[..]).collect();
                let source_of = |of: &Program| of.source_with_headers(&options, &embedded);
                let given = headers.iter().map(|(name, header)| {
                    let source = source_of(header);
                    (name.clone(), header.clone(), source)
                });
                let headers = given.collect();
                (Task::Compile { headers }, source_of(program))
            }
        };
        Work {
            task,
            devices,
            options,
            source,
            constants: program.constants(),
        }
    }
}
