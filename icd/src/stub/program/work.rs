//! A build, read and prepared once for all sites.
//!
//! What it is not: what the sites make of it is in [`build`](super::build). Invariant: it holds all that a site is asked with.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::SpecConstant;

use super::Program;
use super::build::{BuildRequest, Verb};
use crate::stub::{Device, Site};

/// What a site is asked with.
pub(super) struct Work {
    pub(super) task: Task,
    pub(super) devices: Vec<Arc<Device>>,
    pub(super) options: Bytes,
    // With the application's headers in place; empty when it has none of them.
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
    // Those of a site, as it calls them.
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
