//! Converts the commands of a log: joins the pieces of transfers, and gives rectangles and launches one form.
//!
//! Invariant: each command on a queue of the application appears in the story exactly once.

use super::bytes::{Digest, Region, Transfer};
use super::line::{Call, elements, number};
use super::story::{Command, LogOwner};
use super::teller::Teller;

const MAP_READ: u64 = 1;
const MAP_WRITE: u64 = 2;

/// The transfers of commands.
fn pieces(commands: &[Command]) -> Vec<&Transfer> {
    let pieces = commands.iter().map(|command| command.transfer.as_ref());
    pieces.flatten().collect()
}

impl Teller {
    /// Returns the wait list in the story's names, without the application's user events.
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
            ("MarkerWithWaitList", LogOwner::Node) if self.closed_pieces(call).is_some() => {
                self.close_transfer(call);
            }
            _ => {
                let (text, transfer) = self.told(verb, call);
                self.push(call, text, waits, transfer);
            }
        }
    }

    /// If a marker waits only for pieces of a transfer at the end of its queue, returns the index of the
    /// first piece. The pieces may come in any order; together they form a range.
    fn closed_pieces(&self, call: &Call) -> Option<usize> {
        let queue = call.argument("command_queue");
        let commands = self.commands(queue)?;
        let last = commands.last()?.transfer.as_ref()?;
        let of_it = |command: &&Command| {
            let transfer = command.transfer.as_ref();
            transfer.is_some_and(|piece| !piece.whole && piece.is_of(last))
        };
        let run = commands.iter().rev().take_while(of_it).count();
        let first = (commands.len() - run..commands.len())
            .find(|&first| Transfer::joined(pieces(&commands[first..])).is_some())?;
        let name = self.named(queue);
        let closed: Vec<_> = (first..commands.len())
            .map(|number| format!("{name}[{number}]"))
            .collect();
        let list = call.list("event_wait_list");
        let only_pieces = list.iter().all(|event| {
            let waited = self.events.get(*event);
            waited.is_some_and(|waited| closed.contains(waited))
        });
        (only_pieces && !list.is_empty()).then_some(first)
    }

    /// Joins the pieces that a marker closes. The marker's event then stands for all of them.
    fn close_transfer(&mut self, call: &Call) {
        let queue = call.argument("command_queue");
        let (Some(first), name) = (self.closed_pieces(call), self.named(queue)) else {
            return;
        };
        let queues = &mut self.story.queues;
        let Some((_, commands)) = queues.iter_mut().find(|(known, _)| *known == name) else {
            return;
        };
        let own = format!("{name}[{first}]");
        let closed: Vec<Command> = commands.drain(first..).collect();
        for event in self.events.values_mut() {
            if (first..first + closed.len()).any(|at| *event == format!("{name}[{at}]")) {
                event.clone_from(&own);
            }
        }
        self.events.insert(call.argument("event").to_owned(), own);
        let transfer = Transfer::joined(pieces(&closed));
        commands.push(Command {
            text: transfer
                .as_ref()
                .map(Transfer::to_string)
                .unwrap_or_default(),
            waits: closed.into_iter().flat_map(|piece| piece.waits).collect(),
            transfer,
        });
    }

    fn commands(&self, queue: &str) -> Option<&Vec<Command>> {
        let name = self.names.get(queue)?;
        let found = self.story.queues.iter().find(|(known, _)| known == name);
        found.map(|(_, commands)| commands)
    }

    /// Adds a command to its queue.
    fn push(&mut self, call: &Call, text: String, waits: Vec<String>, transfer: Option<Transfer>) {
        let name = self.named(call.argument("command_queue"));
        let queues = &mut self.story.queues;
        let Some((_, commands)) = queues.iter_mut().find(|(known, _)| *known == name) else {
            let line = format!("on an unknown queue: {call:?}");
            self.story.made.push(line);
            return;
        };
        let number = commands.len();
        commands.push(Command {
            text,
            waits,
            transfer,
        });
        self.events.insert(
            call.argument("event").to_owned(),
            format!("{name}[{number}]"),
        );
    }

    /// Handles a command on one of the worker's own queues: large contents at creation.
    fn bring_contents(&mut self, call: &Call) {
        let memory = self.named(&[call.argument("buffer"), call.argument("memobj")].concat());
        let Some(piece) = Digest::parse(call.note("data")) else {
            return;
        };
        let mapped = call.note("region").split('+').next().unwrap_or_default();
        let offset = call.number("offset") + number(mapped);
        let brought = self.brought.entry(memory).or_default();
        brought.insert(offset, piece);
    }

    fn map(&mut self, call: &Call, waits: Vec<String>) {
        let flags = call.number("map_flags");
        if self.place == LogOwner::Node && flags & MAP_WRITE != 0 {
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
            // After a read from a mapping, the worker's unmap is a part of the read.
            if self.place == LogOwner::Native {
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
            whole: false,
        }
    }

    /// Returns a command in the story's form. A transfer of a plain range is returned as such, too.
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
