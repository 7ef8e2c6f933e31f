//! Creation of programs from source, an intermediate language, binaries and built-in kernels. For linked
//! programs see `build`.
//!
//! Invariant: a program is returned only after it exists on every site where it must exist from the start.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{Binaries, DeviceBinary, create_program::From};
use causeway_proto::id::{DeviceIndex, RequestId};
use cl_headers::types::CL_INVALID_BINARY;

use super::binary::Identity;
use super::{Build, Origin, Program, Traits, create, program_answer, told_build};
use crate::error::{ClResult, Status, require};
use crate::stub::kernel::Signature;
use crate::stub::server::ask::{Answered, ask_all};
use crate::stub::{Context, Device, Site, next_id};

impl Program {
    /// `clCreateProgramWithSource`: makes a program without waiting. In a context of one site the program
    /// is created there at once, otherwise on a site with its first build there.
    ///
    /// # Errors
    /// In a context of one site: `CL_DEVICE_NOT_AVAILABLE` when the session is lost, and
    /// `CL_OUT_OF_HOST_MEMORY` for a text that is too large for a command.
    pub fn from_source(context: &Arc<Context>, source: Bytes) -> ClResult<Arc<Program>> {
        let devices = context.devices().to_vec();
        let origin = Origin::Source(source);
        let program = Program::new(context, devices, origin, Traits::of_source());
        if !context.is_distributed() {
            program.on(context.site())?;
        }
        Ok(Arc::new(program))
    }

    // Creates the program on the sites, each from what `from` returns for it, and waits for all answers.
    fn create_on(&self, sites: &[Arc<Site>], from: impl Fn(&Site) -> From) -> Vec<Answered> {
        ask_all(sites, |place, receiver| {
            let (site, request) = (&sites[place], RequestId(next_id()));
            let made = self.remotes.on(site, |id| {
                let create = create(site, id, from(site), request.0);
                site.session().request_async(request, &create, receiver)
            });
            made.map(drop)
        })
    }

    /// `clCreateProgramWithBinary`: makes a program from one binary for each device. The second result is
    /// `binary_status`, by position; `CL_DEVICE_NOT_AVAILABLE` for a device whose node is lost.
    ///
    /// # Errors
    /// `CL_INVALID_BINARY` when the client or a node rejects a binary; `CL_DEVICE_NOT_AVAILABLE` when one
    /// of the nodes is lost.
    pub fn from_binaries(
        context: &Arc<Context>,
        devices: Vec<Arc<Device>>,
        binaries: &[&[u8]],
    ) -> (ClResult<Arc<Program>>, Vec<i32>) {
        let natives = devices
            .iter()
            .zip(binaries)
            .map(|(device, given)| Identity::of(device).unwrap(given));
        let natives: Vec<ClResult<&[u8]>> = natives.collect();
        let mut verdicts: Vec<i32> = natives
            .iter()
            .map(|native| native.as_ref().map_or_else(|status| status.0, |_| 0))
            .collect();
        if natives.iter().any(Result::is_err) {
            return (Err(Status(CL_INVALID_BINARY)), verdicts);
        }
        let program = Program::new(context, devices, Origin::Binaries, Traits::of_binaries());
        let sites = program.sites_of(&program.devices);
        let answers = program.create_on(&sites, |site| {
            let pairs = program.devices.iter().zip(&natives);
            let own = pairs.filter(|(device, _)| site.has(device));
            let own = own.filter_map(|(device, native)| {
                Some(DeviceBinary {
                    device: device.index().0,
                    binary: Bytes::copy_from_slice(native.ok()?),
                })
            });
            From::Binaries(Binaries {
                per_device: own.collect(),
            })
        });
        let mut result = Ok(());
        for (site, answer) in sites.iter().zip(answers) {
            result = result.and(program.judged(site, answer, &mut verdicts));
        }
        (result.map(|()| Arc::new(program)), verdicts)
    }

    // Applies a site's answer about the binaries of its devices.
    fn judged(&self, site: &Site, answer: Answered, verdicts: &mut [i32]) -> ClResult {
        let answer = answer.map_err(|error| {
            let status = error.status();
            for (device, verdict) in self.devices.iter().zip(verdicts.iter_mut()) {
                if site.has(device) {
                    *verdict = status.0;
                }
            }
            status
        })?;
        let status = answer.status;
        for told in program_answer(answer).devices {
            if let Some(at) = self.position_on(site, DeviceIndex(told.device)) {
                verdicts[at] = told.binary_status;
                self.state.lock().builds[at] = told_build(told, Build::default());
            }
        }
        require(status >= 0, status)
    }

    /// `clCreateProgramWithIL`: creates the program on the sites that accept intermediate languages, and
    /// waits until these have accepted or rejected the module.
    ///
    /// # Errors
    /// The node's code; `CL_DEVICE_NOT_AVAILABLE` when a session is lost.
    pub fn from_il(context: &Arc<Context>, module: Bytes) -> ClResult<Arc<Program>> {
        let devices = context.devices().to_vec();
        let origin = Origin::Il(module.clone());
        let program = Program::new(context, devices, origin, Traits::of_binaries());
        let able = |device: &&Arc<Device>| device.takes_il();
        let able: Vec<Arc<Device>> = program.devices.iter().filter(able).cloned().collect();
        let sites = program.sites_of(&able);
        for answer in program.create_on(&sites, |_| From::Il(module.clone())) {
            let answer = answer?;
            require(answer.status >= 0, answer.status)?;
        }
        Ok(Arc::new(program))
    }

    /// `clCreateProgramWithBuiltInKernels`: makes a program that needs no build. `names` are separated by
    /// semicolons, and each is a kernel of one of the devices.
    ///
    /// # Errors
    /// The node's code; `CL_DEVICE_NOT_AVAILABLE` when a session is lost.
    pub fn from_built_in_kernels(
        context: &Arc<Context>,
        devices: Vec<Arc<Device>>,
        names: &str,
    ) -> ClResult<Arc<Program>> {
        let traits = Traits::of_binaries();
        let program = Program::new(context, devices, Origin::BuiltInKernels, traits);
        // A driver gets only names that one of its own devices has.
        let names_on = |site: &Site| {
            let has = |name: &&str| {
                let mut own = program.devices.iter().filter(|device| site.has(device));
                own.any(|device| device.has_built_in_kernel(name.trim()))
            };
            names.split(';').filter(has).collect::<Vec<_>>().join(";")
        };
        let mut sites = program.sites_of(&program.devices);
        sites.retain(|site| !names_on(site).is_empty());
        let answers = program.create_on(&sites, |site| From::BuiltInKernels(names_on(site)));
        for (site, answer) in sites.iter().zip(answers) {
            let answer = answer?;
            require(answer.status >= 0, answer.status)?;
            let told = program_answer(answer);
            let device_on = |index| {
                let at = program.position_on(site, index)?;
                Some(program.devices[at].clone())
            };
            let kernels = told.kernels.into_iter();
            let kernels = kernels.map(|wire| Signature::new(wire, true, device_on));
            let kernels = kernels.collect();
            let mut state = program.state.lock();
            for build in told.devices {
                if let Some(at) = program.position_on(site, DeviceIndex(build.device)) {
                    state.builds[at] = told_build(build, Build::default());
                }
            }
            state.learn(site, kernels, |_| true);
            state.unite(&program);
        }
        Ok(Arc::new(program))
    }
}
