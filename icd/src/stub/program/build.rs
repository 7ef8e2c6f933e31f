//! Building, compiling and linking: one request to each site of the devices, synchronous or asynchronous.
//!
//! All nodes compile at the same time; the client stores the results. State and log are final before the
//! caller's notification is queued. Specification: "Building Program Executables", "Separate Compilation
//! and Linking of Programs".
//!
//! As with a native platform of several devices, each device has its own status and log. A successful build
//! can be used even if others failed. The loss of a node is a failed build of its devices. If all sites
//! return the same code, the call returns it. Otherwise the call returns the verb's own failure
//! (`CL_BUILD_PROGRAM_FAILURE`…), and the devices have the details.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::command::Kind;
use causeway_proto::command::{
    Answer, BuildProgram, CompileProgram, Header, LinkProgram, SpecConstant,
};
use causeway_proto::id::{DeviceIndex, RequestId};
use causeway_proto::source::{contains, wide};
use causeway_proto::status::WireError;
use cl_headers::types::{
    CL_BUILD_ERROR, CL_BUILD_IN_PROGRESS, CL_BUILD_NONE, CL_BUILD_PROGRAM_FAILURE,
    CL_BUILD_SUCCESS, CL_COMPILE_PROGRAM_FAILURE, CL_INVALID_OPERATION, CL_LINK_PROGRAM_FAILURE,
    CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT, CL_PROGRAM_BINARY_TYPE_LIBRARY,
};

use super::{
    Build, Origin, Program, ProgramState, Traits, headers, log_lines, program_answer, told_build,
};
use crate::error::{ClResult, Status, fail, require};
use crate::host_clock::host_ns;
use crate::stub::kernel::Signature;
use crate::stub::server::ask::{Answered, Receiver, ask_all, ask_each};
use crate::stub::{Context, Device, Site, event::callbacks, next_id};
use crate::trace::{self, record::Record};

/// Called on the callback thread when a build has ended, with success or failure.
pub type BuildNotify = Box<dyn FnOnce(&Arc<Program>) + Send>;

/// The kind of a build request.
#[derive(Debug)]
pub enum Verb {
    /// `clBuildProgram`.
    Build {
        /// Whether the application passed NULL options; a binary then keeps its own.
        null_options: bool,
    },
    /// `clCompileProgram`, with headers by the name in the `#include` directive.
    Compile {
        /// Embedded headers; the first of equal names is used.
        headers: Vec<(Bytes, Arc<Program>)>,
    },
    /// `clLinkProgram`.
    Link {
        /// The compiled programs and libraries to link.
        inputs: Vec<Arc<Program>>,
    },
}

/// A build about to start.
#[derive(Debug)]
pub struct BuildRequest {
    /// The kind of the request.
    pub verb: Verb,
    /// The devices to build for, among the program's.
    pub devices: Vec<Arc<Device>>,
    /// Options as the application gave them, in any encoding; empty for NULL.
    pub options: Bytes,
}

impl Traits {
    pub(super) fn of_source() -> Traits {
        Traits {
            arg_info: false,
            non_uniform: false,
        }
    }

    // The build options of a binary are unknown, so nothing is ruled out here and the node checks.
    pub(super) fn of_binaries() -> Traits {
        Traits {
            arg_info: true,
            non_uniform: true,
        }
    }

    fn of_links(inputs: &[Arc<Program>]) -> Traits {
        let traits = inputs.iter().map(|input| input.state.lock().traits);
        traits.fold(Traits::of_source(), |all, one| Traits {
            arg_info: all.arg_info || one.arg_info,
            non_uniform: all.non_uniform || one.non_uniform,
        })
    }

    // Traits from the options of a build or compilation of source.
    fn with_options(options: &[u8]) -> Traits {
        let options = wide(options);
        let words: Vec<&str> = options.split_ascii_whitespace().collect();
        // The last `-cl-std` counts.
        let standard = words
            .iter()
            .rev()
            .find_map(|word| word.strip_prefix("-cl-std=CL"));
        let from_2_0 = standard.is_some_and(|version| version >= "2");
        Traits {
            arg_info: words.contains(&"-cl-kernel-arg-info"),
            non_uniform: from_2_0 && !words.contains(&"-cl-uniform-work-group-size"),
        }
    }
}

impl Program {
    /// Makes the program of `clLinkProgram`, before it is linked.
    #[must_use]
    pub fn to_link(
        context: &Arc<Context>,
        devices: Vec<Arc<Device>>,
        inputs: &[Arc<Program>],
    ) -> Arc<Program> {
        let traits = Traits::of_links(inputs);
        Arc::new(Program::new(context, devices, Origin::Link, traits))
    }

    /// Whether the program can be linked for `device`: it is a compiled object or a library there.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` while the program is being built.
    pub fn can_be_linked(&self, device: &Device) -> ClResult<bool> {
        // clLinkProgram: CL_INVALID_OPERATION when the build of an input has not ended.
        require(!self.state.lock().running, CL_INVALID_OPERATION)?;
        // Either compiled here, or created from a binary that was not built since.
        let is_there = |build: &Build| match build.status {
            CL_BUILD_SUCCESS => true,
            CL_BUILD_NONE => matches!(self.origin, Origin::Binaries),
            _ => false,
        };
        let linkable = |build: Build| {
            let parts = [
                CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT,
                CL_PROGRAM_BINARY_TYPE_LIBRARY,
            ];
            is_there(&build) && parts.contains(&build.binary_type)
        };
        Ok(self.build_of(device).is_some_and(linkable))
    }

    /// Checks whether a build may start now.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` while one runs or the program has kernels.
    pub fn check_idle(&self) -> ClResult {
        let state = self.state.lock();
        // clBuildProgram, clCompileProgram: CL_INVALID_OPERATION when an earlier build has not ended, or
        // kernels are attached.
        require(!state.running && state.kernels == 0, CL_INVALID_OPERATION)
    }

    /// Builds the program. Without `notify` the call waits for the nodes; with `notify` it returns at once.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` as for [`Program::check_idle`]. When the call waits, the code described in
    /// the module's documentation. `CL_DEVICE_NOT_AVAILABLE`. After an error `notify` is not called.
    pub fn build(self: &Arc<Self>, request: BuildRequest, notify: Option<BuildNotify>) -> ClResult {
        self.begin(&request)?;
        let sites = self.sites_of(&request.devices);
        let (traits, failure) = (request.traits(self), request.verb.failure());
        let prepared = PreparedBuild::new(self, request);
        let build = BuildInProgress {
            sites: sites.clone(),
            devices: prepared.devices.clone(),
            traits,
            source: prepared.source.clone(),
            failure,
        };
        let ask = |place: usize, receiver| {
            let receiver = prepared.traced(&sites[place], receiver);
            self.ask(&sites[place], &prepared, receiver)
        };
        let Some(notify) = notify else {
            let answers = ask_all(&sites, ask);
            return self.finish(&build, answers);
        };
        let (program, finished) = (self.clone(), build.clone());
        let asked = ask_each(&sites, ask, move |answers| {
            let _ = program.finish(&finished, answers);
            callbacks::run(move || notify(&program));
        });
        // If no site could be asked, the build ends here, and `notify` is not called.
        asked.or_else(|refused| self.finish(&build, refused.into_iter().map(Err).collect()))
    }

    // Marks the devices as being built.
    fn begin(&self, request: &BuildRequest) -> ClResult {
        let options = request.options.clone();
        let mut state = self.state.lock();
        // Another thread may have begun a build, or made a kernel, since the check of `check_idle`.
        require(!state.running && state.kernels == 0, CL_INVALID_OPERATION)?;
        state.running = true;
        state.binary_sizes = None;
        for (device, build) in self.devices.iter().zip(&mut state.builds) {
            if request.devices.iter().any(|one| Arc::ptr_eq(one, device)) {
                *build = Build {
                    status: CL_BUILD_IN_PROGRESS,
                    options: options.clone(),
                    ..Build::default()
                };
            }
        }
        Ok(())
    }

    // Sends the request to a site. Programs that the site needs for it are created there first.
    fn ask(
        &self,
        site: &Arc<Site>,
        prepared: &PreparedBuild,
        receiver: Receiver,
    ) -> Result<(), WireError> {
        let request = RequestId(next_id());
        let devices = prepared.devices_of(site);
        let options = prepared.options.clone();
        let command = match &prepared.task {
            Task::Build { null_options } => Kind::BuildProgram(BuildProgram {
                request: request.0,
                program: self.on(site)?.0,
                devices,
                null_options: *null_options,
                source: site.source(&prepared.source),
                constants: prepared.constants.clone(),
                options,
            }),
            Task::Compile { headers } => {
                let headers = headers.iter().map(|(name, header, source)| {
                    Ok(Header {
                        include_name: name.clone(),
                        program: header.on(site)?.0,
                        source: site.source(source),
                    })
                });
                Kind::CompileProgram(CompileProgram {
                    request: request.0,
                    program: self.on(site)?.0,
                    devices,
                    headers: headers.collect::<Result<_, WireError>>()?,
                    source: site.source(&prepared.source),
                    constants: prepared.constants.clone(),
                    options,
                })
            }
            Task::Link { inputs } => {
                let inputs = inputs.iter().map(|input| Ok(input.on(site)?.0));
                let inputs = inputs.collect::<Result<_, WireError>>()?;
                // The link command itself creates the program on the site.
                let made = self.remotes.on(site, |program| {
                    let link = Kind::LinkProgram(LinkProgram {
                        request: request.0,
                        program,
                        context: site.context().0,
                        devices,
                        options,
                        inputs,
                    });
                    site.session().request_async(request, &link, receiver)
                });
                return made.map(drop);
            }
        };
        site.session().request_async(request, &command, receiver)
    }

    // Returns the source with the application's headers inserted, except the embedded ones, which travel
    // with the call. Empty if no header was inserted.
    pub(super) fn source_with_headers(&self, options: &[u8], embedded: &[&[u8]]) -> Bytes {
        let Origin::Source(text) = &self.origin else {
            return Bytes::new();
        };
        headers::expand(text, options, embedded, &headers::from_disk)
            .map_or_else(Bytes::new, Bytes::from)
    }

    fn finish(&self, build: &BuildInProgress, answers: Vec<Answered>) -> ClResult {
        let mut state = self.state.lock();
        state.running = false;
        state.traits = build.traits;
        let told = build.sites.iter().zip(answers);
        let outcomes: Vec<Status> = told
            .map(|(site, answer)| match answer {
                Ok(answer) => self.apply(&mut state, build, site, answer),
                Err(error) => {
                    self.end_all(&mut state, build, site, CL_BUILD_ERROR, &error.to_string());
                    let rebuilt = |device: &Device| build.concerns(site, device);
                    state.learn(site, Vec::new(), rebuilt);
                    error.status()
                }
            })
            .collect();
        state.unite(self);
        drop(state);
        combined(&outcomes, build.failure)
    }

    // Applies a site's answer, and returns its code.
    fn apply(
        &self,
        state: &mut ProgramState,
        build: &BuildInProgress,
        site: &Site,
        answer: Answer,
    ) -> Status {
        let status = Status(answer.status.min(0));
        // The result for the whole site is the default; results for single devices below replace it.
        let outcome = if status.is_error() {
            CL_BUILD_ERROR
        } else {
            CL_BUILD_SUCCESS
        };
        self.end_all(state, build, site, outcome, &answer.message);
        let told = program_answer(answer);
        for of_device in told.devices {
            let at = self.position_on(site, DeviceIndex(of_device.device));
            let Some(at) = at.filter(|at| build.concerns(site, &self.devices[*at])) else {
                continue;
            };
            // When a driver rejects the options, for example, the device looks as if no build had been
            // requested. With other sites in the same build, nothing else would show the refusal.
            if of_device.status == CL_BUILD_NONE && status.is_error() && build.sites.len() > 1 {
                let node = self.devices[at].node().name();
                let name = cl_headers::error_name(status.0);
                state.builds[at].log = format!(
                    "node {node} rejected the build with {name} ({}); the device was not built",
                    status.0
                )
                .into();
            } else {
                let known = std::mem::take(&mut state.builds[at]);
                let mut told = told_build(of_device, known);
                if log_lines::counts_all(&self.devices[at]) && log_lines::names_text(&told.log) {
                    let text = site.source(self.text_of(build));
                    told.log = log_lines::placed(&text, &told.log).into();
                }
                state.builds[at] = told;
            }
        }
        let show_info = state.traits.arg_info;
        let device_on = |index| {
            let at = self.position_on(site, index)?;
            Some(self.devices[at].clone())
        };
        let kernels = told.kernels.into_iter();
        let kernels = kernels.map(|wire| Signature::new(wire, show_info, device_on));
        let rebuilt = |device: &Device| build.concerns(site, device);
        state.learn(site, kernels.collect(), rebuilt);
        status
    }

    // The text that was compiled.
    fn text_of<'a>(&'a self, build: &'a BuildInProgress) -> &'a Bytes {
        match &self.origin {
            Origin::Source(text) if build.source.is_empty() => text,
            _ => &build.source,
        }
    }

    // Sets the same status and log for all devices that were to be built on the site.
    fn end_all(
        &self,
        state: &mut ProgramState,
        build: &BuildInProgress,
        site: &Site,
        status: i32,
        log: &str,
    ) {
        for (device, of_device) in self.devices.iter().zip(&mut state.builds) {
            if build.concerns(site, device) {
                of_device.status = status;
                of_device.log = log.into();
            }
        }
    }
}

/// The data of a build that are needed until its answers have arrived.
#[derive(Clone)]
struct BuildInProgress {
    sites: Vec<Arc<Site>>,
    devices: Vec<Arc<Device>>,
    traits: Traits,
    // Same as in `PreparedBuild`.
    source: Bytes,
    // The verb's own failure code.
    failure: i32,
}

impl BuildInProgress {
    fn concerns(&self, site: &Site, device: &Device) -> bool {
        let mut devices = self.devices.iter();
        site.has(device) && devices.any(|own| std::ptr::eq(&**own, device))
    }
}

// One code if all are equal, else `failure`.
fn combined(outcomes: &[Status], failure: i32) -> ClResult {
    let first = outcomes.first().copied().unwrap_or(Status::SUCCESS);
    if outcomes.iter().any(|outcome| *outcome != first) {
        fail(failure)
    } else if first.is_error() {
        Err(first)
    } else {
        Ok(())
    }
}

impl Verb {
    fn failure(&self) -> i32 {
        match self {
            Verb::Build { .. } => CL_BUILD_PROGRAM_FAILURE,
            Verb::Compile { .. } => CL_COMPILE_PROGRAM_FAILURE,
            Verb::Link { .. } => CL_LINK_PROGRAM_FAILURE,
        }
    }
}

impl BuildRequest {
    // The traits of the program after this build.
    fn traits(&self, program: &Program) -> Traits {
        let now = program.state.lock().traits;
        let given = Traits::with_options(&self.options);
        match (&self.verb, &program.origin) {
            (Verb::Build { .. } | Verb::Compile { .. }, Origin::Source(_)) => given,
            (Verb::Link { .. }, _) => Traits {
                arg_info: now.arg_info,
                non_uniform: now.non_uniform
                    && !contains(&self.options, b"-cl-uniform-work-group-size"),
            },
            _ => now,
        }
    }
}

/// A build request, read and prepared once for all sites. It contains everything that a request to a site
/// needs.
struct PreparedBuild {
    task: Task,
    devices: Vec<Arc<Device>>,
    options: Bytes,
    // The source with the application's headers inserted; empty if none was inserted.
    source: Bytes,
    constants: Vec<SpecConstant>,
}

enum Task {
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

impl PreparedBuild {
    // The receiver of a site's answer, which also reports the build to the program's trace.
    fn traced(&self, site: &Site, receiver: Receiver) -> Receiver {
        if !trace::is_on() {
            return receiver;
        }
        let name = match &self.task {
            Task::Build { .. } => "build",
            Task::Compile { .. } => "compile",
            Task::Link { .. } => "link",
        };
        let (node, begin) = (site.session().traced_node(), host_ns());
        Box::new(move |answer| {
            let span = [begin, host_ns()];
            trace::report(Record::Build { node, name, span });
            receiver(answer);
        })
    }

    // The indices of a site's devices, as the site knows them.
    fn devices_of(&self, site: &Site) -> Vec<u32> {
        let own = self.devices.iter().filter(|device| site.has(device));
        own.map(|device| device.index().0).collect()
    }

    fn new(program: &Program, request: BuildRequest) -> PreparedBuild {
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
        PreparedBuild {
            task,
            devices,
            options,
            source,
            constants: program.constants(),
        }
    }
}

#[cfg(test)]
mod tests {
    use cl_headers::types::CL_INVALID_BUILD_OPTIONS;

    use super::*;

    #[test]
    fn the_code_is_the_one_that_all_say_or_the_verbs_failure() {
        let code = |outcomes: &[i32]| {
            let outcomes: Vec<Status> = outcomes.iter().copied().map(Status).collect();
            combined(&outcomes, CL_BUILD_PROGRAM_FAILURE).map_err(|status| status.0)
        };
        assert_eq!(code(&[0, 0]), Ok(()));
        assert_eq!(code(&[-2, -2]), Err(-2));
        let refused = CL_INVALID_BUILD_OPTIONS;
        assert_eq!(code(&[refused]), Err(refused));
        for mixed in [[0, -2], [refused, 0], [CL_BUILD_PROGRAM_FAILURE, -2]] {
            assert_eq!(code(&mixed), Err(CL_BUILD_PROGRAM_FAILURE));
        }
    }

    #[test]
    fn options_that_matter_later_are_recognised_as_words() {
        let with = |options: &str| Traits::with_options(options.as_bytes());
        assert!(with("-DX -cl-kernel-arg-info  -w").arg_info);
        assert!(!with("-DX=-cl-kernel-arg-info").arg_info);
        assert!(!with("-cl-std=CL1.2").non_uniform);
        assert!(with("-cl-std=CL2.0").non_uniform && with("-cl-std=CL3.0").non_uniform);
        assert!(!with("-cl-std=CL3.0 -cl-uniform-work-group-size").non_uniform);
        assert!(!with("").non_uniform);
    }
}
