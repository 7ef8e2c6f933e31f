//! What a log tells: the same calls told the same way, whoever made them.
//!
//! Objects are named by the order in which the application made them, commands by
//! their place in their queue. What [`PUT_ASIDE`](super::PUT_ASIDE) lists is left out
//! here and nowhere else. Invariant: a call that is not on that list, and is not known
//! here, is told word by word, so that it shows as a difference.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use super::bytes::{Digest, Region, Transfer};
use super::line::{Call, elements, number};

/// Whose log it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The application's own calls.
    Native,
    /// A worker's calls.
    Node,
}

const ALLOC_HOST_PTR: u64 = 1 << 4;
const ACCESS: u64 = 7;
const READ_WRITE: u64 = 1;
const MAP_READ: u64 = 1;
const MAP_WRITE: u64 = 2;

/// A log, told.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// Contexts, queues, buffers, in order.
    made: Vec<String>,
    /// Programs and what was done to them, sorted.
    programs: Vec<String>,
    /// Contents at creation, by buffer.
    contents: BTreeMap<String, String>,
    /// Each queue's commands, in order; the name of the queue first.
    queues: Vec<(String, Vec<Command>)>,
    /// Releases, sorted.
    released: Vec<String>,
}

/// A command of a queue.
#[derive(Debug)]
struct Command {
    text: String,
    waits: Vec<String>,
    /// What has become of a transfer in pieces.
    transfer: Option<Transfer>,
}

impl Story {
    /// Tells a log.
    pub(crate) fn of(calls: &[Call], place: Place) -> Self {
        let mut teller = Teller::new(calls, place);
        for call in calls {
            teller.tell(call);
        }
        teller.finish()
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.made {
            writeln!(f, "{line}")?;
        }
        for (memory, contents) in &self.contents {
            writeln!(f, "contents of {memory}: {contents}")?;
        }
        for line in &self.programs {
            writeln!(f, "{line}")?;
        }
        for (queue, commands) in &self.queues {
            for (number, command) in commands.iter().enumerate() {
                let (text, waits) = (&command.text, command.waits.join(","));
                writeln!(f, "{queue}[{number}]: {text} waits=[{waits}]")?;
            }
        }
        for line in &self.released {
            writeln!(f, "released {line}")?;
        }
        Ok(())
    }
}

struct Teller {
    place: Place,
    story: Story,
    /// Names in the log to names in the story; what is not here is none of the application's.
    names: HashMap<String, String>,
    /// Kernels of the application to their functions' names.
    kernels: HashMap<String, String>,
    /// Events to the commands they stand for.
    events: HashMap<String, String>,
    user_events: HashSet<String>,
    /// Queues that only the worker uses.
    internal: HashSet<String>,
    /// Staging buffers of the worker.
    staging: HashSet<String>,
    sizes: HashMap<String, u64>,
    /// Wait lists of the worker's maps for writing, until the unmap.
    mapped: HashMap<String, Vec<String>>,
    counts: HashMap<&'static str, usize>,
}

impl Teller {
    fn new(calls: &[Call], place: Place) -> Self {
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
            counts: HashMap::new(),
        };
        if place == Place::Node {
            teller.find_internals(calls);
        }
        teller
    }

    /// The worker's own buffers are those with a host-pointer flag, for the client keeps these
    /// flags of the application's. Its queues first map such a buffer, or bring a whole
    /// buffer's contents.
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

    fn finish(mut self) -> Story {
        self.story.programs.sort();
        self.story.released.sort();
        self.story
    }

    fn tell(&mut self, call: &Call) {
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

    /// The story's name of something of the application's.
    fn named(&self, name: &str) -> String {
        self.names
            .get(name)
            .cloned()
            .unwrap_or_else(|| format!("?{name}"))
    }

    /// Gives the next name of a kind.
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
                // With none of its own it has its parent's.
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
        // Programs are made on a site when they are first needed: their order says nothing,
        // so they are named by what they are.
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
                if self.place == Place::Native {
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

    /// The wait list, told, without the application's user events.
    fn waits(&self, call: &Call) -> Vec<String> {
        let list = match call.list("event_wait_list") {
            list if list.is_empty() => call.list("event_list"),
            list => list,
        };
        let list = list
            .into_iter()
            .filter(|event| !self.user_events.contains(*event));
        list.map(|event| {
            self.events
                .get(event)
                .cloned()
                .unwrap_or_else(|| format!("?{event}"))
        })
        .collect()
    }

    fn command(&mut self, call: &Call) {
        let queue = call.argument("command_queue").to_owned();
        if self.internal.contains(&queue) {
            self.bring_contents(call);
            return;
        }
        let verb = call.name.trim_start_matches("clEnqueue");
        let waits = self.waits(call);
        match (verb, self.place) {
            ("MapBuffer", _) => self.map(call, waits),
            ("UnmapMemObject", _) => self.unmap(call, waits),
            ("MarkerWithWaitList", Place::Node) if self.closes_transfer(call) => {
                let last = self.events.get(call.list("event_wait_list")[0]).cloned();
                self.events
                    .insert(call.argument("event").to_owned(), last.unwrap_or_default());
            }
            _ => {
                let (text, transfer) = self.told(verb, call);
                self.push(call, text, waits, transfer);
            }
        }
    }

    /// Whether a marker waits for the pieces of the transfer before it, and nothing else.
    fn closes_transfer(&self, call: &Call) -> bool {
        let list = call.list("event_wait_list");
        let Some(commands) = self.commands(call.argument("command_queue")) else {
            return false;
        };
        let last = commands.len().checked_sub(1);
        let Some(last) = last.filter(|last| commands[*last].transfer.is_some()) else {
            return false;
        };
        let name = format!("{}[{last}]", self.named(call.argument("command_queue")));
        !list.is_empty()
            && list
                .iter()
                .all(|event| self.events.get(*event) == Some(&name))
    }

    fn commands(&self, queue: &str) -> Option<&Vec<Command>> {
        let name = self.names.get(queue)?;
        let found = self.story.queues.iter().find(|(known, _)| known == name);
        found.map(|(_, commands)| commands)
    }

    /// Adds a command to its queue, or a piece to the transfer before it.
    fn push(&mut self, call: &Call, text: String, waits: Vec<String>, transfer: Option<Transfer>) {
        let name = self.named(call.argument("command_queue"));
        let place = self.place;
        let Some((_, commands)) = self
            .story
            .queues
            .iter_mut()
            .find(|(known, _)| *known == name)
        else {
            self.story
                .made
                .push(format!("on an unknown queue: {call:?}"));
            return;
        };
        let whole = match (commands.last(), &transfer) {
            (Some(last), Some(piece)) if place == Place::Node && waits.is_empty() => last
                .transfer
                .as_ref()
                .and_then(|before| before.joined(piece)),
            _ => None,
        };
        if let (Some(whole), Some(last)) = (whole, commands.last_mut()) {
            last.text = whole.to_string();
            last.transfer = Some(whole);
        } else {
            commands.push(Command {
                text,
                waits,
                transfer,
            });
        }
        let number = commands.len() - 1;
        self.events.insert(
            call.argument("event").to_owned(),
            format!("{name}[{number}]"),
        );
    }

    /// On a queue of the worker's: large contents at creation.
    fn bring_contents(&mut self, call: &Call) {
        let memory = self.named(&[call.argument("buffer"), call.argument("memobj")].concat());
        let Some(piece) = Digest::parse(call.note("data")) else {
            return;
        };
        let before = self
            .story
            .contents
            .get(&memory)
            .and_then(|text| Digest::parse(text));
        let whole = before.map_or(piece, |before| before.followed_by(piece));
        self.story.contents.insert(memory, whole.to_string());
    }

    fn map(&mut self, call: &Call, waits: Vec<String>) {
        let flags = call.number("map_flags");
        if self.place == Place::Node && flags & MAP_WRITE != 0 {
            self.mapped
                .insert(call.argument("buffer").to_owned(), waits);
        } else if flags & (MAP_READ | MAP_WRITE) != 0 {
            let read = self.transfer(
                "read",
                call.argument("buffer"),
                call.number("offset"),
                call.number("size"),
                "",
            );
            self.push(call, read.to_string(), waits, Some(read));
        } else {
            self.push(call, "marker".to_owned(), waits, None);
        }
    }

    fn unmap(&mut self, call: &Call, mut waits: Vec<String>) {
        let memory = call.argument("memobj");
        if call.note("data").is_empty() {
            // The worker's unmap after reading from the mapping is a part of the read.
            if self.place == Place::Native {
                self.push(call, "marker".to_owned(), waits, None);
            }
            return;
        }
        waits.extend(self.mapped.remove(memory).unwrap_or_default());
        let region = call.note("region").split(' ').next().unwrap_or_default();
        let (offset, size) = region.split_once('+').unwrap_or_default();
        let write = self.transfer(
            "write",
            memory,
            number(offset),
            number(size),
            call.note("data"),
        );
        self.push(call, write.to_string(), waits, Some(write));
    }

    fn transfer(
        &self,
        verb: &'static str,
        memory: &str,
        offset: u64,
        size: u64,
        digest: &str,
    ) -> Transfer {
        Transfer {
            verb,
            memory: self.named(memory),
            offset,
            size,
            digest: Digest::parse(digest),
        }
    }

    /// A command in the story's words; a transfer of a plain range also as such.
    fn told(&self, verb: &str, call: &Call) -> (String, Option<Transfer>) {
        let buffer = call.argument("buffer");
        let (offset, size) = (call.number("offset"), call.number("size"));
        let plain = match verb {
            "ReadBuffer" => self.transfer("read", buffer, offset, size, ""),
            "WriteBuffer" => self.transfer("write", buffer, offset, size, call.note("data")),
            "ReadBufferRect" | "WriteBufferRect" => {
                let region = Region::of(call, "buffer");
                let (verb, digest) = match verb {
                    "ReadBufferRect" => ("read", ""),
                    _ => ("write", call.note("data")),
                };
                if let Some((offset, size)) = region.plain() {
                    self.transfer(verb, buffer, offset, size, digest)
                } else {
                    return (
                        format!("{verb} {} {region} {digest}", self.named(buffer)),
                        None,
                    );
                }
            }
            _ => return (self.told_otherwise(verb, call), None),
        };
        (plain.to_string(), Some(plain))
    }

    fn told_otherwise(&self, verb: &str, call: &Call) -> String {
        let argument = |name: &str| call.argument(name);
        let memory = |name: &str| self.named(call.argument(name));
        match verb {
            "CopyBuffer" => {
                let (from, to) = (argument("src_offset"), argument("dst_offset"));
                let size = argument("size");
                format!(
                    "copy {size} bytes: {}+{from} to {}+{to}",
                    memory("src_buffer"),
                    memory("dst_buffer")
                )
            }
            "CopyBufferRect" => {
                let (from, to) = (Region::of(call, "src"), Region::of(call, "dst"));
                format!(
                    "copy {} {from} to {} {to}",
                    memory("src_buffer"),
                    memory("dst_buffer")
                )
            }
            "FillBuffer" => {
                let (at, size) = (argument("offset"), argument("size"));
                format!(
                    "fill {} {at}+{size} with {}",
                    memory("buffer"),
                    call.note("pattern")
                )
            }
            "MigrateMemObjects" => {
                let objects: Vec<_> = call
                    .list("mem_objects")
                    .into_iter()
                    .map(|name| self.named(name))
                    .collect();
                format!("migrate {} flags={}", objects.join(","), argument("flags"))
            }
            "NDRangeKernel" | "Task" => self.launch(verb, call),
            "Marker" | "MarkerWithWaitList" => "marker".to_owned(),
            "Barrier" | "BarrierWithWaitList" | "WaitForEvents" => "barrier".to_owned(),
            _ => format!("{call:?}"),
        }
    }

    fn launch(&self, verb: &str, call: &Call) -> String {
        let kernel = call.argument("kernel");
        let kernel = self
            .kernels
            .get(kernel)
            .map_or("a kernel of the worker's", String::as_str);
        let values = elements(call.note("args")).into_iter();
        let values: Vec<_> = values
            .map(|value| {
                if value.contains('#') {
                    self.named(value)
                } else {
                    value.to_owned()
                }
            })
            .collect();
        let sizes = if verb == "Task" {
            "[1] at null by [1]".to_owned()
        } else {
            let [global, offset, local] =
                ["global_work_size", "global_work_offset", "local_work_size"]
                    .map(|name| call.argument(name));
            format!("{global} at {offset} by {local}")
        };
        format!("launch {kernel}({}) {sizes}", values.join(", "))
    }
}

fn unquoted(text: &str) -> String {
    text.trim_matches('"').to_owned()
}

/// `0x2`, or the value of `CL_QUEUE_PROPERTIES` in a list.
fn queue_properties(text: &str) -> u64 {
    let pairs = elements(text)
        .into_iter()
        .filter_map(|pair| pair.split_once(':'));
    let mut listed = pairs
        .filter(|(name, _)| number(name) == 0x1093)
        .map(|(_, value)| number(value));
    listed.next_back().unwrap_or_else(|| number(text))
}

/// Options without what the worker adds.
fn options(text: &str) -> String {
    match text {
        "null" | "" => "\"\"".to_owned(),
        text => text
            .replace(" -cl-kernel-arg-info", "")
            .replace("-cl-kernel-arg-info", ""),
    }
}
