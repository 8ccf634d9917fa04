// The dashboard's page. Everything that came from a network is put in as text, never as markup.

const REFRESH_MS = 2000;
const LABELS_MAX = 60; // beyond so many brokers, names appear on hover and focus
const $ = (id) => document.getElementById(id);
let me = { token: null, role: null };
let shape = null; // brokers and links as last seen, for every map

// Elements.

function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, attributes, children);
  return element;
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
}

function show(place, ...children) {
  place.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

function table(columns, rows) {
  const numeric = (column) => (column.number ? "number" : null);
  return h("table", {},
    h("thead", {}, h("tr", {}, ...columns.map((column) => h("th", { class: numeric(column), scope: "col" }, column.name)))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...columns.map((column) => {
      const value = column.of(row);
      return h("td", { class: numeric(column) }, value === null || value === undefined ? "" : value);
    })))));
}

// Numbers.

function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return value.toLocaleString("en", { maximumSignificantDigits: Math.max(digits, String(Math.trunc(Math.abs(value))).length) });
}

const rate = (value) => (value === null || value === undefined ? "–" : `${number(value)}/s`);

function bytes(value) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (value < 1000 || unit === "GB") return `${number(Math.round(value * 10) / 10)} ${unit}`;
    value /= 1000;
  }
  return "";
}

function micros(value) {
  if (value < 1000) return `${number(value)} µs`;
  return value < 1e6 ? `${number(value / 1000)} ms` : `${number(value / 1e6)} s`;
}

const clock = (us) => new Date(us / 1000).toLocaleString([], { dateStyle: "short", timeStyle: "medium" });

// Asking the server.

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Postroad-Token": me.token ?? "" },
    body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("the dashboard does not answer: is postroad dashboard still running?");
  }
  const value = await answer.json();
  if (answer.status === 401) { me.role = null; route(); }
  if (!answer.ok) throw new Error(value.error);
  return value;
}

function trouble(text) {
  $("trouble").hidden = !text;
  if ($("trouble").textContent !== text) $("trouble").textContent = text;
}

async function attempt(work) {
  try {
    await work();
    trouble("");
  } catch (error) {
    trouble(error.message);
  }
}

// Maps: the overlay with something drawn on it.

class Overlay {
  constructor(svg, { onbroker = null, onlink = null } = {}) {
    this.svg = svg;
    this.onbroker = onbroker;
    this.onlink = onlink;
    this.key = "";
    this.nodes = new Map();
    this.links = new Map();
  }

  // Lay out anew if brokers or links are others than before.
  layout(brokers, links) {
    const key = JSON.stringify([brokers.map((b) => [b.name, b.x, b.y]), links.map((l) => [l.a, l.b])]);
    if (key === this.key) return;
    this.key = key;
    this.nodes.clear();
    this.links.clear();
    const xs = brokers.map((b) => b.x), ys = brokers.map((b) => b.y);
    const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const pad = 0.7;
    this.svg.setAttribute("viewBox", `${left - pad} ${top - pad} ${right - left + 2 * pad} ${bottom - top + 2 * pad}`);
    const span = Math.max(right - left, bottom - top) + 2 * pad;
    this.radius = Math.min(0.16, span / 45);
    const places = new Map(brokers.map((b) => [b.name, b]));
    const lineLayer = s("g"), nodeLayer = s("g"), noteLayer = s("g");
    for (const link of links) {
      const a = places.get(link.a), b = places.get(link.b);
      if (!a || !b) continue;
      const ends = { x1: a.x, y1: a.y, x2: b.x, y2: b.y };
      const line = s("line", { ...ends, "stroke-width": 0.02 });
      const title = s("title");
      const hit = s("line", { ...ends, class: "hit", "stroke-width": this.radius }, title);
      if (this.onlink) hit.addEventListener("click", () => this.onlink(link.a, link.b));
      lineLayer.append(line, hit);
      this.links.set(`${link.a}\n${link.b}`, { line, title, a, b });
    }
    const labels = brokers.length <= LABELS_MAX;
    for (const broker of brokers) {
      const title = s("title");
      const circle = s("circle", { cx: broker.x, cy: broker.y, r: this.radius * (1 + Math.log2(broker.members.length) / 6) }, title);
      const many = broker.members.length > 1 ? ` +${broker.members.length - 1}` : "";
      const label = labels ? s("text", { x: broker.x, y: broker.y - 1.5 * this.radius, "font-size": 1.3 * this.radius }, broker.name + many) : null;
      const group = s("g", { tabindex: this.onbroker ? 0 : false, role: this.onbroker ? "button" : false }, circle, ...(label ? [label] : []));
      if (this.onbroker) {
        const act = () => this.onbroker(broker.name);
        group.addEventListener("click", act);
        group.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } });
      }
      nodeLayer.append(group);
      this.nodes.set(broker.name, { group, circle, title, broker });
    }
    this.notes = noteLayer;
    this.svg.replaceChildren(lineLayer, nodeLayer, noteLayer);
  }

  broker(name, { share = null, state = "up", text = "", chosen = false }) {
    const node = this.nodes.get(name);
    if (!node) return;
    set(node.group, "class", `${state}${chosen ? " chosen" : ""}`);
    set(node.circle, "style", null);
    node.circle.style.fill = state === "away" ? "none" : mixed(share);
    if (node.title.textContent !== text) node.title.textContent = text;
    set(node.group, "aria-label", text);
  }

  link(a, b, { share = null, kind = "link", up = true, text = "", colour = null }) {
    const link = this.links.get(`${a}\n${b}`) ?? this.links.get(`${b}\n${a}`);
    if (!link) return;
    const classes = { standby: "standby", "on demand": "demand" };
    set(link.line, "class", up ? classes[kind] ?? "" : "down");
    link.line.style.stroke = up ? colour ?? mixed(share) : "";
    link.line.style.strokeWidth = this.radius * (0.12 + 0.9 * (share ?? 0));
    if (link.title.textContent !== text) link.title.textContent = text;
  }

  note(name, text, kind, dy = 2.4) {
    const node = this.nodes.get(name);
    if (node) this.notes.append(s("text", { x: node.broker.x, y: node.broker.y + dy * this.radius, "font-size": 1.15 * this.radius, class: kind }, text));
  }

  noteOnLink(a, b, text, kind) {
    const link = this.links.get(`${a}\n${b}`) ?? this.links.get(`${b}\n${a}`);
    if (link) this.notes.append(s("text", { x: (link.a.x + link.b.x) / 2, y: (link.a.y + link.b.y) / 2, "font-size": 1.1 * this.radius, class: kind }, text));
  }

  clear() {
    this.notes?.replaceChildren();
    for (const { broker } of this.nodes.values()) this.broker(broker.name, { text: broker.name });
    for (const { a, b } of this.links.values()) this.link(a.name, b.name, { text: `${a.name} – ${b.name}` });
  }
}

function set(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function mixed(share) {
  if (share === null || share === undefined) return "var(--low)";
  return `color-mix(in oklab, var(--high) ${Math.round(100 * Math.min(1, share))}%, var(--low))`;
}

// A share of the largest, by logarithm, so that small rates are seen beside large ones.
function scaled(value, largest) {
  if (!value || !largest) return 0;
  return Math.log1p(9 * value / largest) / Math.log(10);
}

const shownAs = (name) => shape.brokers.find((b) => b.members.includes(name))?.name ?? name;

// Overview.

let chosen = null; // {broker} or {a, b}
const overview = new Overlay($("map"), {
  onbroker: (broker) => { chosen = { broker }; drawOverview(); },
  onlink: (a, b) => { chosen = { a, b }; drawOverview(); },
});

async function refresh() {
  shape = await ask("/api/overview");
  $("scheme").textContent = shape.scheme + (shape.relocation ? ` + ${shape.relocation}` : "");
  if (current() === "overview") drawOverview();
}

function drawOverview() {
  if (!shape) return;
  const { brokers, links, totals } = shape;
  overview.layout(brokers, links);
  const busiest = Math.max(...links.map((l) => (l.rate_ab ?? 0) + (l.rate_ba ?? 0)), 0);
  for (const broker of brokers) {
    const cpu = broker.rates?.cpu ?? null;
    const text = broker.state.is === "up"
      ? `broker ${broker.name}: ${cpu === null ? "" : `${number(100 * cpu)}% of a core, `}${rate(broker.rates?.messages)} messages, ${broker.connections} clients`
      : `broker ${broker.name}: ${broker.state.is}, ${broker.state.why}`;
    overview.broker(broker.name, { share: cpu, state: broker.state.is, text, chosen: chosen?.broker === broker.name });
  }
  for (const link of links) {
    const both = link.rate_ab === null && link.rate_ba === null ? null : (link.rate_ab ?? 0) + (link.rate_ba ?? 0);
    overview.link(link.a, link.b, {
      share: scaled(both, busiest), kind: link.kind, up: link.up,
      text: `${link.a} – ${link.b} (${link.kind}): ${link.up ? `${rate(both)} messages` : link.why}`,
    });
  }
  const rates = totals.rates ?? {};
  const tile = (name, value, bad = false) => h("div", { class: bad ? "bad" : null }, h("dt", {}, name), h("dd", {}, value));
  show($("tiles"),
    tile("brokers answering", `${totals.answering} of ${totals.brokers}`, totals.answering < totals.brokers),
    tile("clients", number(totals.connections)),
    tile("subscriptions", number(totals.subscriptions)),
    tile("published", rate(rates.published)),
    tile("delivered", rate(rates.delivered)),
    tile("messages between brokers", rate(rates.sent)),
    tile("messages a publication", number(totals.messages_per_publication)),
    tile("queued on links", number(totals.queued)),
    tile("in flight", number(totals.in_flight)),
    tile("waiting for clients", number(totals.waiting)),
    tile("dropped", number(totals.dropped), totals.dropped > 0),
    shape.trees.length ? tile(shape.trees.length > 1 ? "trees (repairing or parted)" : "repairs", shape.trees.length > 1 ? shape.trees.length : number(shape.trees[0].changes), shape.trees.length > 1) : null);
  const sample = (kind, text) => h("span", {}, smallLine(kind), ` ${text}`);
  show($("legend"), sample("", shape.trees.length ? "tree" : "link"), ...(shape.trees.length ? [sample("standby", "standby")] : []),
    sample("demand", "on demand"), sample("down", "down"),
    h("span", {}, `width and colour by rate, up to ${rate(busiest)}; brokers by processor time`),
    h("span", {}, shape.clustered ? "outer brokers are drawn with those they hang from" : "all numbers are the brokers' own counters, none is sampled"));
  drawDetail();
  drawLines();
  drawTables();
}

function smallLine(kind) {
  const svg = s("svg", { class: "map", viewBox: "0 0 .6 .2", "aria-hidden": "true" }, s("line", { x1: 0, y1: 0.1, x2: 0.6, y2: 0.1, "stroke-width": 0.05, class: kind }));
  svg.style.width = "2.4rem"; svg.style.height = ".8rem"; svg.style.border = "0";
  return svg;
}

function facts(pairs) {
  return h("table", {}, h("tbody", {}, ...pairs.filter((pair) => pair).map(([name, value]) =>
    h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, value)))));
}

function drawDetail() {
  const place = $("detail");
  if (chosen?.broker) {
    const broker = shape.brokers.find((b) => b.name === chosen.broker);
    if (!broker) { chosen = null; return; }
    const rates = broker.rates ?? {};
    show(place, h("h3", {}, `Broker ${broker.name}`),
      h("p", { class: broker.state.is === "up" ? "yes" : "no" }, broker.state.is === "up" ? "up" : `${broker.state.is}: ${broker.state.why}`),
      broker.members.length > 1 ? h("p", { class: "quiet" }, `with ${broker.members.filter((m) => m !== broker.name).join(", ")}`) : null,
      facts([
        ["processor", rates.cpu === undefined ? "–" : `${number(100 * rates.cpu)}% of a core`],
        ["clients connected", number(broker.connections)], ["sessions", number(broker.sessions)],
        ["subscriptions", number(broker.subscriptions)], ["routing entries", number(broker.table_entries)],
        ["published here", rate(rates.published)], ["delivered here", rate(rates.delivered)],
        ["messages in and out", rate(rates.messages)], ["queued on links", number(broker.queued)],
        ["waiting for clients", number(broker.waiting)], ["in flight", number(broker.in_flight)],
        ["held for clients", bytes(broker.held_bytes)], ["retained", number(broker.retained)],
        ["dropped", number(broker.dropped)], ["refused", number(broker.refused)],
        ["loop lag", broker.lag_ms === null ? "–" : `${number(broker.lag_ms)} ms`],
      ]));
  } else if (chosen?.a) {
    const link = shape.links.find((l) => l.a === chosen.a && l.b === chosen.b);
    if (!link) { chosen = null; return; }
    show(place, h("h3", {}, `Link ${link.a} – ${link.b}`),
      h("p", { class: link.up ? "yes" : "no" }, link.up ? `up, ${link.kind}` : `down: ${link.why}`),
      facts([
        [`${link.a} to ${link.b}`, `${rate(link.rate_ab)} messages`], [`${link.b} to ${link.a}`, `${rate(link.rate_ba)} messages`],
        ["queued", number(link.queued)], ["cuts", number(link.cuts)], ["sent again", number(link.resent)], ["lost", number(link.dropped)],
      ]));
  } else {
    const away = shape.brokers.filter((b) => b.state.is !== "up");
    const down = shape.links.filter((l) => !l.up && l.kind !== "on demand");
    show(place, h("h3", {}, away.length || down.length ? "What is not as it should be" : "All brokers and links are up"),
      h("ul", {}, ...away.map((b) => h("li", {}, `${b.name}: ${b.state.is}, ${b.state.why}`)), ...down.map((l) => h("li", {}, `${l.a} – ${l.b}: ${l.why}`))),
      ...shape.trees.map((tree) => h("p", { class: "quiet" }, `tree ${tree.id.join(".")}: ${tree.brokers.length} brokers, ${number(tree.changes)} repairs${tree.left_out.length ? `, without ${tree.left_out.join(", ")}` : ""}`)),
      h("p", { class: "quiet" }, "Choose a broker or a link for its numbers."));
  }
}

const SERIES = [["published", "--accent"], ["delivered", "--good"], ["messages", "--quiet"], ["dropped", "--bad"]];

function drawLines() {
  const lines = shape.lines;
  const svg = $("lines");
  svg.setAttribute("viewBox", "0 0 120 40");
  svg.setAttribute("preserveAspectRatio", "none");
  const most = Math.max(...lines.flatMap((row) => SERIES.map(([name]) => row[name])), 1e-9);
  show(svg, ...SERIES.map(([name, colour]) => {
    const path = s("path", { d: lines.map((row, n) => `${n ? "L" : "M"}${120 - lines.length + n + 1} ${38 - 36 * row[name] / most}`).join("") || "M0 0" });
    path.style.stroke = `var(${colour})`;
    return path;
  }));
  const last = lines[lines.length - 1];
  show($("lines-legend"), ...SERIES.map(([name, colour]) => {
    const word = h("span", {}, `${name} ${last ? rate(last[name]) : ""}`);
    word.style.color = `var(${colour})`;
    return word;
  }), h("span", {}, `full height ${rate(most)}`));
}

function drawTables() {
  if (!$("broker-table").closest("details").open) return;
  show($("broker-table"), table([
    { name: "broker", of: (b) => b.name }, { name: "state", of: (b) => `${b.state.is}${b.state.why ? `: ${b.state.why}` : ""}` },
    { name: "clients", number: true, of: (b) => number(b.connections) }, { name: "subscriptions", number: true, of: (b) => number(b.subscriptions) },
    { name: "entries", number: true, of: (b) => number(b.table_entries) }, { name: "published", number: true, of: (b) => rate(b.rates?.published) },
    { name: "delivered", number: true, of: (b) => rate(b.rates?.delivered) }, { name: "messages", number: true, of: (b) => rate(b.rates?.messages) },
    { name: "queued", number: true, of: (b) => number(b.queued) },
  ], shape.brokers));
  show($("link-table"), table([
    { name: "link", of: (l) => `${l.a} – ${l.b}` }, { name: "kind", of: (l) => l.kind }, { name: "state", of: (l) => (l.up ? "up" : `down: ${l.why}`) },
    { name: "there", number: true, of: (l) => rate(l.rate_ab) }, { name: "back", number: true, of: (l) => rate(l.rate_ba) },
    { name: "queued", number: true, of: (l) => number(l.queued) },
  ], shape.links));
}

$("broker-table").closest("details").addEventListener("toggle", () => shape && drawTables());

// Follow a publication.

const followed = new Overlay($("way-map"));

async function listPublications(search = "") {
  const rows = await ask(`/api/publications?${new URLSearchParams({ search })}`);
  $("sampled").textContent = me.sample !== null && me.sample < 1 ? `${number(100 * me.sample)}% of publications are recorded; only these are listed.` : "";
  show($("publications"), rows.length ? table([
    { name: "when", of: (r) => clock(r.time_us) }, { name: "at", of: (r) => r.broker },
    { name: "publication", of: (r) => h("button", { class: "link", type: "button", onclick: () => follow(r.publication) }, r.publication) },
    { name: "content", of: (r) => h("code", {}, JSON.stringify(r.attributes)) },
  ], rows) : h("p", { class: "quiet" }, "None is recorded."));
}

async function follow(publication, client = $("follow-form").client.value.trim()) {
  await attempt(async () => {
    const way = await ask(`/api/way?${new URLSearchParams({ publication, client })}`);
    $("follow-form").publication.value = way.publication;
    drawWay(way);
    $("way-map").scrollIntoView({ block: "nearest" });
  });
}

function drawWay(way) {
  const sends = way.visits.flatMap((visit) => visit.sent_to.map((peer) => [shownAs(visit.broker), shownAs(peer)]));
  const known = new Set(shape.links.map((l) => [l.a, l.b].sort().join("\n")));
  const extra = sends.filter(([a, b]) => a !== b && !known.has([a, b].sort().join("\n"))).map(([a, b]) => ({ a, b }));
  followed.layout(shape.brokers, [...shape.links, ...extra]);
  followed.clear();
  const arrival = new Map(way.visits.map((visit) => [visit.broker, visit.time_us]));
  for (const visit of way.visits) {
    const name = shownAs(visit.broker);
    followed.broker(name, { share: visit.delivered_to.length ? 1 : 0.4, chosen: visit.came_from === null, text: `${visit.broker}: ${visit.came_from === null ? "published here" : `after ${micros(visit.time_us)}`}${visit.delivered_to.length ? `, delivered to ${visit.delivered_to.length}` : ""}` });
    followed.note(name, visit.came_from === null ? "published" : micros(visit.time_us), "time");
    for (const peer of visit.sent_to) {
      const hop = arrival.has(peer) ? arrival.get(peer) - visit.time_us : null;
      followed.link(name, shownAs(peer), { share: 0.8, text: `${visit.broker} to ${peer}: ${hop === null ? "no arrival recorded" : micros(hop)}` });
      if (hop === null) followed.noteOnLink(name, shownAs(peer), "?", "stop");
    }
  }
  for (const stop of way.stops) {
    const text = `✕ ${stop.reason}`;
    if (stop.peer) followed.noteOnLink(shownAs(stop.broker), shownAs(stop.peer), text, "stop");
    else if (!stop.client) followed.note(shownAs(stop.broker), text, "stop", 3.8);
  }
  show($("way-legend"), h("span", {}, "dark brokers delivered it; under each, the time since it was published; ✕ where a branch stopped, and why"));
  const answer = way.answer;
  show($("way"), h("h3", {}, way.publication), h("p", { class: "quiet" }, clock(way.time_us)),
    answer ? h("p", { class: answer.delivered ? "yes" : "no" }, h("b", {}, `${answer.client}: ${answer.cause}. `), answer.sentence) : null,
    h("p", {}, h("code", {}, JSON.stringify(way.attributes))),
    h("h3", {}, "Way"),
    h("ol", {}, ...way.visits.map((visit) => h("li", {},
      h("b", {}, visit.broker), ` ${visit.came_from === null ? "published" : `+${micros(visit.time_us)} from ${visit.came_from}`}`,
      visit.sent_to.length ? `; to ${visit.sent_to.join(", ")}` : "",
      visit.delivered_to.length ? `; delivered to ${visit.delivered_to.length}` : "",
      ...visit.stopped.map((reason) => h("span", { class: "no" }, `; stopped: ${reason}`)),
      ...(visit.misses.length ? [h("ul", {}, h("li", {}, `${visit.towards} asks for `, h("code", {}, visit.entry ?? "nothing")), ...visit.misses.map((miss) => h("li", {}, h("mark", {}, miss))))] : [])))),
    h("h3", {}, `Deliveries (${way.deliveries.length})`),
    h("div", { class: "scroll" }, table([
      { name: "client", of: (d) => h("button", { class: "link", type: "button", onclick: () => { $("follow-form").client.value = d.client; follow(way.publication, d.client); } }, d.client) },
      { name: "at", of: (d) => d.broker }, { name: "after", number: true, of: (d) => micros(d.after_us) }, { name: "links", number: true, of: (d) => number(d.hops) }, { name: "way", of: (d) => d.mechanism },
    ], way.deliveries.slice(0, 50))));
}

$("follow-form").addEventListener("submit", (event) => {
  event.preventDefault();
  follow(event.target.publication.value.trim());
});
$("publications-form").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(() => listPublications(event.target.search.value));
});

// Test a filter, try a publication.

function content(attributes, wrong) {
  const parts = Object.entries(attributes).flatMap(([name, value], n) => {
    const text = `${JSON.stringify(name)}: ${JSON.stringify(value)}`;
    return [n ? ", " : "", wrong.has(name) ? h("mark", {}, text) : text];
  });
  return h("code", {}, "{", ...parts, "}");
}

$("filter-form").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    const answer = await ask("/api/filter", { filter: event.target.filter.value });
    const matched = answer.verdict.matched;
    show($("verdict"),
      h("p", { class: matched ? "yes" : "no" }, h("b", {}, `${answer.verdict.cause}. `), answer.verdict.sentence),
      h("p", { class: "quiet" }, "read as ", h("code", {}, answer.filter)),
      h("h3", {}, `Against the newest ${number(answer.tried_count)} publications`),
      h("div", { class: "scroll" }, table([
        { name: "", of: (t) => h("span", { class: t.matches ? "yes" : "no" }, t.matches ? "matches" : "no") },
        { name: "publication", of: (t) => h("button", { class: "link", type: "button", onclick: () => { location.hash = "follow"; follow(t.publication, ""); } }, t.publication) },
        { name: "content", of: (t) => content(t.attributes, new Set(t.misses.map((m) => m.attribute))) },
        { name: "false predicates", of: (t) => h("span", {}, ...t.misses.map((m) => h("div", {}, h("mark", {}, m.predicate), ` ${m.text.slice(m.predicate.length)}`))) },
      ], answer.tried)),
      h("h3", {}, `Subscriptions that overlap it (${number(answer.alike_count)})`),
      h("div", { class: "scroll" }, table([
        { name: "client", of: (a) => a.client }, { name: "at", of: (a) => a.broker }, { name: "filter", of: (a) => h("code", {}, a.filter) },
      ], answer.alike)));
  });
});

$("would-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const { broker, topic, payload } = event.target;
  attempt(async () => {
    const answer = await ask("/api/would", { broker: broker.value, topic: topic.value, payload: payload.value });
    const reached = answer.deliveries.filter((d) => d.reason === null);
    show($("would"),
      h("p", {}, `It would come to ${new Set(answer.stops.map((stop) => stop.broker)).size} brokers and be delivered to ${reached.length} of ${answer.deliveries.length} matching subscriptions. Nothing was sent.`),
      h("div", { class: "scroll" }, table([
        { name: "links", number: true, of: (stop) => number(stop.hops) }, { name: "broker", of: (stop) => stop.broker }, { name: "sends to", of: (stop) => stop.sent_to.join(", ") },
        { name: "delivers to", of: (stop) => stop.deliveries.map((d) => d.client + (d.reason ? ` (${d.reason})` : "")).join(", ") }, { name: "notes", of: (stop) => stop.notes.join("; ") },
      ], answer.stops)),
      answer.unreachable.length ? h("p", { class: "no" }, `${answer.unreachable.join(", ")} did not answer`) : null);
  });
});

// Clients, subscriptions, topics.

async function search() {
  const form = $("search-form");
  const what = form.what.value;
  const text = form.search.value;
  const answer = await ask(`/api/${what}?${new URLSearchParams({ search: text })}`);
  const rows = what === "topics" ? answer : answer.rows;
  $("found-count").textContent = `${number(answer.count ?? rows.length)} ${what}${answer.away?.length ? `; ${answer.away.join(", ")} did not answer` : ""}`;
  const columns = {
    clients: [
      { name: "client", of: (r) => r.client }, { name: "user", of: (r) => r.user }, { name: "at", of: (r) => r.broker },
      { name: "connected", of: (r) => (r.connected ? `MQTT ${r.mqtt} from ${r.address}` : "away") },
      { name: "subscriptions", number: true, of: (r) => number(r.subscriptions) }, { name: "waiting", number: true, of: (r) => number(r.waiting) },
      { name: "in flight", number: true, of: (r) => number(r.in_flight) }, { name: "held", number: true, of: (r) => bytes(r.held_bytes) }, { name: "dropped", number: true, of: (r) => number(r.dropped) },
      { name: "", of: (r) => (me.role === "operate" && r.connected ? h("button", { type: "button", onclick: () => kick(r.client) }, "Disconnect") : null) },
    ],
    subscriptions: [
      { name: "client", of: (r) => r.client }, { name: "at", of: (r) => r.broker }, { name: "topic", of: (r) => h("code", {}, r.topic) },
      { name: "filter", of: (r) => h("code", {}, r.filter) }, { name: "QoS", number: true, of: (r) => number(r.qos) },
    ],
    topics: [{ name: "topic", of: (r) => h("code", {}, r.topic) }, { name: "publications recorded", number: true, of: (r) => number(r.publications) }],
  }[what];
  show($("found"), table(columns, rows));
}

async function kick(client) {
  if (!(await confirmed(`Disconnect ${client}? Its session stays.`))) return;
  await attempt(async () => {
    await ask("/api/kick", { client });
    await search();
  });
}

$("search-form").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(search);
});
$("search-form").addEventListener("change", (event) => { if (event.target.name === "what") attempt(search); });

function confirmed(text) {
  const dialog = $("confirm");
  $("confirm-text").textContent = text;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

// Time.

let minutes = [];
let playing = null;
const past = new Overlay($("minute-map"));

async function loadMinutes() {
  const answer = await ask("/api/minutes");
  const atEnd = Number($("slider").value) === minutes.length - 1 || !minutes.length;
  minutes = answer.minutes;
  $("slider").max = minutes.length - 1;
  if (atEnd) $("slider").value = minutes.length - 1;
  $("minute-note").textContent = [
    answer.partial ? "Older publications are not held; slide within what is." : "",
    me.sample !== null && me.sample < 1 ? `Counts are of the ${number(100 * me.sample)}% of publications that are recorded.` : "",
  ].join(" ");
  const svg = $("minutes");
  const most = Math.max(...minutes.map((m) => m.messages), 1);
  svg.setAttribute("viewBox", `0 0 ${minutes.length} 40`);
  svg.setAttribute("preserveAspectRatio", "none");
  show(svg, ...minutes.map((m, n) => {
    const bar = s("rect", { x: n + 0.1, width: 0.8, y: 40 - 38 * m.messages / most, height: 38 * m.messages / most });
    bar.style.fill = "var(--accent)";
    return bar;
  }));
  await drawMinute();
}

async function drawMinute() {
  const at = minutes[Number($("slider").value)];
  if (!at) return;
  $("clock").textContent = `${clock(at.at_us)}: ${number(at.publications)} publications, ${number(at.messages)} messages`;
  const answer = await ask(`/api/minute?${new URLSearchParams({ at_us: at.at_us })}`);
  drawLoads(past, answer.links, Object.fromEntries(Object.entries(answer.brokers).map(([name, counts]) => [name, Object.values(counts).reduce((a, b) => a + b, 0)])), null);
}

// Messages over links, both ways together, as drawn brokers see them.
function together(links) {
  const sums = new Map();
  for (const { a, b, messages } of links) {
    const pair = [shownAs(a), shownAs(b)].sort();
    if (pair[0] === pair[1]) continue;
    const key = pair.join("\n");
    sums.set(key, (sums.get(key) ?? 0) + messages);
  }
  return sums;
}

function drawLoads(map, links, brokers, scale) {
  const sums = together(links);
  map.layout(shape.brokers, [...sums.keys()].map((key) => { const [a, b] = key.split("\n"); return { a, b }; }));
  map.clear();
  const most = scale?.link ?? Math.max(...sums.values(), 1);
  for (const [key, messages] of sums) {
    const [a, b] = key.split("\n");
    map.link(a, b, { share: scaled(messages, most), text: `${a} – ${b}: ${number(messages)} messages` });
  }
  const load = new Map();
  for (const [name, count] of Object.entries(brokers)) load.set(shownAs(name), (load.get(shownAs(name)) ?? 0) + count);
  const heaviest = scale?.broker ?? Math.max(...load.values(), 1);
  for (const broker of shape.brokers) {
    const count = load.get(broker.name) ?? 0;
    map.broker(broker.name, { share: scaled(count, heaviest), text: `${broker.name}: ${number(count)}` });
  }
}

$("slider").addEventListener("input", () => attempt(drawMinute));
$("play").addEventListener("click", () => {
  if (playing) { clearInterval(playing); playing = null; }
  else {
    playing = setInterval(() => {
      const slider = $("slider");
      slider.value = Number(slider.value) >= minutes.length - 1 ? 0 : Number(slider.value) + 1;
      attempt(drawMinute);
    }, 1000);
  }
  $("play").textContent = playing ? "Pause" : "Play";
  $("play").setAttribute("aria-pressed", String(Boolean(playing)));
});

$("replay-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const at = minutes[Number($("slider").value)];
  const { left, right } = event.target;
  attempt(async () => {
    if (!at) throw new Error("no minute is recorded");
    show($("replay"), h("p", { class: "quiet" }, "Simulating the minute under both…"));
    const query = new URLSearchParams([["at_us", at.at_us], ["scheme", left.value], ["scheme", right.value]]);
    try {
      drawReplay(await ask(`/api/replay?${query}`));
    } catch (error) {
      show($("replay"));
      throw error;
    }
  });
});

function drawReplay(answer) {
  const [left, right] = answer.sides;
  const sums = answer.sides.map((side) => together(side.links));
  const scale = { link: Math.max(1, ...sums.flatMap((sum) => [...sum.values()])), broker: Math.max(1, ...answer.sides.flatMap((side) => Object.values(side.brokers))) };
  const figures = answer.sides.map((side) => {
    const svg = s("svg", { class: "map", role: "img", "aria-label": `The minute under ${side.scheme}` });
    drawLoads(new Overlay(svg), side.links, side.brokers, scale);
    return h("figure", {}, h("figcaption", {}, h("b", {}, side.scheme), `: ${number(side.figures.messages)} messages`), svg);
  });
  const svg = s("svg", { class: "map", role: "img", "aria-label": `Difference on each link` });
  const map = new Overlay(svg);
  const keys = [...new Set([...sums[0].keys(), ...sums[1].keys()])];
  const changes = keys.map((key) => ({ key, pair: key.split("\n"), left: sums[0].get(key) ?? 0, right: sums[1].get(key) ?? 0 }));
  const most = Math.max(1, ...changes.map((c) => Math.abs(c.right - c.left)));
  map.layout(shape.brokers, changes.map((c) => ({ a: c.pair[0], b: c.pair[1] })));
  map.clear();
  for (const change of changes) {
    const more = change.right - change.left;
    map.link(...change.pair, { share: scaled(Math.abs(more), most), colour: more === 0 ? "var(--low)" : more > 0 ? "var(--more)" : "var(--less)", text: `${change.pair.join(" – ")}: ${more > 0 ? "+" : ""}${number(more)}` });
  }
  changes.sort((x, y) => Math.abs(y.right - y.left) - Math.abs(x.right - x.left));
  const names = { messages: "messages", messages_per_publication: "messages a publication", deliveries: "deliveries", missing: "missing", delay_us_p50: "delay p50", delay_us_p90: "delay p90", table_entries_mean: "entries a broker", busiest_broker_messages: "at the busiest broker" };
  const value = (name, number_) => (name.startsWith("delay") ? micros(number_) : number(number_));
  show($("replay"),
    ...answer.warnings.map((warning) => h("p", { class: "quiet" }, warning)),
    answer.left_out ? h("p", { class: "quiet" }, `${number(answer.left_out)} publications of this minute are left out`) : null,
    h("div", { class: "scroll" }, table([
      { name: "", of: ([, label]) => label }, { name: left.scheme, number: true, of: ([name]) => value(name, left.figures[name]) },
      { name: right.scheme, number: true, of: ([name]) => value(name, right.figures[name]) },
    ], Object.entries(names))),
    h("div", { class: "pair" }, ...figures, h("figure", {}, h("figcaption", {}, `${right.scheme} against ${left.scheme}: green less, red more`), svg)),
    h("div", { class: "scroll" }, table([
      { name: "link", of: (c) => c.pair.join(" – ") }, { name: left.scheme, number: true, of: (c) => number(c.left) },
      { name: right.scheme, number: true, of: (c) => number(c.right) }, { name: "difference", number: true, of: (c) => `${c.right > c.left ? "+" : ""}${number(c.right - c.left)}` },
    ], changes.slice(0, 20))));
}

// Advice.

const TITLES = {
  move: (c) => `Move ${c.publisher} from ${c.now} to ${c.instead}`,
  switch: (c) => `Run ${c.instead} instead of ${c.now}`,
  link: (c) => `Link ${c.instead} instead of ${c.now}`,
};

async function loadAdvice() {
  const answer = await ask("/api/advice");
  show($("cards"), ...(answer.cards.length ? answer.cards.map(card) : [h("p", { class: "quiet" }, "Nothing would save anything that is worth it.")]));
  $("applied-title").hidden = !answer.applied.length;
  show($("applied"), answer.applied.length ? table([
    { name: "when", of: (a) => clock(a.time_us) }, { name: "what", of: (a) => TITLES[a.card.action](a.card) },
    { name: "messages a publication before", number: true, of: (a) => number(a.before) }, { name: "after", number: true, of: (a) => number(a.after) },
    { name: "saved", number: true, of: (a) => (a.before === null || a.after === null ? "not known yet" : `${number(100 * (a.before - a.after) / a.before)}%`) },
  ], answer.applied) : null);
}

function card(advice) {
  const title = (TITLES[advice.action] ?? ((c) => `${c.action}: ${c.instead}`))(advice);
  const can = advice.action === "move";
  return h("article", { class: `card${advice.advised ? " advised" : ""}` },
    h("h3", {}, title),
    h("p", {}, `saves ${number(advice.saving)} (${number(advice.saving_low)} to ${number(advice.saving_high)}) of ${number(advice.messages)} messages in the last ${number(advice.windows)} windows`),
    h("p", { class: "quiet" }, advice.change_messages === null ? "what the change costs is not known" : `the change takes ${number(advice.change_messages)} messages`),
    h("p", { class: advice.advised ? "yes" : "quiet" }, advice.advised ? "advised: it has lasted, and pays" : "not advised yet: it has not lasted, or does not pay"),
    can ? (me.role === "operate" ? h("button", { class: "strong", type: "button", onclick: () => apply(advice, title) }, "Apply") : h("p", { class: "quiet" }, "who may operate can apply it here")) : h("p", { class: "quiet" }, advice.how));
}

async function apply(advice, title) {
  if (!(await confirmed(`${title}?`))) return;
  await attempt(async () => {
    await ask("/api/apply", { id: advice.id });
    await loadAdvice();
  });
}

// Views.

const current = () => location.hash.slice(1).split("?")[0] || "overview";
const OPENED = {
  follow: () => listPublications($("publications-form").search.value),
  clients: search,
  time: loadMinutes,
  advice: loadAdvice,
};

async function route() {
  const view = me.role === null ? "login" : current();
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== view;
  for (const link of $("views").children) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view !== "time" && playing) $("play").click();
  document.title = `${view} · ${me.network ?? "Postroad"}`;
  if (view === "login") return;
  await attempt(async () => {
    if (!shape) await refresh();
    if (view === "overview") drawOverview();
    if (view === "follow") { followed.layout(shape.brokers, shape.links); }
    if (view === "filter" && !$("would-form").broker.children.length) show($("would-form").broker, ...shape.brokers.flatMap((b) => b.members).map((name) => h("option", {}, name)));
    if (OPENED[view]) await OPENED[view]();
  });
}

async function start() {
  await attempt(async () => {
    me = await ask("/api/me");
    $("network").textContent = me.network;
    show($("me"), me.name ? h("span", {}, `${me.name} (${me.role}) `, h("button", { type: "button", onclick: leave }, "Log out")) : null,
      me.open && me.role === "look" ? h("button", { type: "button", onclick: () => { me.role = null; route(); } }, "Operate…") : null);
    $("login-name").hidden = me.open;
    $("login-word").textContent = me.open ? "Key, as postroad dashboard --operate printed it" : "Password";
    for (const select of [$("replay-form").left, $("replay-form").right]) show(select, ...Object.keys(me.schemes).map((name) => h("option", {}, name)));
  });
  if (shape === null && me.role !== null) await attempt(refresh);
  if (shape) { $("replay-form").left.value = shape.scheme; }
  await route();
}

async function leave() {
  await attempt(() => ask("/api/logout", {}));
  await start();
}

$("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const { name, password } = event.target;
  attempt(async () => {
    await ask("/api/login", { name: name.value, password: password.value });
    password.value = "";
    await start();
  });
});

window.addEventListener("hashchange", route);
setInterval(() => { if (!document.hidden && me.role !== null && current() === "overview") attempt(refresh); }, REFRESH_MS);
start();
