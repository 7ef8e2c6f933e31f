// The dashboard's page: follows the snapshots of the device manager, and shows one list at a time.
//
// The view of traces is that of `trace_view.js`. A snapshot is one object; changes to it come as RFC 7396 says. All text
// reaches the page by `textContent`, so that no name can become markup. Only the rows that are visible exist as elements.
"use strict";

const ROWS = 100; // on one page of a list
const SILENCE = 6000; // milliseconds without a byte after which a manager counts as lost; it sends some every 2 s
const RETRY = 1000; // milliseconds between attempts to reach it
const SVG = "http://www.w3.org/2000/svg";
const by = (id) => document.getElementById(id);

const page = { all: {}, view: "", first: 0, filter: "", sort: {}, stream: null, heard: 0, lost: "" };

// Texts

function duration(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(seconds / unit));
  if (days) return `${days} d ${hours % 24} h`;
  if (hours) return `${hours} h ${minutes % 60} min`;
  return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}

function bytes(size) {
  if (size === undefined) return "";
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  const at = Math.min(units.length - 1, size < 1 ? 0 : Math.floor(Math.log2(size) / 10));
  return at ? `${(size / 2 ** (10 * at)).toFixed(1)} ${units[at]}` : `${size} bytes`;
}

function bits(rate) {
  const bits = rate * 8;
  if (bits >= 1e9) return `${(bits / 1e9).toFixed(2)} Gbit/s`;
  return bits >= 1e6 ? `${(bits / 1e6).toFixed(0)} Mbit/s` : `${(bits / 1e3).toFixed(0)} kbit/s`;
}

const slower = (of) => Math.min(of.outward_bytes_per_second, of.inward_bytes_per_second);
const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;
const short = (id) => id.slice(0, 8);
const asOf = (of) => `as of ${new Date(of.as_of_unix_ms).toLocaleTimeString()}`;
const age = (since) => duration(page.all.now - since);
const program = (of) => (of?.program ? `${of.program} (${of.pid}@${of.host})` : "");

// Several nodes of one name are told apart by the beginnings of their ids.
function nodeName(id, name) {
  return page.names?.get(name) > 1 ? `${name} ${short(id)}` : name;
}

// The units of each node. Those of one name share it.
function shares(nodes) {
  const place = (of) => `${of.platform}.${of.device}${of.share ? `#${of.share}` : ""}`;
  const units = (all) => all.map((of, at) => (of.name && of.name !== all[at + 1]?.name ? `${place(of)} ${of.name}` : place(of)));
  return nodes.map((of) => `${nodeName(of.node, of.name)}: ${units(of.units).join(", ")}`).join("; ");
}

// Contents of cells: a text, or an object with `text` and one of `sign`, `bar`, `line`, `link`, `title`.

const sign = (kind, text) => ({ sign: kind, text });

function nodeState(of) {
  if (!of.connected) return sign("bad", "not connected");
  if (of.stopping) return sign("warn", "stopping");
  return of.draining ? sign("warn", "draining") : sign("good", "connected");
}

function leaseState(of) {
  const text = of.away ? `${of.state} (${of.away} away)` : of.state;
  const kind = { active: "good", reserved: "idle", offered: "idle" }[of.state] ?? "warn";
  return sign(of.away ? "warn" : kind, text);
}

function leased(of) {
  if (!of.lost.length) return shares(of.nodes);
  const has = of.nodes.length ? shares(of.nodes) : "waits for equal devices";
  return `${has}; lost: ${shares(of.lost)}`;
}

function inUse(of) {
  if (!of.leased) return sign("idle", of.shares > 1 ? `free, ${of.shares} shares` : "free");
  return sign("good", of.shares > 1 ? `${of.leased} of ${of.shares} shares` : "leased");
}

function hour(signs) {
  if (!signs) return "";
  const known = [...signs].filter((of) => of !== "-").map((of) => Math.round((Number(of) / 9) * 100));
  const text = known.length ? `highest ${Math.max(...known)} %, last ${known.at(-1)} %` : "unknown";
  return { line: signs, text };
}

// The lists: columns with their names, and the content and order of a row's cell.

const figure = (name, of, order = of) => ({ name, of, order, figure: true });
const plain = (name, of, order = of) => ({ name, of, order });
const idColumn = (name, of) => ({ name, of: (row) => ({ text: short(of(row)), title: of(row) }), order: of, id: true });

const LISTS = {
  nodes: {
    title: "Nodes", one: "node", many: "nodes", rows: () => page.all.nodes, empty: "No node has joined.",
    detail: (all) => `${Object.values(all.nodes).filter((of) => of.connected).length} connected`,
    columns: [
      plain("Node", (of) => nodeName(of.node, of.name)),
      plain("State", nodeState, (of) => nodeState(of).text),
      figure("Devices", (of) => of.devices),
      figure("Leased", (of) => `${of.leased} of ${of.shares}`, (of) => of.leased),
      figure("Sessions", (of) => (of.away ? `${of.sessions} (${of.away} away)` : of.sessions), (of) => of.sessions),
      figure("Data / s", (of) => bytes(of.bytes_per_second), (of) => of.bytes_per_second ?? -1),
      figure("Commands", (of) => of.commands),
      plain("Leaving", (of) => of.leaving.map((to) => `${short(to.lease)} ${to.state} ${to.reason}`).join("; ")),
      plain("Addresses", (of) => of.addresses.join(", ")),
      idColumn("Id", (of) => of.node),
    ],
  },
  devices: {
    title: "Devices", one: "device", many: "devices", rows: () => page.all.devices, empty: "No node is connected.",
    detail: (all) => {
      const sum = (key) => Object.values(all.devices).reduce((total, of) => total + of[key], 0);
      return `${sum("leased")} of ${sum("shares")} leased`;
    },
    columns: [
      plain("Node", (of) => nodeName(of.node, of.node_name)),
      plain("Place", (of) => `${of.platform}.${of.device}`, (of) => of.platform * 1e4 + of.device),
      plain("Device", (of) => of.name),
      plain("Kind", (of) => of.kind),
      plain("Use", inUse, (of) => of.leased / of.shares),
      plain("Users", (of) => (of.users ?? []).join(", ")),
      figure("Busy", (of) => (of.busy_percent === undefined ? "" : { bar: of.busy_percent, text: `${of.busy_percent} %` }),
        (of) => of.busy_percent ?? -1),
      plain("Last hour", (of) => hour(of.hour), (of) => of.hour ?? ""),
      figure("Card", (of) => (of.use?.utilization_percent === undefined ? "" : `${of.use.utilization_percent} %`),
        (of) => of.use?.utilization_percent ?? -1),
      figure("Memory", (of) => (of.use?.memory_used_bytes === undefined ? bytes(of.memory_bytes)
        : `${bytes(of.use.memory_used_bytes)} of ${bytes(of.memory_bytes)}`), (of) => of.memory_bytes),
      figure("Chip", (of) => (of.use?.temperature_celsius === undefined ? "" : `${of.use.temperature_celsius} °C`),
        (of) => of.use?.temperature_celsius ?? -1),
    ],
    note: "Busy: the part of the last seconds in which sessions had commands under way. Card and chip: what the vendor's "
      + "library says about all programs together. Empty: not known. The last hour begins with the manager.",
  },
  kinds: {
    title: "Devices", one: "device", many: "devices", rows: () => page.all.kinds, empty: "No node is connected.",
    detail: (all) => `${Object.values(all.kinds).reduce((total, of) => total + of.free, 0)} free`,
    total: (all) => Object.values(all.kinds).reduce((total, of) => total + of.count, 0),
    columns: [
      plain("Device", (of) => of.name),
      plain("Kind", (of) => of.kind),
      figure("Memory", (of) => bytes(of.memory_bytes), (of) => of.memory_bytes),
      figure("Number", (of) => of.count),
      figure("Free", (of) => of.free),
    ],
    note: "The kinds of devices of all nodes. A share of a device counts as one.",
  },
  links: {
    title: "Links", one: "link", many: "links", sort: { at: 2, down: false }, rows: () => page.all.links,
    empty: "No link has been measured: causeway links --measure.",
    detail: (all) => {
      const rates = Object.values(all.links).filter((of) => !of.old).map(slower);
      return rates.length ? `slowest ${bits(Math.min(...rates))}` : "none measured";
    },
    columns: [
      plain("From", (of) => nodeName(of.from_id, of.from)),
      plain("To", (of) => nodeName(of.to_id, of.to)),
      figure("Slower way", (of) => bits(slower(of)), slower),
      figure("There", (of) => bits(of.outward_bytes_per_second), (of) => of.outward_bytes_per_second),
      figure("Back", (of) => bits(of.inward_bytes_per_second), (of) => of.inward_bytes_per_second),
      figure("Round trip", (of) => `${(of.round_trip_median_ns / 1e6).toFixed(2)} ms`, (of) => of.round_trip_median_ns),
      figure("Lost", (of) => `${of.lost} of 11`, (of) => of.lost),
      figure("Age", (of) => (of.old ? sign("warn", "old") : age(of.since_unix_ms)), (of) => -of.since_unix_ms),
      plain("Addresses", (of) => `${of.from_address}, ${of.to_address}`),
    ],
    note: "The 200 slowest links among nodes, as the nodes have measured them for all users. Old: not used any more.",
  },
  leases: {
    title: "Leases", one: "lease", many: "leases", sort: { at: 3, down: false }, rows: () => page.all.leases, empty: "There is no lease.",
    detail: (all) => `${Object.values(all.leases).filter((of) => of.state === "active").length} active`,
    columns: [
      idColumn("Lease", (of) => of.lease),
      plain("User", (of) => of.user),
      plain("State", leaseState, (of) => leaseState(of).text),
      figure("Age", (of) => age(of.since_unix_ms), (of) => -of.since_unix_ms),
      figure("Renewal within", (of) => duration(of.until_unix_ms - page.all.now), (of) => of.until_unix_ms),
      figure("Sessions", (of) => of.sessions),
      plain("Devices", leased),
      plain("Program", (of) => program(of.client)),
    ],
  },
  queue: {
    title: "Queue", one: "waiting", many: "waiting", rows: () => page.all.queue, empty: "No request is waiting.",
    total: (all) => all.waiting,
    detail: (all) => (all.waiting > Object.keys(all.queue).length ? `${Object.keys(all.queue).length} own` : "queue"),
    columns: [
      figure("Place", (of) => of.position),
      plain("User", (of) => of.user),
      figure("Waiting", (of) => age(of.since_unix_ms), (of) => -of.since_unix_ms),
      plain("Priority", (of) => of.priority),
      plain("Request", (of) => of.request),
      plain("Why", (of) => of.why ?? ""),
      plain("Program", (of) => program(of.client)),
      idColumn("Lease", (of) => of.lease),
    ],
  },
  managers: {
    title: "Managers", one: "manager", many: "managers", rows: () => page.all.managers.managers, empty: "No manager is known.",
    detail: (all) => (all.managers.problem ? asOf(all.managers) : `term ${all.managers.term}, ${all.managers.store}`),
    says: (all) => (all.managers.problem ? `${asOf(all.managers)} (${all.managers.problem})` : ""),
    columns: [
      plain("Manager", (of) => ({ text: of.address, link: of.role === "leader" ? undefined : elsewhere(of.dashboard)?.href }), (of) => of.address),
      plain("Role", (of) => (of.role === "leader" ? sign("good", of.role) : sign("idle", of.role)), (of) => of.role),
      figure("Since", (of) => age(of.since_unix_ms), (of) => -of.since_unix_ms),
      plain("Version", (of) => of.version),
      plain("Problem", (of) => (of.problem ? sign("bad", of.problem) : "")),
    ],
  },
};

// The one view that is no list.
LISTS.trace = { title: "Trace", detail: () => traceView.file() || "of a program" };

const MEMBERS = {
  title: "Members of etcd",
  columns: [
    plain("Member", (of) => of.name),
    plain("Role", (of) => (of.version ? sign(of.leader ? "good" : "idle", of.leader ? "leader" : "follower")
      : sign("bad", "unreachable"))),
    plain("Version", (of) => of.version),
    figure("Database", (of) => bytes(of.database_bytes)),
    plain("Address", (of) => of.addresses[0] ?? ""),
    plain("Problem", (of) => of.problem),
  ],
};

// The lists that the caller sees, in the order of the page.
function lists() {
  const all = page.all;
  const names = all.nodes ? ["devices", "nodes", "leases", "queue", "links"] : ["leases", "queue", "kinds"];
  return [...names, ...(all.managers ? ["managers"] : []), "trace"];
}

// Drawing. Elements are kept, and change only where their content does.

function element(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function picture(kind, width, text, ...parts) {
  const drawn = element("svg", { class: kind, width, height: 14, viewBox: `0 0 ${width} 14`, role: "img", "aria-label": text });
  drawn.append(...parts);
  return drawn;
}

function barOf(percent) {
  const part = element("rect", { class: "part", width: (percent * 40) / 100, height: 8, y: 3 });
  const drawn = picture("bar", 40, "", element("rect", { class: "all", width: 40, height: 8, y: 3 }), part);
  drawn.setAttribute("aria-hidden", "true");
  return drawn;
}

function lineOf(signs, text) {
  const drawn = picture("line", 120, text, element("polyline", { class: "base", points: "0,13.5 120,13.5" }));
  const start = 60 - signs.length;
  const point = (digit, at) => `${(start + at) * 2},${13 - (Number(digit) / 9) * 12}`;
  let points = [];
  const stroke = () => {
    if (points.length === 1) points.push(points[0].replace(/^[^,]*/, (x) => Number(x) + 2));
    if (points.length) drawn.append(element("polyline", { points: points.join(" ") }));
    points = [];
  };
  [...signs].forEach((digit, at) => (digit === "-" ? stroke() : points.push(point(digit, at))));
  stroke();
  return drawn;
}

function fill(cell, content) {
  const of = typeof content === "object" ? content : { text: String(content ?? "") };
  const key = JSON.stringify(of);
  if (cell.shown === key) return;
  cell.shown = key;
  const text = document.createElement(of.link ? "a" : "span");
  text.textContent = of.text;
  if (of.link) text.href = of.link;
  if (of.title) text.title = of.title;
  if (of.sign) text.className = `sign ${of.sign}`;
  const parts = [text];
  if (of.bar !== undefined) parts.unshift(barOf(of.bar));
  if (of.line !== undefined) parts.splice(0, 1, lineOf(of.line, of.text));
  cell.replaceChildren(...parts);
  cell.classList.toggle("blank", of.text === "");
}

function drawHead(head, list, sorts) {
  const key = list.columns.map((column) => column.name).join() + JSON.stringify(sorts ? page.sort[page.view] ?? null : "");
  if (head.shown === key) return;
  head.shown = key;
  const focused = document.activeElement?.dataset?.column;
  const row = document.createElement("tr");
  list.columns.forEach((column, at) => {
    const cell = document.createElement("th");
    cell.scope = "col";
    if (column.figure) cell.className = "figure";
    if (!sorts) cell.textContent = column.name;
    else {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = column.name;
      button.dataset.column = at;
      button.addEventListener("click", () => sortBy(at));
      cell.append(button);
      const sort = page.sort[page.view];
      if (sort?.at === at) cell.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
    }
    row.append(cell);
  });
  head.replaceChildren(row);
  if (focused !== undefined) head.querySelector(`[data-column="${focused}"]`)?.focus();
}

function drawRows(body, list, rows) {
  while (body.rows.length > rows.length) body.lastChild.remove();
  if (body.list !== list) body.replaceChildren();
  body.list = list;
  rows.forEach((of, at) => {
    let row = body.rows[at];
    if (!row) {
      row = document.createElement("tr");
      for (const column of list.columns) {
        const cell = document.createElement("td");
        cell.dataset.label = column.name;
        if (column.figure || column.id) cell.className = column.id ? "id" : "figure";
        row.append(cell);
      }
      body.append(row);
    }
    list.columns.forEach((column, cell) => fill(row.cells[cell], column.of(of)));
  });
}

// One for all comparisons, because making one takes longer than thousands of them.
const collator = new Intl.Collator("en", { numeric: true });

function compare(a, b) {
  if (a === b) return 0;
  return typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b);
}

function chosen(list) {
  let rows = Object.values(list.rows() ?? {});
  const words = page.filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length) {
    const text = (of) => list.columns.map((column) => {
      const content = column.of(of);
      return typeof content === "object" ? content.title ?? content.text : content;
    }).join(" ").toLowerCase();
    rows = rows.filter((of) => ((all) => words.every((word) => all.includes(word)))(text(of)));
  }
  const sort = page.sort[page.view] ?? list.sort ?? { at: 0, down: false };
  const column = list.columns[sort.at];
  const keyed = rows.map((of, at) => [column.order(of), at, of]);
  keyed.sort((a, b) => (sort.down ? -1 : 1) * compare(a[0], b[0]) || a[1] - b[1]);
  return keyed.map((of) => of[2]);
}

function drawList() {
  const list = LISTS[page.view];
  const rows = chosen(list);
  page.first = Math.min(page.first, Math.max(0, Math.floor((rows.length - 1) / ROWS) * ROWS));
  const shown = rows.slice(page.first, page.first + ROWS);
  put("title", list.title);
  drawHead(by("head"), list, true);
  drawRows(by("rows"), list, shown);
  const total = Object.keys(list.rows() ?? {}).length;
  put("count", page.filter ? `${rows.length} of ${total}` : count(total, "row", "rows"));
  by("head").parentElement.hidden = shown.length === 0;
  by("empty").hidden = shown.length > 0;
  put("empty", total ? "No row has these words." : list.empty);
  by("pages").hidden = rows.length <= ROWS;
  put("range", `Rows ${page.first + 1} to ${page.first + shown.length} of ${rows.length}`);
  by("earlier").disabled = page.first === 0;
  by("later").disabled = page.first + ROWS >= rows.length;
  const others = page.view === "queue" ? page.all.waiting - total : 0;
  put("note", others > 0 ? `Waiting requests of other users: ${others}` : list.says?.(page.all) ?? list.note ?? "");
  const members = page.view === "managers" ? Object.values(page.all.managers.members) : [];
  by("more").hidden = members.length === 0;
  if (members.length) {
    put("more-title", MEMBERS.title);
    drawHead(by("more-head"), MEMBERS, false);
    drawRows(by("more-rows"), MEMBERS, members);
  }
}

function put(id, text) {
  const place = by(id);
  if (place.textContent !== text) place.textContent = text;
}

function drawViews() {
  const names = lists();
  const nav = by("views");
  if (nav.names !== names.join()) {
    nav.names = names.join();
    nav.replaceChildren(...names.map((name) => {
      const link = document.createElement("a");
      link.href = `#${name}`;
      for (const part of ["number", "detail"]) {
        const text = document.createElement("span");
        text.className = part;
        link.append(text);
      }
      return link;
    }));
  }
  names.forEach((name, at) => {
    const [link, list] = [nav.children[at], LISTS[name]];
    const total = list.total?.(page.all) ?? Object.keys(list.rows?.() ?? {}).length;
    const texts = [list.rows ? count(total, list.one, list.many) : list.title, list.detail(page.all)];
    [...link.children].forEach((place, part) => {
      if (place.textContent !== texts[part]) place.textContent = texts[part];
    });
    if (name === page.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
}

function draw() {
  if (!page.all.leases) return;
  const names = lists();
  const wanted = location.hash.slice(1);
  const view = names.includes(wanted) ? wanted : names[0];
  if (view !== page.view) [page.view, page.first] = [view, 0];
  page.names = new Map();
  for (const node of Object.values(page.all.nodes ?? {})) page.names.set(node.name, (page.names.get(node.name) ?? 0) + 1);
  drawViews();
  const isTrace = view === "trace";
  by("list").hidden = isTrace;
  if (by("tracing").hidden === isTrace) {
    by("tracing").hidden = !isTrace;
    traceView.repaint();
  }
  if (!isTrace) drawList();
  document.title = `${LISTS[view].title} - Causeway`;
}

function sortBy(at) {
  const sort = page.sort[page.view];
  page.sort[page.view] = { at, down: sort?.at === at && !sort.down };
  draw();
}

// The manager

// Applies a change, as RFC 7396 says.
function merged(target, change) {
  if (change === null || typeof change !== "object" || Array.isArray(change)) return change;
  const into = target !== null && typeof target === "object" && !Array.isArray(target) ? target : {};
  for (const [key, value] of Object.entries(change)) {
    if (value === null) delete into[key];
    else into[key] = merged(Object.hasOwn(into, key) ? into[key] : undefined, value);
  }
  return into;
}

function take(all) {
  page.all = all;
  page.heard = Date.now();
  page.lost = "";
  by("trouble").hidden = true;
  by("link").className = "live";
  put("link", "Live");
  draw();
}

// Says that what is shown is old, and why. The link, if there is one, leads to where that can be changed.
function lose(reason, link) {
  if (page.lost === reason) return;
  page.lost = reason;
  by("link").className = "";
  put("link", page.all.now ? `As of ${new Date(page.all.now).toLocaleTimeString()}` : "Not connected");
  put("trouble", reason);
  if (link) {
    const place = document.createElement("a");
    [place.href, place.textContent] = link;
    by("trouble").append(" ", place);
  }
  by("trouble").hidden = false;
}

function close() {
  page.stream?.abort();
  page.stream = null;
}

function happened(name, data) {
  if (name === "snapshot") take(data);
  else if (name === "change") take(merged(page.all, data));
  else if (name === "over") {
    lose(data.reason);
    retry();
  }
}

// Follows the stream of events until it ends. Not by EventSource, which hides the bytes of an event that is still on
// its way over a slow link, and the answer if there is no stream.
async function follow() {
  close();
  const stream = new AbortController();
  page.stream = stream;
  page.heard = Date.now();
  const answer = await fetch("/events", { cache: "no-store", signal: stream.signal });
  if (!answer.ok) return refused(answer);
  const [reader, decoder] = [answer.body.getReader(), new TextDecoder()];
  for (let parts = []; ;) {
    const { done, value } = await reader.read();
    if (done) break;
    page.heard = Date.now();
    const text = decoder.decode(value, { stream: true });
    // The end of an event may be cut in two.
    const lines = ((parts.at(-1)?.endsWith("\n") ? parts.pop() : "") + text).split("\n\n");
    while (lines.length > 1) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(parts.join("") + lines.shift()) ?? [];
      parts = [];
      if (name) happened(name, JSON.parse(data));
    }
    parts.push(lines[0]);
  }
  lose("The device manager has ended the connection. This page tries again each second.");
  retry();
}

let timer = 0;
function retry(pause = RETRY, then = connect) {
  close();
  clearTimeout(timer);
  timer = setTimeout(then, pause);
}

// The dashboard of another manager, to which a standby leads. One of this origin would lead here again.
function elsewhere(text) {
  const url = URL.canParse(text ?? "") ? new URL(text) : null;
  return url && /^https?:$/.test(url.protocol) && url.origin !== location.origin ? url : null;
}

// Whether another page in this one's place would lose a trace that somebody looks at.
const hasTrace = () => page.view === "trace" && traceView.isInUse();

async function refused(answer) {
  if (answer.status === 401) {
    if (!hasTrace()) return location.replace("/sign-in");
    lose("The device manager does not know you any more.", ["/sign-in", "Sign in"]);
    return retry();
  }
  const of = await answer.json().catch(() => ({ reason: `The device manager refuses this page (${answer.status}).` }));
  const there = elsewhere(of.dashboard);
  if (answer.status === 403) lose(of.reason, ["/sign-in", "Sign in with another token"]);
  else lose(of.reason, there ? [there.href, "Dashboard of the leader"] : undefined);
  if (!there) return retry();
  // Two managers that take each other for the leader would send the page to and fro.
  retry(RETRY, () => (hasTrace() ? connect() : location.replace(there.href + location.hash)));
}

async function connect() {
  if (document.hidden) return;
  try {
    const answer = await fetch("/session", { cache: "no-store", signal: AbortSignal.timeout(SILENCE) });
    if (!answer.ok) return await refused(answer);
    const me = await answer.json();
    put("who", me.authenticates ? me.user + (me.admin ? " (administrator)" : "") : "no authentication");
    by("sign-out").hidden = !me.by_token;
    // Meanwhile the page may have been hidden.
    if (!document.hidden) await follow();
  } catch (error) {
    // This page has closed the stream, and knows why.
    if (error.name === "AbortError") return;
    lose("The device manager does not answer. This page tries again each second.");
    retry();
  }
}

function begin() {
  addEventListener("hashchange", draw);
  by("filter").addEventListener("input", (event) => {
    [page.filter, page.first] = [event.target.value, 0];
    draw();
  });
  for (const [id, step] of [["earlier", -ROWS], ["later", ROWS]]) {
    by(id).addEventListener("click", () => {
      page.first += step;
      draw();
    });
  }
  // A page that nobody sees costs the manager nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else retry(0);
  });
  setInterval(() => {
    if (!page.stream || Date.now() - page.heard < SILENCE) return;
    lose("The device manager has sent nothing for 6 s. This page tries again each second.");
    retry(0);
  }, 1000);
  // The address names the view, which the link keeps.
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    by("content").focus();
  });
  traceView.begin();
  connect();
}

begin();
