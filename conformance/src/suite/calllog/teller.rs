//! Converts a log: objects, programs and releases. Also finds the worker's own objects.
//!
//! Commands of queues are handled in `commands`. Invariant: only the application's objects
//! get a name in the story.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::bytes::Digest;
use super::line::{Call, elements, number};
use super::story::{LogOwner, Story};

const ALLOC_HOST_PTR: u64 = 1 << 4;
const ACCESS: u64 = 7;
const READ_WRITE: u64 = 1;
/// The `map_flags` of a mapping that the worker fills with bulk bytes.
const MAP_WRITE: u64 = 2;

/// The state of the conversion.
pub(super) struct Teller {
    pub(super) place: LogOwner,
    pub(super) story: Story,
    /// Names in the log to names in the story. Objects that are missing here are not the application's.
    pub(super) names: HashMap<String, String>,
    /// Kernels of the application to their functions' names.
    pub(super) kernels: HashMap<String, String>,
    /// Events to their commands.
    pub(super) events: HashMap<String, String>,
    pub(super) user_events: HashSet<String>,
    /// Queues that only the worker uses.
    pub(super) internal: HashSet<String>,
    /// Staging buffers of the worker.
    pub(super) staging: HashSet<String>,
    pub(super) sizes: HashMap<String, u64>,
    /// Wait lists of the worker's maps for writing, until the unmap.
    pub(super) mapped: HashMap<String, Vec<String>>,
    /// Contents that followed a creation: digests of the pieces by their offsets.
    pub(super) brought: BTreeMap<String, BTreeMap<u64, Digest>>,
    pub(super) counts: HashMap<&'static str, usize>,
}

impl Teller {
    pub(super) fn new(calls: &[Call], place: LogOwner) -> Self {
        let mut teller = Self {
            place,
            story: Story::default(),
            names: HashMap::new(),
            kernels: HashMap::new(),
            events: HashMap::new(),
            user_events: HashSet::new(),
            internal: HashSet::new(),
            staging: HashSet::new(),
            sizes: HashMap::new(),
            mapped: HashMap::new(),
            brought: BTreeMap::new(),
            counts: HashMap::new(),
        };
        if place == LogOwner::Node {
            teller.find_internals(calls);
        }
        teller
    }

    /// Finds the worker's own buffers and queues. Its buffers have a host-pointer flag, because the
    /// client does not forward the application's flags of this kind. Its queues first map such a buffer,
    /// or bring a whole buffer's contents.
    fn find_internals(&mut self, calls: &[Call]) {
        let mut used = HashSet::new();
        for call in calls {
            if call.name == "clCreateBuffer" {
                self.sizes.insert(call.result.clone(), call.number("size"));
                if call.number("flags") & ALLOC_HOST_PTR != 0 {
                    self.staging.insert(call.result.clone());
                }
            }
            let queue = call.argument("command_queue");
            if !call.name.starts_with("clEnqueue") || !used.insert(queue.to_owned()) {
                continue;
            }
            let memory = call.argument("buffer");
            let stages = call.name == "clEnqueueMapBuffer" && self.staging.contains(memory);
            let whole = self.sizes.get(memory) == Some(&call.number("size"));
            let for_write =
                call.name == "clEnqueueMapBuffer" && call.number("map_flags") == MAP_WRITE;
            let brings = whole && (for_write || call.name == "clEnqueueWriteBuffer");
            if stages || brings {
                self.internal.insert(queue.to_owned());
            }
        }
    }

    pub(super) fn finish(mut self) -> Story {
        for (memory, pieces) in std::mem::take(&mut self.brought) {
            let whole = pieces.into_values().reduce(Digest::followed_by);
            let told = whole.map_or(String::new(), |whole| whole.to_string());
            self.story.contents.insert(memory, told);
        }
        self.story.programs.sort();
        self.story.released.sort();
        self.story
    }

    pub(super) fn tell(&mut self, call: &Call) {
        let name = call.name.as_str();
        let aside = name.starts_with("clGet")
            || name.starts_with("clRetain")
            || [
                "clSetEventCallback",
                "clFlush",
                "clFinish",
                "clWaitForEvents",
                "clSetKernelArg",
                "clSetUserEventStatus",
                "clReleaseEvent",
            ]
            .contains(&name);
        if name == "clGetKernelInfo" && self.place == LogOwner::Node {
            // The worker queries only scratch kernels, never the application's kernels.
            self.kernels.remove(call.argument("kernel"));
        }
        if aside {
            return;
        }
        if name == "clCreateUserEvent" {
            self.user_events.insert(call.result.clone());
        } else if name.starts_with("clRelease") {
            self.release(call);
        } else if name.starts_with("clEnqueue") {
            self.command(call);
        } else if name.contains("Program") {
            self.program(call);
        } else if name == "clCreateKernel" {
            self.kernels
                .insert(call.result.clone(), unquoted(call.argument("kernel_name")));
        } else {
            self.creation(call);
        }
    }

    /// Returns the story's name of an application's object.
    pub(super) fn named(&self, name: &str) -> String {
        self.names
            .get(name)
            .cloned()
            .unwrap_or_else(|| format!("?{name}"))
    }

    /// Assigns the next name of a kind.
    fn adopt(&mut self, kind: &'static str, name: &str) -> String {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let own = format!("{kind}#{count}");
        self.names.insert(name.to_owned(), own.clone());
        own
    }

    fn creation(&mut self, call: &Call) {
        let access = |flags: u64| {
            if flags & ACCESS == 0 {
                READ_WRITE
            } else {
                flags & ACCESS
            }
        };
        let text = match call.name.as_str() {
            "clCreateContext" => {
                let own = self.adopt("context", &call.result);
                format!("{own}: devices={}", call.argument("devices"))
            }
            "clCreateCommandQueue" | "clCreateCommandQueueWithProperties" => {
                if self.internal.contains(&call.result) {
                    return;
                }
                let own = self.adopt("queue", &call.result);
                self.story.queues.push((own.clone(), Vec::new()));
                let properties = queue_properties(call.argument("properties"));
                format!(
                    "{own}: {} properties={properties:#x}",
                    call.argument("device")
                )
            }
            "clCreateBuffer" => {
                if self.staging.contains(&call.result) {
                    return;
                }
                let own = self.adopt("mem", &call.result);
                if !call.note("data").is_empty() {
                    let contents = call.note("data").to_owned();
                    self.story.contents.insert(own.clone(), contents);
                }
                let access = access(call.number("flags"));
                format!("{own}: size={} access={access}", call.number("size"))
            }
            "clCreateSubBuffer" => {
                let parent = self.named(call.argument("buffer"));
                let own = self.adopt("mem", &call.result);
                // A sub-buffer without access flags has its parent's.
                let access = call.number("flags") & ACCESS;
                let inherited = format!("{parent}: ");
                let made = self
                    .story
                    .made
                    .iter()
                    .find(|line| line.starts_with(&inherited));
                let inherited = made
                    .and_then(|line| line.rsplit("access=").next())
                    .map(number);
                let access = if access == 0 {
                    inherited.unwrap_or(0)
                } else {
                    access
                };
                format!(
                    "{own}: part {} of {parent} access={access}",
                    call.note("region")
                )
            }
            _ => format!("{call:?}"),
        };
        self.story.made.push(text);
    }

    fn program(&mut self, call: &Call) {
        let devices = match call.argument("device_list") {
            "null" => "[device#1]",
            list => list,
        };
        let options = options(call.argument("options"));
        // A site makes programs when they are first needed, so their order has no meaning. They are named
        // by their content instead.
        let made = match call.name.as_str() {
            "clCreateProgramWithSource" => format!("program(source {})", call.note("source")),
            "clCreateProgramWithIL" => format!("program(il {})", call.note("il")),
            "clCreateProgramWithBinary" => {
                let binaries = call.notes("binary").count();
                format!("program({binaries} binaries for {devices})")
            }
            "clCreateProgramWithBuiltInKernels" => {
                format!("program({} for {devices})", call.argument("kernel_names"))
            }
            "clLinkProgram" => {
                let inputs: Vec<_> = call
                    .list("input_programs")
                    .into_iter()
                    .map(|input| self.named(input))
                    .collect();
                format!(
                    "program(linked {options} for {devices} of {})",
                    inputs.join(" and ")
                )
            }
            "clCreateKernelsInProgram" => {
                if self.place == LogOwner::Native {
                    for note in call.notes("kernel") {
                        if let Some((kernel, name)) = note.split_once(':') {
                            self.kernels.insert(kernel.to_owned(), name.to_owned());
                        }
                    }
                }
                return;
            }
            verb => {
                let program = self.named(call.argument("program"));
                let headers = call
                    .list("input_headers")
                    .into_iter()
                    .map(|header| self.named(header));
                let headers: Vec<_> = headers.zip(call.notes("header")).collect();
                let line = format!("{verb} {program} for {devices} {options} {headers:?}");
                self.story.programs.push(line);
                return;
            }
        };
        self.names.insert(call.result.clone(), made.clone());
        self.story.programs.push(made);
    }

    fn release(&mut self, call: &Call) {
        let argument = ["memobj", "command_queue", "program", "kernel", "context"]
            .map(|name| call.argument(name))
            .concat();
        if let Some(kernel) = self.kernels.get(&argument) {
            self.story.released.push(format!("kernel {kernel}"));
        } else if let Some(name) = self
            .names
            .get(&argument)
            .filter(|name| !name.starts_with("context"))
        {
            self.story.released.push(name.clone());
        }
    }
}

fn unquoted(text: &str) -> String {
    text.trim_matches('"').to_owned()
}

/// Parses `0x2`, or the value of `CL_QUEUE_PROPERTIES` in a list.
fn queue_properties(text: &str) -> u64 {
    let pairs = elements(text)
        .into_iter()
        .filter_map(|pair| pair.split_once(':'));
    let mut listed = pairs
        .filter(|(name, _)| number(name) == 0x1093)
        .map(|(_, value)| number(value));
    listed.next_back().unwrap_or_else(|| number(text))
}

/// Returns build options without the one that the worker adds.
fn options(text: &str) -> String {
    match text {
        "null" | "" => "\"\"".to_owned(),
        text => text
            .replace(" -cl-kernel-arg-info", "")
            .replace("-cl-kernel-arg-info", ""),
    }
}
