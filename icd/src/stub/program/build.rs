//! Building, compiling and linking: one request each, waited for or not.
//!
//! The node compiles; the client holds what came of it. State and log are final before the caller's
//! notification is queued. Specification: "Building Program Executables", "Separate Compilation and
//! Linking of Programs".

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{
    Answer, BuildProgram, CompileProgram, Header, LinkProgram, command::Kind,
};
use causeway_proto::id::{DeviceIndex, RequestId};
use causeway_proto::status::WireError;
use cl_headers::types::{
    CL_BUILD_ERROR, CL_BUILD_IN_PROGRESS, CL_BUILD_NONE, CL_BUILD_SUCCESS, CL_INVALID_OPERATION,
    CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT, CL_PROGRAM_BINARY_TYPE_LIBRARY,
};

use super::{Build, Origin, Program, State, Traits, include, program_answer, told_build};
use crate::error::{ClResult, Status, require};
use crate::stub::kernel::Signature;
use crate::stub::{Context, Device, callbacks, next_id};

/// Called on the callback thread when a build is over, whatever came of it.
pub type BuildNotify = Box<dyn FnOnce(&Arc<Program>) + Send>;

/// What is to be done.
#[derive(Debug)]
pub enum Verb {
    /// `clBuildProgram`.
    Build {
        /// The application gave no options: a binary keeps its own.
        null_options: bool,
    },
    /// `clCompileProgram`, with headers by the name that includes them.
    Compile {
        /// First of equal names wins.
        headers: Vec<(String, Arc<Program>)>,
    },
    /// `clLinkProgram`.
    Link {
        /// Compiled programs and libraries.
        inputs: Vec<Arc<Program>>,
    },
}

/// A build about to start.
#[derive(Debug)]
pub struct BuildRequest {
    /// What is to be done.
    pub verb: Verb,
    /// For which of the program's devices.
    pub devices: Vec<Arc<Device>>,
    /// As the application gave them; empty for NULL.
    pub options: String,
}

impl Traits {
    pub(super) fn of_source() -> Traits {
        Traits {
            arg_info: false,
            non_uniform: false,
        }
    }

    // Nobody knows how it was built: the node judges.
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

    // Options of a build or compilation of source.
    fn with_options(options: &str) -> Traits {
        let words: Vec<&str> = options.split_ascii_whitespace().collect();
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
    /// `clLinkProgram`'s program, before it is linked.
    #[must_use]
    pub fn to_link(
        context: &Arc<Context>,
        devices: Vec<Arc<Device>>,
        inputs: &[Arc<Program>],
    ) -> Arc<Program> {
        let traits = Traits::of_links(inputs);
        Arc::new(Program::new(context, devices, Origin::Link, traits))
    }

    /// Whether it can be linked for `device`: it is compiled code or a library there.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` while it is being compiled.
    pub fn can_be_linked(&self, device: &Device) -> ClResult<bool> {
        require(!self.state.lock().running, CL_INVALID_OPERATION)?;
        // What was compiled here, or came as a binary and was not touched since.
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

    /// Whether a build may start now.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` while one runs or the program has kernels.
    pub fn check_idle(&self) -> ClResult {
        let state = self.state.lock();
        require(!state.running && state.kernels == 0, CL_INVALID_OPERATION)
    }

    /// Builds. Without `notify` it waits for the node; with it, it returns at once.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` as [`Program::check_idle`]; the node's code when it was waited for;
    /// `CL_DEVICE_NOT_AVAILABLE`. After an error `notify` is not called.
    pub fn build(self: &Arc<Self>, request: BuildRequest, notify: Option<BuildNotify>) -> ClResult {
        let id = RequestId(next_id());
        let positions = self.begin(&request)?;
        let traits = request.traits(self);
        let command = self.command(id, request);
        let session = self.context.site().session();
        let Some(notify) = notify else {
            let answer = session.request(id, &command);
            return self.finish(&positions, traits, answer);
        };
        let (program, places) = (self.clone(), positions.clone());
        let started = session.request_async(id, &command, move |answer| {
            let _ = program.finish(&places, traits, answer);
            callbacks::run(move || notify(&program));
        });
        started.or_else(|error| self.finish(&positions, traits, Err(error)))
    }

    // Marks the devices as being built; their positions.
    fn begin(&self, request: &BuildRequest) -> ClResult<Vec<usize>> {
        let indices = request.devices.iter().map(|device| device.index());
        let positions: Vec<usize> = indices.filter_map(|index| self.position(index)).collect();
        let options: Arc<str> = request.options.as_str().into();
        let mut state = self.state.lock();
        require(!state.running && state.kernels == 0, CL_INVALID_OPERATION)?;
        state.running = true;
        state.binary_sizes = None;
        for &at in &positions {
            state.builds[at] = Build {
                status: CL_BUILD_IN_PROGRESS,
                options: options.clone(),
                ..Build::default()
            };
        }
        Ok(positions)
    }

    fn command(&self, request: RequestId, build: BuildRequest) -> Kind {
        let devices = build
            .devices
            .iter()
            .map(|device| device.index().0)
            .collect();
        let (program, options) = (self.id.0, build.options);
        match build.verb {
            Verb::Build { null_options } => Kind::BuildProgram(BuildProgram {
                request: request.0,
                program,
                devices,
                null_options,
                source: self.source_with_headers(&options, &[]),
                options,
            }),
            Verb::Compile { headers } => {
                let embedded: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
                let source_of = |of: &Program| of.source_with_headers(&options, &embedded);
                let given = headers.iter().map(|(name, header)| Header {
                    include_name: name.clone(),
                    program: header.id.0,
                    source: source_of(header),
                });
                Kind::CompileProgram(CompileProgram {
                    request: request.0,
                    program,
                    devices,
                    headers: given.collect(),
                    source: source_of(self),
                    options: options.clone(),
                })
            }
            Verb::Link { inputs } => Kind::LinkProgram(LinkProgram {
                request: request.0,
                program,
                context: self.context.site().context().0,
                devices,
                options,
                inputs: inputs.iter().map(|input| input.id.0).collect(),
            }),
        }
    }

    // The text with the application's headers in place, but for the embedded ones, which come with the
    // call; empty when it has none of them.
    fn source_with_headers(&self, options: &str, embedded: &[&str]) -> Bytes {
        let Origin::Source(text) = &self.origin else {
            return Bytes::new();
        };
        include::expand(text, options, embedded, &include::from_disk)
            .map_or_else(Bytes::new, Bytes::from)
    }

    fn finish(
        &self,
        positions: &[usize],
        traits: Traits,
        answer: Result<Answer, WireError>,
    ) -> ClResult {
        let mut state = self.state.lock();
        state.running = false;
        state.traits = traits;
        let result = match answer {
            Ok(answer) => self.apply(&mut state, positions, answer),
            Err(error) => {
                state.end_all(positions, CL_BUILD_ERROR, &error.to_string());
                Err(error.into())
            }
        };
        drop(state);
        result
    }

    fn apply(&self, state: &mut State, positions: &[usize], answer: Answer) -> ClResult {
        let status = Status(answer.status.min(0));
        // What the node says of single devices stands above what it says of all.
        let outcome = if status.is_error() {
            CL_BUILD_ERROR
        } else {
            CL_BUILD_SUCCESS
        };
        state.end_all(positions, outcome, &answer.message);
        let told = program_answer(answer);
        for build in told.devices {
            if let Some(at) = self.position(DeviceIndex(build.device))
                && positions.contains(&at)
            {
                let known = std::mem::take(&mut state.builds[at]);
                state.builds[at] = told_build(build, known);
            }
        }
        let rebuilt = |device| {
            self.position(device)
                .is_some_and(|at| positions.contains(&at))
        };
        let show_info = state.traits.arg_info;
        let mut signatures: Vec<Signature> = told
            .kernels
            .into_iter()
            .map(|wire| Signature::new(wire, show_info))
            .collect();
        keep_others(&mut signatures, &state.signatures, rebuilt);
        state.signatures = signatures.into_iter().map(Arc::new).collect();
        if status.is_error() {
            Err(status)
        } else {
            Ok(())
        }
    }
}

// Kernels on devices that were built for earlier, and not now, stay.
fn keep_others(
    signatures: &mut Vec<Signature>,
    earlier: &[Arc<Signature>],
    rebuilt: impl Fn(DeviceIndex) -> bool,
) {
    for old in earlier {
        if let Some(new) = signatures.iter_mut().find(|new| new.name == old.name) {
            new.keep_from(old, &rebuilt);
        } else if old.devices.iter().any(|on| !rebuilt(on.device)) {
            let mut kept = Signature::clone(old);
            kept.devices.retain(|on| !rebuilt(on.device));
            signatures.push(kept);
        }
    }
}

impl State {
    fn end_all(&mut self, positions: &[usize], status: i32, log: &str) {
        for &at in positions {
            self.builds[at].status = status;
            self.builds[at].log = log.into();
        }
    }
}

impl BuildRequest {
    // What is known of the program once this build is over.
    fn traits(&self, program: &Program) -> Traits {
        let now = program.state.lock().traits;
        let given = Traits::with_options(&self.options);
        match (&self.verb, &program.origin) {
            (Verb::Build { .. } | Verb::Compile { .. }, Origin::Source(_)) => given,
            (Verb::Link { .. }, _) => Traits {
                arg_info: now.arg_info,
                non_uniform: now.non_uniform
                    && !self.options.contains("-cl-uniform-work-group-size"),
            },
            _ => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_matter_later_are_recognised_as_words() {
        let with = Traits::with_options;
        assert!(with("-DX -cl-kernel-arg-info  -w").arg_info);
        assert!(!with("-DX=-cl-kernel-arg-info").arg_info);
        assert!(!with("-cl-std=CL1.2").non_uniform);
        assert!(with("-cl-std=CL2.0").non_uniform && with("-cl-std=CL3.0").non_uniform);
        assert!(!with("-cl-std=CL3.0 -cl-uniform-work-group-size").non_uniform);
        assert!(!with("").non_uniform);
    }
}
