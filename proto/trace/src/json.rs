//! Writes a trace in Chrome's format (JSON), from what [`read`](crate::read) returns.
//!
//! Chrome's format knows processes and threads only, so each track is a thread with a number of its own.
//! Invariant: moments keep their nanoseconds, as thousandths of the format's microseconds.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use crate::format::Kind;
use crate::read::{Contents, Event, Slice};
use crate::timeline::TrackKind;

/// Where a track is shown: a process, and a thread in it.
#[derive(Clone, Copy)]
struct Shown {
    process: u32,
    thread: u64,
}

/// Writes the contents of a trace.
///
/// # Errors
/// Those of `to`.
pub fn write(contents: &Contents, to: &mut impl Write) -> io::Result<()> {
    let shown = places(contents);
    let mut lines = Lines { to, count: 0 };
    lines
        .to
        .write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut tracks: Vec<_> = contents.tracks.iter().collect();
    tracks.sort_unstable_by_key(|(number, _)| **number);
    for (number, track) in tracks {
        let Shown { process, thread } = place(&shown, *number);
        let kind = match track.kind {
            TrackKind::Process { .. } => "process_name",
            _ => "thread_name",
        };
        lines.put(format_args!(
            "{{\"ph\":\"M\",\"name\":\"{kind}\",\"pid\":{process},\"tid\":{thread},\"args\":{{\"name\":{}}}}}",
            text(&track.name)
        ))?;
    }
    for slice in contents.slices() {
        lines.put_slice(&slice, place(&shown, slice.begin.track))?;
    }
    lines.to.write_all(b"\n]}\n")
}

fn place(shown: &HashMap<u64, Shown>, track: u64) -> Shown {
    let nowhere = Shown {
        process: 0,
        thread: 0,
    };
    shown.get(&track).copied().unwrap_or(nowhere)
}

fn places(contents: &Contents) -> HashMap<u64, Shown> {
    let process_of = |track: u64| {
        let mut at = contents.tracks.get(&track);
        // A chain of parents that is longer is a loop.
        for _ in 0..8 {
            match at?.kind {
                TrackKind::Process { id } | TrackKind::Thread { process: id, .. } => {
                    return Some(id);
                }
                TrackKind::Plain => at = contents.tracks.get(&at?.parent?),
            }
        }
        None
    };
    let place = |(number, of): (&u64, &crate::timeline::Track)| {
        let thread = match of.kind {
            TrackKind::Process { id } | TrackKind::Thread { id, .. } => id.into(),
            // Above the ids of threads.
            TrackKind::Plain => (1 << 32) | (number & 0xff_ffff),
        };
        let process = process_of(*number).unwrap_or(0);
        (*number, Shown { process, thread })
    };
    contents.tracks.iter().map(place).collect()
}

struct Lines<'a, W> {
    to: &'a mut W,
    count: u64,
}

impl<W: Write> Lines<'_, W> {
    fn put(&mut self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        let comma = if self.count > 0 { "," } else { "" };
        self.count += 1;
        write!(self.to, "{comma}\n{line}")
    }

    fn put_slice(&mut self, slice: &Slice<'_>, Shown { process, thread }: Shown) -> io::Result<()> {
        let Event {
            at,
            kind,
            name,
            category,
            arrows,
            arrow_ends,
            ..
        } = slice.begin;
        let (name, category, at) = (text(name), text(category), micros(*at));
        let whole = match kind {
            Kind::Instant => "\"ph\":\"i\",\"s\":\"t\"".to_owned(),
            _ => {
                let length = slice.end.saturating_sub(slice.begin.at);
                format!("\"ph\":\"X\",\"dur\":{}", micros(length))
            }
        };
        let place = format!("\"pid\":{process},\"tid\":{thread},\"ts\":{at}");
        let values = values(slice.begin);
        self.put(format_args!(
            "{{{whole},{place},\"name\":{name},\"cat\":{category},\"args\":{{{values}}}}}"
        ))?;
        let begins = arrows.iter().map(|id| ("s", id));
        let ends = arrow_ends.iter().map(|id| ("f", id));
        for (phase, id) in begins.chain(ends) {
            self.put(format_args!(
                "{{\"ph\":\"{phase}\",\"bp\":\"e\",{place},\"name\":\"arrow\",\"cat\":\"arrow\",\"id\":\"{id:#x}\"}}"
            ))?;
        }
        Ok(())
    }
}

fn values(event: &Event) -> String {
    let mut out = String::new();
    for (name, value) in &event.values {
        let comma = if out.is_empty() { "" } else { "," };
        // A text, because numbers beyond 2^53 lose digits in JSON.
        let _ = write!(out, "{comma}{}:{}", text(name), text(value));
    }
    out
}

fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

// A JSON string.
fn text(of: &str) -> String {
    serde_json::Value::from(of).to_string()
}
