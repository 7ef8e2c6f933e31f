// Draws a trace: tracks below each other, slices along the time, and arrows between slices.
//
// The file stays in the browser. Text reaches the page by `textContent` and the canvas only. What is drawn depends on
// what is visible: slices that share a pixel are one mark.
"use strict";

const traceView = (() => {
  const [ROW, HEAD, LEAST] = [18, 24, 2]; // pixels: a row, the scale above, the width from which a slice has a shape
  const ARROWS = 1000; // in sight, from which only those of the chosen slice are drawn
  const ZOOM = 1.5; // of one step
  const HUES = [212, 150, 32, 280, 190, 95, 340, 55];
  const COLOURS = {
    call: "hsl(212 60% 72%)", wait: "hsl(212 20% 84%)", waiting: "hsl(0 0% 80%)", wire: "hsl(190 45% 70%)",
    transfer: "hsl(32 75% 70%)", build: "hsl(280 40% 78%)", trace: "hsl(0 75% 72%)",
  };
  const at = (id) => document.getElementById(id);
  const make = (name, text) => Object.assign(document.createElement(name), { textContent: text });

  const state = { trace: null, file: "", rows: [], rowOf: [], from: 0, per: 1, top: 0, chosen: -1, under: -1, drag: null, mouse: [], drawn: 0 };

  // A duration with all its nanoseconds.
  function time(nanoseconds) {
    const [unit, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([, size]) => Math.abs(nanoseconds) >= size) ?? ["ns", 1];
    const digits = Math.log10(size);
    const [whole, rest] = [Math.trunc(nanoseconds / size), Math.abs(nanoseconds % size)];
    const fraction = digits ? String(rest).padStart(digits, "0").replace(/0+$/, "") : "";
    return `${nanoseconds < 0 && whole === 0 ? "-" : ""}${whole}${fraction ? `.${fraction}` : ""} ${unit}`;
  }

  // The first slice of a row, in the order of begins, that ends at a moment or later. Others in its row may lie inside
  // of it, as a command that failed does, so the search is by the latest end up to each place.
  function firstAfter({ latest }, moment) {
    let [low, high] = [0, latest.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (latest[middle] < moment) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // Rows: headings, and for each track one row a depth. Tracks of one name and parent stand together.
  function rowsOf(trace) {
    const lists = trace.tracks.map(() => []);
    for (let slice = 0; slice < trace.begin.length; slice += 1) {
      if (Number.isNaN(trace.end[slice])) continue;
      (lists[trace.track[slice]][trace.depth[slice]] ??= []).push(slice);
    }
    const children = new Map();
    trace.tracks.forEach((of, track) => {
      const parent = of.parent === track ? null : of.parent;
      if (!children.has(parent)) children.set(parent, []);
      children.get(parent).push(track);
    });
    const rank = { process: 0, thread: 1, plain: 2 };
    const before = (a, b) => {
      const [one, two] = [trace.tracks[a], trace.tracks[b]];
      return rank[one.kind] - rank[two.kind] || one.id[0] - two.id[0] || one.id[1] - two.id[1];
    };
    const [rows, seen] = [[], new Set()];
    const add = (track, indent, isFurther) => {
      const of = trace.tracks[track];
      const suffix = of.kind === "plain" || of.number === undefined ? "" : ` ${of.number}`;
      const label = isFurther ? "" : `${of.name || of.kind}${suffix}`;
      const depths = lists[track];
      if (!depths.length && !isFurther) rows.push({ track, label, indent, list: [], latest: [] });
      for (let depth = 0; depth < depths.length; depth += 1) {
        const list = depths[depth] ?? [];
        list.sort((a, b) => trace.begin[a] - trace.begin[b] || trace.end[a] - trace.end[b]);
        const latest = new Float64Array(list.length);
        list.forEach((slice, place) => (latest[place] = Math.max(trace.end[slice], latest[place - 1] ?? -Infinity)));
        rows.push({ track, label: depth ? "" : label, indent, list, latest });
      }
    };
    const walk = (parent, indent) => {
      const list = (children.get(parent) ?? []).sort(before);
      const plain = list.filter((track) => trace.tracks[track].kind === "plain");
      const further = Map.groupBy(plain, (track) => trace.tracks[track].name);
      for (const first of list) {
        // The first track of a name takes the further ones to it. A loop of parents is of a damaged file.
        if (seen.has(first)) continue;
        const { name } = trace.tracks[first];
        const alike = new Set([first, ...(further.get(name) ?? [])]);
        further.delete(name);
        for (const track of alike) {
          if (seen.has(track)) continue;
          seen.add(track);
          add(track, indent, track !== first);
          walk(track, indent + 1);
        }
      }
    };
    walk(null, 0);
    trace.tracks.forEach((of, track) => {
      if (seen.has(track) || !lists[track].length) return;
      seen.add(track);
      add(track, 0, false);
    });
    return rows;
  }

  // Geometry

  const canvas = () => at("timeline");
  const size = () => [canvas().clientWidth, canvas().clientHeight];
  const gutter = () => (size()[0] < 600 ? 96 : 220);
  const span = () => Math.max(1, size()[0] - gutter());
  const left = (moment) => gutter() + (moment - state.from) / state.per;
  const room = () => Math.max(0, state.rows.length * ROW + HEAD - size()[1]);

  function limit() {
    const whole = state.trace.length;
    // Half of a view is free at both ends, and nobody looks closer than at nanoseconds. A damaged moment may be years
    // away from the others, where numbers are further apart than those.
    const least = Math.max(1 / 16, whole / 2 ** 50);
    state.per = Math.min(Math.max(state.per, least), Math.max(least, (whole * 1.1) / span()));
    const view = state.per * span();
    state.from = Math.min(Math.max(state.from, -view / 2), whole - view / 2);
    state.top = Math.min(Math.max(state.top, 0), room());
  }

  function update() {
    limit();
    requestPaint();
    if (!at("tip").hidden && state.under < 0 && state.chosen >= 0) tipOfChosen();
  }

  function showAll() {
    state.per = Math.max(1, state.trace.length * 1.02) / span();
    state.from = -state.trace.length * 0.01;
    update();
  }

  function zoom(by, x = gutter() + span() / 2) {
    const moment = state.from + (x - gutter()) * state.per;
    state.per /= by;
    limit();
    state.from = moment - (x - gutter()) * state.per;
    update();
  }

  // Makes the chosen slice fill half of the view.
  function focus() {
    if (state.chosen < 0) return;
    const { begin, end } = state.trace;
    const length = Math.max(1, end[state.chosen] - begin[state.chosen]);
    state.per = (length * 2) / span();
    limit();
    state.from = (begin[state.chosen] + end[state.chosen]) / 2 - (state.per * span()) / 2;
    update();
  }

  // The slice at a place of the canvas, or -1.
  function sliceAt(x, y) {
    const row = state.rows[Math.floor((y - HEAD + state.top) / ROW)];
    if (!row || y < HEAD || x < gutter()) return -1;
    const { begin, end } = state.trace;
    const reach = 2 * state.per;
    const moment = state.from + (x - gutter()) * state.per;
    let best = -1;
    let [distance, shortest] = [Infinity, Infinity];
    for (let place = firstAfter(row, moment - reach); place < row.list.length; place += 1) {
      const slice = row.list[place];
      if (begin[slice] > moment + reach) break;
      const length = end[slice] - begin[slice];
      // The mark of a short slice begins with a pixel.
      const mark = length < LEAST * state.per ? state.per : 0;
      const away = Math.max(begin[slice] - mark - moment, moment - end[slice] - LEAST * mark, 0);
      // Of slices inside of each other, the inner one.
      if (away > reach || away > distance || (away === distance && length >= shortest)) continue;
      [best, distance, shortest] = [slice, away, length];
    }
    return best;
  }

  // Painting

  let requested = false;
  function requestPaint() {
    if (requested) return;
    requested = true;
    requestAnimationFrame(() => {
      requested = false;
      if (state.trace && !at("tracing").hidden) paint();
    });
  }

  function colour(slice) {
    const category = state.trace.category[slice];
    if (COLOURS[category]) return COLOURS[category];
    let hash = 0;
    for (const sign of state.trace.name[slice]) hash = (hash * 31 + sign.codePointAt(0)) >>> 0;
    return `hsl(${HUES[hash % HUES.length]} 55% 70%)`;
  }

  function fitted(pen, text, width) {
    if (width < 12) return "";
    if (pen.measureText(text).width <= width) return text;
    let [low, high] = [0, text.length];
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if (pen.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
      else high = middle - 1;
    }
    return low ? `${text.slice(0, low)}…` : "";
  }

  // A label that does not fit keeps its end, which tells apart what waits in a queue and what runs there.
  function shortened(pen, label, width) {
    const end = label.slice(-9);
    if (label.length < 20 || pen.measureText(label).width <= width) return fitted(pen, label, width);
    return fitted(pen, label.slice(0, -9), width - pen.measureText(end).width) + end;
  }

  function paint() {
    const [width, height] = size();
    const ratio = devicePixelRatio || 1;
    const place = canvas();
    if (place.width !== Math.round(width * ratio) || place.height !== Math.round(height * ratio)) {
      [place.width, place.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    }
    limit();
    const pen = place.getContext("2d");
    const style = getComputedStyle(place);
    const ink = Object.fromEntries(["ground", "raised", "line", "text", "dim", "accent"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = `12px ${style.fontFamily}`;
    pen.textBaseline = "middle";
    pen.fillStyle = ink.ground;
    pen.fillRect(0, 0, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(gutter(), HEAD, width - gutter(), height - HEAD);
    pen.clip();
    paintGrid(pen, ink, height);
    state.drawn = 0;
    const first = Math.floor(state.top / ROW);
    const last = Math.min(state.rows.length, Math.ceil((state.top + height - HEAD) / ROW));
    for (let row = first; row < last; row += 1) paintRow(pen, ink, state.rows[row], HEAD + row * ROW - state.top);
    const arrows = paintArrows(pen, ink);
    pen.restore();
    paintLabels(pen, ink, first, last);
    paintScale(pen, ink, width);
    Object.assign(place.dataset, { slices: state.drawn, arrows });
    const notDrawn = arrows < 0 ? ` More than ${ARROWS} arrows are in sight, so only those of the chosen slice are drawn.` : "";
    say(`${state.summary}.${notDrawn}`);
  }

  function say(text) {
    if (at("trace-summary").textContent !== text) at("trace-summary").textContent = text;
  }

  // Moments of the scale: 1, 2 or 5 of a power of ten, and about 100 pixels from each other.
  function* ticks() {
    const least = Math.max(1, state.per * 100);
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((of) => of * power).find((of) => of >= least);
    // Counted, because a moment that is large enough stays the same when a step is added to it.
    const last = Math.floor((state.from + span() * state.per) / step);
    for (let place = Math.ceil(state.from / step); place <= last; place += 1) yield [place * step, step];
  }

  function paintGrid(pen, ink, height) {
    pen.fillStyle = ink.line;
    for (const [tick] of ticks()) pen.fillRect(Math.round(left(tick)), HEAD, 1, height);
  }

  function paintScale(pen, ink, width) {
    pen.fillStyle = ink.raised;
    pen.fillRect(0, 0, width, HEAD);
    pen.fillStyle = ink.dim;
    for (const [tick, step] of ticks()) {
      // All marks have the unit of the step, or that of the view.
      const [unit, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([, size]) => step >= size / 10) ?? ["ns", 1];
      if (left(tick) >= gutter()) pen.fillText(`${Number((tick / size).toFixed(2))} ${unit}`, left(tick) + 3, HEAD / 2);
    }
  }

  function paintRow(pen, ink, row, top) {
    const { begin, end, name } = state.trace;
    const [right, { list }] = [state.from + span() * state.per, row];
    for (let place = firstAfter(row, state.from); place < list.length;) {
      const slice = list[place];
      if (begin[slice] > right) break;
      if (end[slice] < state.from) {
        place += 1;
        continue;
      }
      const [x, length] = [left(begin[slice]), (end[slice] - begin[slice]) / state.per];
      pen.fillStyle = colour(slice);
      if (length < LEAST) {
        // What begins before the next pixel shares this mark.
        const pixel = Math.floor(x);
        pen.fillRect(pixel, top + 1, LEAST, ROW - 2);
        const behind = state.from + (pixel + 1 - gutter()) * state.per;
        let next = place + 1;
        while (next < list.length && end[list[next]] < behind) next += 1;
        state.drawn += next - place;
        place = next;
        continue;
      }
      const [from, to] = [Math.max(x, gutter() - 2), Math.min(x + length, size()[0] + 2)];
      pen.fillRect(from, top + 1, Math.max(1, to - from - 0.5), ROW - 2);
      const text = fitted(pen, name[slice], to - Math.max(from, gutter()) - 6);
      pen.fillStyle = "#101820";
      if (text) pen.fillText(text, Math.max(from, gutter()) + 3, top + ROW / 2);
      state.drawn += 1;
      place += 1;
    }
    for (const slice of [state.under, state.chosen]) {
      if (slice < 0 || state.rowOf[slice] !== row) continue;
      pen.strokeStyle = slice === state.chosen ? ink.accent : ink.text;
      pen.lineWidth = 2;
      const x = Math.max(left(begin[slice]), gutter() - 4);
      const to = Math.min(left(end[slice]), size()[0] + 4);
      pen.strokeRect(x, top + 1, Math.max(2, to - x), ROW - 2);
    }
  }

  // Draws arrows, and returns their number, or -1 if only those of the chosen slice are drawn.
  function paintArrows(pen, ink) {
    const { begin, end, arrows } = state.trace;
    const [right, bottom] = [state.from + span() * state.per, size()[1]];
    const middle = (slice) => HEAD + state.rowOf[slice].place * ROW + ROW / 2 - state.top;
    const inSight = (from, to) => Math.max(end[from], begin[to]) >= state.from && Math.min(begin[from], begin[to]) <= right
      && Math.max(middle(from), middle(to)) >= HEAD && Math.min(middle(from), middle(to)) <= bottom;
    const seen = [];
    for (const arrow of arrows) {
      if (!inSight(...arrow)) continue;
      seen.push(arrow);
      if (seen.length > ARROWS) break;
    }
    const isOfChosen = ([from, to]) => from === state.chosen || to === state.chosen;
    const drawn = seen.length > ARROWS ? [] : seen;
    pen.lineWidth = 1;
    pen.globalAlpha = 0.55;
    pen.strokeStyle = pen.fillStyle = ink.dim;
    for (const arrow of drawn) if (!isOfChosen(arrow)) paintArrow(pen, arrow, middle);
    pen.globalAlpha = 1;
    pen.lineWidth = 2;
    pen.strokeStyle = pen.fillStyle = ink.accent;
    if (state.chosen >= 0) for (const arrow of arrows) if (isOfChosen(arrow)) paintArrow(pen, arrow, middle);
    return seen.length > ARROWS ? -1 : seen.length;
  }

  function paintArrow(pen, [from, to], middle) {
    const { begin, end } = state.trace;
    // A call may end after the begin of what it has enqueued.
    const x = left(Math.min(end[from], Math.max(begin[from], begin[to])));
    const [y, toX, toY] = [middle(from), left(begin[to]), middle(to)];
    const bend = Math.max(12, Math.abs(toX - x) / 3);
    pen.beginPath();
    pen.moveTo(x, y);
    pen.bezierCurveTo(x + bend, y, toX - bend, toY, toX, toY);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(toX, toY);
    pen.lineTo(toX - 6, toY - 3);
    pen.lineTo(toX - 6, toY + 3);
    pen.fill();
  }

  function paintLabels(pen, ink, first, last) {
    const [width, height] = [gutter(), size()[1]];
    pen.fillStyle = ink.raised;
    pen.fillRect(0, HEAD, width - 1, height - HEAD);
    pen.fillStyle = ink.line;
    pen.fillRect(width - 1, 0, 1, height);
    for (let place = first; place < last; place += 1) {
      const { label, indent, list } = state.rows[place];
      const x = 6 + Math.min(indent * 10, width / 3);
      pen.fillStyle = list.length ? ink.text : ink.dim;
      if (label) pen.fillText(shortened(pen, label, width - x - 6), x, HEAD + place * ROW + ROW / 2 - state.top);
    }
  }

  // What is said about a slice: lines of a tooltip, and of the text below.

  function linesOf(slice) {
    const { trace } = state;
    const [begin, end] = [trace.begin[slice], trace.end[slice]];
    const times = end > begin ? `${time(begin)} to ${time(end)}, ${time(end - begin)}` : `at ${time(begin)}`;
    const values = trace.values(slice).map((of) => `${of.name}: ${of.moment === undefined ? of.text : time(of.moment)}`);
    const row = state.rowOf[slice];
    const heading = state.rows.slice(0, row.place + 1).findLast((of) => of.label && of.indent <= row.indent);
    return [trace.name[slice] || "no name", times, ...values, `track: ${heading?.label ?? ""}`];
  }

  function showTip(slice, x, y) {
    const tip = at("tip");
    tip.hidden = slice < 0;
    if (slice < 0) return;
    tip.replaceChildren(...linesOf(slice).map((line) => make("div", line)));
    const [width] = size();
    const { top } = canvas().getBoundingClientRect();
    const isLow = top + y + 16 + tip.offsetHeight > innerHeight;
    tip.style.left = `${Math.max(0, Math.min(x + 12, width - tip.offsetWidth))}px`;
    tip.style.top = `${isLow ? y - tip.offsetHeight - 8 : y + 16}px`;
  }

  function hover(slice, x, y) {
    showTip(slice, x, y);
    if (slice === state.under) return;
    state.under = slice;
    requestPaint();
  }

  // Chooses a slice, and shows it if it is out of sight.
  function choose(slice) {
    state.chosen = slice;
    at("chosen").textContent = slice < 0 ? "" : linesOf(slice).join("; ");
    if (slice < 0) {
      hover(-1);
      return requestPaint();
    }
    const { begin, end } = state.trace;
    const view = span() * state.per;
    if (end[slice] < state.from || begin[slice] > state.from + view) state.from = begin[slice] - view / 4;
    const top = state.rowOf[slice].place * ROW;
    const rows = size()[1] - HEAD - ROW;
    if (top < state.top || top > state.top + rows) state.top = top - rows / 2;
    update();
    tipOfChosen();
  }

  function tipOfChosen() {
    const slice = state.chosen;
    const y = HEAD + state.rowOf[slice].place * ROW - state.top + ROW / 2;
    showTip(slice, Math.min(Math.max(gutter(), left(state.trace.begin[slice])), size()[0]), Math.max(0, Math.min(y, size()[1])));
  }

  // The slice beside the chosen one: in its row, or in the next row that has one about that time.
  function chooseNext(along, across) {
    const row = state.chosen < 0 ? null : state.rowOf[state.chosen];
    if (!row) {
      const first = state.rows.find((of) => of.list.length);
      return first && choose(first.list[Math.min(firstAfter(first, state.from), first.list.length - 1)]);
    }
    if (along) {
      const next = row.list[row.list.indexOf(state.chosen) + along];
      return next !== undefined && choose(next);
    }
    for (let place = row.place + across; state.rows[place]; place += across) {
      const beside = state.rows[place];
      const { list } = beside;
      if (list.length) return choose(list[Math.min(firstAfter(beside, state.trace.begin[state.chosen]), list.length - 1)]);
    }
    return undefined;
  }

  // Mouse and keyboard

  function onKey(event) {
    if (!state.trace || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = span() * state.per * 0.2;
    const act = event.shiftKey
      ? { ArrowLeft: () => chooseNext(-1, 0), ArrowRight: () => chooseNext(1, 0), ArrowUp: () => chooseNext(0, -1), ArrowDown: () => chooseNext(0, 1), "+": () => zoom(ZOOM) }
      : {
        ArrowLeft: () => ((state.from -= step), update()), ArrowRight: () => ((state.from += step), update()),
        ArrowUp: () => ((state.top -= 3 * ROW), update()), ArrowDown: () => ((state.top += 3 * ROW), update()),
        PageUp: () => ((state.top -= size()[1] - 2 * ROW), update()), PageDown: () => ((state.top += size()[1] - 2 * ROW), update()),
        "+": () => zoom(ZOOM), "=": () => zoom(ZOOM), "-": () => zoom(1 / ZOOM), Home: showAll,
        Escape: () => choose(-1),
      };
    act.f = focus;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (!act[key]) return;
    event.preventDefault();
    act[key]();
  }

  function onWheel(event) {
    if (!state.trace) return;
    const unit = event.deltaMode ? ROW : 1;
    if (event.ctrlKey || event.metaKey) zoom(Math.exp((-event.deltaY * unit) / 300), event.offsetX);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      state.from += (event.shiftKey ? event.deltaY || event.deltaX : event.deltaX) * unit * state.per;
      update();
    } else {
      const before = state.top;
      state.top += event.deltaY * unit;
      update();
      // At its end, the page scrolls.
      if (state.top === before) return;
    }
    event.preventDefault();
  }

  function onPress(event) {
    if (!state.trace || event.button) return;
    state.drag = { x: event.offsetX, y: event.offsetY, from: state.from, top: state.top, isMove: false };
    canvas().setPointerCapture(event.pointerId);
  }

  function onDrag(event) {
    if (!state.trace) return;
    const { drag } = state;
    const [wasX, wasY] = state.mouse;
    state.mouse = [event.clientX, event.clientY];
    // The browser tells of a mouse that rests, too, when something else has changed.
    if (wasX === event.clientX && wasY === event.clientY) return;
    if (!drag) return hover(sliceAt(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
    const [x, y] = [event.offsetX - drag.x, event.offsetY - drag.y];
    drag.isMove ||= Math.abs(x) + Math.abs(y) > 4;
    if (!drag.isMove) return;
    hover(-1);
    [state.from, state.top] = [drag.from - x * state.per, drag.top - y];
    update();
  }

  function onRelease(event) {
    const { drag } = state;
    state.drag = null;
    if (drag && !drag.isMove) choose(sliceAt(event.offsetX, event.offsetY));
  }

  // Opening

  function open(trace, name) {
    Object.assign(state, { trace, file: name, top: 0, chosen: -1, under: -1, rowOf: new Array(trace.begin.length) });
    state.rows = rowsOf(trace);
    state.rows.forEach((row, place) => {
      row.place = place;
      for (const slice of row.list) state.rowOf[slice] = row;
    });
    const tracks = state.rows.filter((row) => row.list.length).map((row) => row.track);
    state.summary = `${trace.count} slices on ${new Set(tracks).size} tracks, ${trace.arrows.length} arrows, ${time(trace.length)}`;
    at("trace-trouble").replaceChildren(...trace.problems.map((problem) => make("div", problem)));
    at("trace-trouble").hidden = !trace.problems.length;
    at("drawing").hidden = !trace.count;
    canvas().style.height = `${HEAD + (state.rows.length + 1) * ROW}px`;
    choose(-1);
    if (trace.count) showAll();
    else say("");
  }

  function fail(reason) {
    Object.assign(state, { trace: null, file: "" });
    at("drawing").hidden = true;
    say("");
    at("trace-trouble").textContent = reason;
    at("trace-trouble").hidden = false;
  }

  // The number of the newest choice, and whether it is still read.
  const choice = { number: 0, isOpen: false };
  async function load(file) {
    if (!file) return;
    choice.number += 1;
    choice.isOpen = true;
    const own = choice.number;
    const isNewest = () => own === choice.number;
    // What is painted while the file is read would say something else.
    Object.assign(state, { trace: null, file: "" });
    for (const id of ["drawing", "trace-trouble"]) at(id).hidden = true;
    try {
      say(`Reading ${file.name}`);
      const trace = await parse(file, (part) => {
        if (isNewest()) say(`Reading ${file.name}: ${Math.round(part * 100)} %`);
        return isNewest();
      });
      if (isNewest()) open(trace, file.name);
    } catch (error) {
      if (isNewest()) fail(error instanceof Refusal ? error.message : `The file cannot be read: ${error.message}`);
    } finally {
      if (isNewest()) choice.isOpen = false;
      draw();
    }
  }

  class Refusal extends Error {}

  async function parse(file, progress) {
    if (file.size > traceFile.LARGEST) throw new Refusal(`The file has more than ${traceFile.LARGEST / 2 ** 20} MiB, which this page does not read.`);
    const bytes = new Uint8Array(await file.arrayBuffer());
    if (bytes[0] === 0x7b) throw new Refusal("This file is text, perhaps Chrome's format. This page reads what `causeway trace` writes without `--json`.");
    return traceFile.read(bytes, progress);
  }

  function begin() {
    at("trace-choose").addEventListener("click", () => at("trace-file").click());
    at("trace-file").addEventListener("change", ({ target }) => {
      load(target.files[0]);
      // Otherwise, nothing happens when somebody chooses the same path again, where there may be another file.
      target.value = "";
    });
    for (const [id, act] of [["zoom-in", () => zoom(ZOOM)], ["zoom-out", () => zoom(1 / ZOOM)], ["zoom-all", showAll]]) {
      at(id).addEventListener("click", act);
    }
    const place = canvas();
    place.addEventListener("keydown", onKey);
    place.addEventListener("wheel", onWheel, { passive: false });
    place.addEventListener("pointerdown", onPress);
    place.addEventListener("pointermove", onDrag);
    place.addEventListener("pointerup", onRelease);
    place.addEventListener("pointercancel", () => (state.drag = null));
    place.addEventListener("pointerleave", () => hover(-1));
    place.addEventListener("blur", () => showTip(-1));
    new ResizeObserver(requestPaint).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", requestPaint);
  }

  return { begin, repaint: requestPaint, file: () => state.file, isInUse: () => state.trace !== null || choice.isOpen };
})();
