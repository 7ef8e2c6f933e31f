//! Tells the commands of a log: transfers put together, rectangles and launches in one form.
//!
//! Invariant: a command on a queue of the application is told exactly once.

use super::bytes::{Digest, Region, Transfer};
use super::line::{Call, elements, number};
use super::story::{Command, Place};
use super::teller::Teller;

const MAP_READ: u64 = 1;
const MAP_WRITE: u64 = 2;

impl Teller {
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

    pub(super) fn command(&mut self, call: &Call) {
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
