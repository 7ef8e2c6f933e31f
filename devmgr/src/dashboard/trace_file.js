// Reads a trace: the part of Perfetto's binary format that `causeway trace` writes. Nothing here touches the page.
//
// Packets and fields of other kinds are skipped, as `proto/trace/src/read.rs` does. No bytes make this fail: a damaged
// file is read as far as it can be, and `problems` says what is missing. Text stays text.
"use strict";

const traceFile = (() => {
  const LARGEST = 256 * 2 ** 20; // bytes of a file
  const TURN = 40; // milliseconds after which the page gets a turn
  const CLEARED = 1; // in a packet's flags: its sequence has no names any more
  const [BEGIN, END, INSTANT] = [1, 2, 3];
  const COMPLETE = "The trace is complete"; // what the library states in a file that lacks nothing
  const STATEMENTS = 20; // of different texts, which the page shows
  const TIMES = ["queued", "submitted", "completed", "end"]; // values that are moments
  const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  // Fields of messages by number: name, wire type, and whether there may be several.
  const [VARINT, FIXED64, BYTES, FIXED32] = [0, 1, 2, 5];
  const number = (name) => ({ name, type: VARINT });
  const text = (name) => ({ name, type: BYTES, text: true });
  const message = (name, shape) => ({ name, type: BYTES, shape });
  const several = (of) => ({ ...of, several: true });
  const NAME = { 1: number("id"), 2: text("name") };
  const VALUE = { 1: number("id"), 3: number("number"), 4: number("signed"), 6: text("text"), 10: text("name") };
  const EVENT = {
    3: several(number("categories")), 4: several(message("values", VALUE)), 9: number("kind"), 10: number("nameId"),
    11: number("track"), 22: several(text("category")), 23: text("name"),
    47: several({ name: "arrows", type: FIXED64 }), 48: several({ name: "arrowEnds", type: FIXED64 }),
  };
  const NAMES = {
    1: several(message("categories", NAME)), 2: several(message("events", NAME)), 3: several(message("values", NAME)),
  };
  const PROCESS = { 1: number("pid"), 6: text("name") };
  const THREAD = { 1: number("pid"), 2: number("tid"), 5: text("name") };
  const TRACK = {
    1: number("id"), 2: text("name"), 3: message("process", PROCESS), 4: message("thread", THREAD), 5: number("parent"),
  };
  const PACKET = {
    8: number("time"), 10: number("sequence"), 11: message("event", EVENT), 12: message("names", NAMES),
    13: number("flags"), 60: message("track", TRACK),
  };

  class Damage extends Error {}
  class Truncation extends Error {}

  function decoded(bytes) {
    try {
      return utf8.decode(bytes);
    } catch {
      throw new Damage();
    }
  }

  // A place in the bytes. Numbers of 64 bits are two halves, because a number of JavaScript has 53.
  class Reader {
    constructor(bytes) {
      [this.bytes, this.view, this.at] = [bytes, new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), 0];
      [this.low, this.high] = [0, 0];
    }

    varint(end) {
      let [low, high] = [0, 0];
      for (let bits = 0; bits < 70; bits += 7) {
        if (this.at >= end) throw new Truncation();
        const byte = this.bytes[this.at++];
        const part = byte & 0x7f;
        if (bits < 28) low |= part << bits;
        else if (bits === 28) [low, high] = [low | (part << 28), part >>> 4];
        else high |= part << (bits - 32);
        if (byte < 0x80) {
          if (bits === 63 && byte > 1) throw new Damage();
          [this.low, this.high] = [low >>> 0, high >>> 0];
          return;
        }
      }
      throw new Damage();
    }

    // Reads the key of a field, and for bytes their length. Returns the field's number, and its end in `end`.
    key(end) {
      this.varint(end);
      const [number, type] = [this.low >>> 3, this.low & 7];
      if (this.high || !number || ![VARINT, FIXED64, BYTES, FIXED32].includes(type)) throw new Damage();
      this.type = type;
      if (type === VARINT) return number;
      if (type === BYTES) this.varint(end);
      const length = type === BYTES ? this.high * 2 ** 32 + this.low : type === FIXED64 ? 8 : 4;
      if (length > end - this.at) throw new Truncation();
      this.end = this.at + length;
      return number;
    }

    message(end, shape) {
      const of = {};
      while (this.at < end) {
        const field = shape[this.key(end)];
        if (!field) {
          if (this.type === VARINT) this.varint(end);
          else this.at = this.end;
        } else if (field.type === this.type) {
          const value = this.value(field, this.type === VARINT ? end : this.end);
          if (field.several) (of[field.name] ??= []).push(value);
          else of[field.name] = value;
        } else if (field.several && this.type === BYTES) {
          const list = this.end;
          while (this.at < list) {
            if (field.type === FIXED64 && list - this.at < 8) throw new Truncation();
            (of[field.name] ??= []).push(this.value(field, field.type === FIXED64 ? this.at + 8 : list));
          }
        } else throw new Damage();
      }
      return of;
    }

    value(field, end) {
      if (field.type === VARINT) {
        this.varint(end);
        return [this.high, this.low];
      }
      const from = this.at;
      if (field.shape) return this.message(end, field.shape);
      this.at = end;
      if (field.type === FIXED64) return this.view.getBigUint64(from, true);
      return decoded(this.bytes.subarray(from, end));
    }
  }

  // The names of a sequence, from one clearing to the next.
  const noNames = () => ({ categories: new Map(), events: new Map(), values: new Map() });
  const wide = ([high, low]) => (high < 2 ** 21 ? high * 2 ** 32 + low : (BigInt(high) << 32n) | BigInt(low));
  const named = (names, id) => (id ? names.get(wide(id)) : undefined);

  class Trace {
    constructor(bytes) {
      this.bytes = bytes;
      this.reader = new Reader(bytes);
      // One entry a track: name, parent and kind, in the order of their first packets.
      this.tracks = [];
      this.places = new Map();
      // One entry a slice. `end` is NaN while the slice is open. `from` is the place of its packet, for the tooltip.
      [this.track, this.begin, this.end, this.depth, this.name, this.category] = [[], [], [], [], [], []];
      [this.from, this.names] = [[], []];
      [this.count, this.problems, this.unreadable, this.halves] = [0, [], 0, 0];
      [this.sequences, this.open, this.starts, this.stops] = [new Map(), [], new Map(), []];
    }

    // The index of a track. Its number is made of two halves, of which the higher one is that of few processes.
    place([high, low]) {
      let lower = this.places.get(high);
      if (!lower) this.places.set(high, (lower = new Map()));
      let place = lower.get(low);
      if (place === undefined) {
        place = this.tracks.push({ id: [high, low], name: "", parent: null, kind: "plain" }) - 1;
        lower.set(low, place);
        this.open.push([]);
      }
      return place;
    }

    // Nanoseconds since the first moment that was read, which may be later than others.
    moment([high, low]) {
      this.origin ??= [high, low];
      return (high - this.origin[0]) * 2 ** 32 + (low - this.origin[1]);
    }

    take(packet, from) {
      const sequence = packet.sequence?.[1] ?? 0;
      if (!this.sequences.has(sequence) || (packet.flags?.[1] ?? 0) & CLEARED) this.sequences.set(sequence, noNames());
      const names = this.sequences.get(sequence);
      for (const [kind, list] of Object.entries(packet.names ?? {})) {
        for (const of of list) if (of.id && of.name !== undefined) names[kind].set(wide(of.id), of.name);
      }
      if (packet.track?.id) this.describe(packet.track);
      if (packet.event?.track && packet.event.kind && packet.time) this.happen(packet, names, from);
    }

    describe(track) {
      const place = this.tracks[this.place(track.id)];
      const kind = track.process ? "process" : track.thread ? "thread" : "plain";
      const of = track.process ?? track.thread ?? track;
      place.kind = kind;
      place.name = of.name ?? "";
      place.number = of.tid?.[1] ?? of.pid?.[1];
      place.parent = track.parent ? this.place(track.parent) : null;
    }

    happen({ event, time }, names, from) {
      const track = this.place(event.track);
      const [open, at] = [this.open[track], this.moment(time)];
      const kind = event.kind[1];
      if (kind === END) {
        const slice = open.pop();
        if (slice === undefined) this.halves += 1;
        else [this.end[slice], this.count] = [at, this.count + 1];
        return;
      }
      if (kind !== BEGIN && kind !== INSTANT) return;
      const slice = this.begin.length;
      this.track.push(track);
      this.begin.push(at);
      this.end.push(kind === BEGIN ? NaN : at);
      this.depth.push(open.length);
      this.name.push(event.name ?? named(names.events, event.nameId) ?? "");
      this.category.push(named(names.categories, event.categories?.[0]) ?? event.category?.[0] ?? "");
      this.from.push(from);
      this.names.push(names.values);
      if (kind === BEGIN) open.push(slice);
      else this.count += 1;
      for (const arrow of event.arrows ?? []) this.starts.set(arrow, slice);
      for (const arrow of event.arrowEnds ?? []) this.stops.push([arrow, slice]);
    }

    // Reads packets until the time is over. Returns whether there are more.
    step() {
      const [{ reader, bytes }, until] = [this, performance.now() + TURN];
      for (let packets = 0; reader.at < bytes.length; packets += 1) {
        if (packets % 512 === 511 && performance.now() > until) return true;
        const from = reader.at;
        try {
          const number = reader.key(bytes.length);
          if (number !== 1 || reader.type !== BYTES) {
            if (reader.type === VARINT) reader.varint(bytes.length);
            else reader.at = reader.end;
            continue;
          }
        } catch (error) {
          if (!(error instanceof Damage || error instanceof Truncation)) throw error;
          const what = error instanceof Damage ? "is damaged at" : "is truncated: it ends inside of the packet at";
          this.problems.push(`The file ${what} byte ${from} of ${bytes.length}. What follows is missing.`);
          return false;
        }
        const end = reader.end;
        try {
          this.take(reader.message(end, PACKET), from);
        } catch (error) {
          if (!(error instanceof Damage || error instanceof Truncation)) throw error;
          this.unreadable += 1;
        }
        reader.at = end;
      }
      return false;
    }

    // Joins what belongs together, once everything is read.
    finish() {
      for (const open of this.open) this.halves += open.length;
      if (this.unreadable) this.problems.push(`The file is damaged: packets that cannot be read: ${this.unreadable}.`);
      if (this.halves) this.problems.push(`Slices without a begin or an end, which are not drawn: ${this.halves}.`);
      let [first, last] = [Infinity, -Infinity];
      for (let slice = 0; slice < this.begin.length; slice += 1) {
        if (Number.isNaN(this.end[slice])) continue;
        first = Math.min(first, this.begin[slice]);
        last = Math.max(last, this.end[slice]);
      }
      for (let slice = 0; slice < this.begin.length; slice += 1) {
        this.begin[slice] -= first;
        this.end[slice] -= first;
      }
      [this.first, this.length] = [first, Math.max(0, last - first)];
      const isWhole = (slice) => slice !== undefined && !Number.isNaN(this.end[slice]);
      this.arrows = this.stops.map(([arrow, to]) => [this.starts.get(arrow), to]);
      this.arrows = this.arrows.filter(([from, to]) => isWhole(from) && isWhole(to));
      this.starts = this.stops = this.open = this.sequences = null;
      this.takeStatements();
      if (!this.count) this.problems.unshift("No slice of a trace is in this file. `causeway trace` writes such files.");
    }

    // Takes over what the library states about each process: what its trace lacks.
    takeStatements() {
      const texts = new Map();
      for (let slice = 0; slice < this.begin.length; slice += 1) {
        if (this.category[slice] !== "trace" || this.name[slice] === COMPLETE || Number.isNaN(this.end[slice])) continue;
        texts.set(this.name[slice], (texts.get(this.name[slice]) ?? 0) + 1);
      }
      const list = [...texts].map(([text, number]) => (number > 1 ? `${text} (${number} processes).` : `${text}.`));
      this.problems.push(...list.slice(0, STATEMENTS));
      if (list.length > STATEMENTS) this.problems.push(`Further statements of this kind: ${list.length - STATEMENTS}.`);
    }

    // Further values of a slice, with their names. Moments count from the beginning of the trace.
    values(slice) {
      this.reader.at = this.from[slice];
      this.reader.key(this.bytes.length);
      const { event } = this.reader.message(this.reader.end, PACKET);
      return (event.values ?? []).map((of) => {
        const name = of.name ?? named(this.names[slice], of.id) ?? "";
        if (of.number && TIMES.includes(name)) return { name, moment: this.moment(of.number) - this.first };
        if (of.number) return { name, text: String(wide(of.number)) };
        if (!of.signed) return { name, text: of.text ?? "" };
        const [high, low] = of.signed;
        return { name, text: String(BigInt.asIntN(64, (BigInt(high) << 32n) | BigInt(low))) };
      });
    }
  }

  // Reads a whole file. `progress` gets the part that is done, from 0 to 1. Returns null once it returns false.
  async function read(bytes, progress = () => true) {
    const trace = new Trace(bytes);
    while (trace.step()) {
      if (!progress(trace.reader.at / bytes.length)) return null;
      await new Promise((resolve) => setTimeout(resolve));
    }
    trace.finish();
    return trace;
  }

  return { read, LARGEST };
})();
