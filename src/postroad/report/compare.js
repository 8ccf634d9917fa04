"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const rows = data.rows;
const chosen = new Set();
const short = value => {
  const size = Math.abs(value);
  return value.toLocaleString("en", size >= 10000 ? {maximumFractionDigits: 0} : {maximumSignificantDigits: 4});
};
const long = name => data.measures.find(measure => measure.name === name).long;
const brief = text => (data.measures.find(measure => measure.long === text) || {short: text}).short;
const kind = label => label === data.winner ? "winner" : label === data.baseline ? "baseline"
  : chosen.has(label) ? "chosen" : "";

function node(name, attributes, parent, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function option(select, value, text) {
  const made = document.createElement("option");
  made.value = value;
  made.textContent = text;
  select.append(made);
}

// Round steps that cut a range into about five.
function ticks(most) {
  const rough = (most || 1) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough);
  const made = [];
  for (let value = 0; value < most + step * 0.999; value += step) made.push(value);
  return made;
}

// A frame with axes from 0; returns the functions that place a value in it.
function frame(place, xs, ys, names, format = short) {
  const width = 720, height = 400, left = 64, right = 16, top = 12, bottom = 46;
  place.replaceChildren();
  const svg = node("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${names[1]} against ${names[0]}`}, place);
  const across = ticks(Math.max(...xs, 0)), up = ticks(Math.max(...ys, 0));
  const x = value => left + (width - left - right) * value / across.at(-1);
  const y = value => height - bottom - (height - top - bottom) * value / up.at(-1);
  for (const value of across) {
    node("line", {class: "axis", x1: x(value), x2: x(value), y1: top, y2: height - bottom}, svg);
    node("text", {x: x(value), y: height - bottom + 16, "text-anchor": "middle"}, svg, format(value));
  }
  for (const value of up) {
    node("line", {class: "axis", x1: left, x2: width - right, y1: y(value), y2: y(value)}, svg);
    node("text", {x: left - 6, y: y(value) + 4, "text-anchor": "end"}, svg, short(value));
  }
  node("text", {x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle"}, svg, brief(names[0]));
  node("text", {transform: `translate(14 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle"}, svg, brief(names[1]));
  return {svg, x, y, left, top, right: width - right, bottom: height - bottom};
}

// What matters is drawn last, above the grey.
const rank = {"": 0, chosen: 1, least: 2, baseline: 3, winner: 4};
const LEAST = "the least possible";

function lines(place, series, names, format) {
  const at = frame(place, series.flatMap(one => one.x), series.flatMap(one => one.y), names, format);
  for (const one of [...series].sort((a, b) => rank[a.kind] - rank[b.kind])) {
    const points = one.x.map((value, n) => `${at.x(value).toFixed(1)},${at.y(one.y[n]).toFixed(1)}`);
    const line = node("polyline", {class: `series ${one.kind}`, points: points.join(" "), "data-label": one.label}, at.svg);
    node("title", {}, line, one.label);
    line.onclick = () => choose(one.label);
    if (one.dots) one.x.forEach((value, n) => node("title", {}, node("circle", {class: `point ${one.kind}`, r: 3,
      cx: at.x(value), cy: at.y(one.y[n])}, at.svg), `${one.label}: ${short(one.y[n])}`));
  }
}

function drawTrade() {
  const across = $("trade-x").value, up = $("trade-y").value;
  const edge = (name, pick) => data.limits.filter(limit => limit.measure === name).map(limit => limit.value)
    .filter(value => value <= 3 * Math.max(...rows.map(pick)));
  const x = row => row.figures[across].mean, y = row => row.figures[up].mean;
  const at = frame($("trade-plot"), [...rows.map(x), ...edge(across, x)], [...rows.map(y), ...edge(up, y)], [long(across), long(up)]);
  const draw = (style, value, vertical, text) => {
    const place = vertical ? at.x(value) : at.y(value);
    const line = vertical ? {x1: place, x2: place, y1: at.top, y2: at.bottom} : {x1: at.left, x2: at.right, y1: place, y2: place};
    node("title", {}, node("line", {class: style, ...line}, at.svg), text);
  };
  for (const [name, vertical, pick] of [[across, true, x], [up, false, y]]) {
    if (data.least[name] !== undefined) draw("bound", data.least[name], vertical, `the least possible: ${short(data.least[name])}`);
    for (const value of edge(name, pick)) draw("limit", value, vertical, `limit: ${short(value)}`);
  }
  for (const row of [...rows].sort((a, b) => rank[kind(a.label)] - rank[kind(b.label)])) {
    const {mean, half} = row.figures[across], other = row.figures[up];
    const style = `point ${kind(row.label)} ${data.out[row.label] ? "out" : ""}`;
    if (half) node("line", {class: "axis", x1: at.x(Math.max(0, mean - half)), x2: at.x(mean + half), y1: at.y(other.mean), y2: at.y(other.mean)}, at.svg);
    if (other.half) node("line", {class: "axis", x1: at.x(mean), x2: at.x(mean), y1: at.y(Math.max(0, other.mean - other.half)), y2: at.y(other.mean + other.half)}, at.svg);
    const dot = node("circle", {class: style, r: 7, cx: at.x(mean), cy: at.y(other.mean), "data-label": row.label}, at.svg);
    const reason = data.out[row.label] ? `; out: ${data.out[row.label]}` : "";
    dot.onclick = () => choose(row.label);
    node("title", {}, dot, `${row.label}: ${short(mean)}, ${short(other.mean)}${reason}`);
    // Who looks better than the winner is named too.
    const better = data.winner !== null && mean < 0.95 * rows.find(one => one.label === data.winner).figures[across].mean;
    const end = at.x(mean) > 0.6 * at.right;
    if (kind(row.label)) node("text", {x: at.x(mean) + (end ? -10 : 10), y: at.y(other.mean) + (row.label === data.winner ? -10 : 18),
      "text-anchor": end ? "end" : "start"}, at.svg, row.label);
    else if (better) node("text", {class: "aside", x: at.x(mean), y: at.y(other.mean) + 20, "text-anchor": "middle"}, at.svg, row.label);
  }
}

function drawMap(side) {
  const row = rows[$(`${side}-scheme`).value], place = $(`${side}-plot`);
  const size = 480, margin = 14;
  const far = Math.max(...data.places.flat().map(Math.abs), 1e-9);
  const at = value => margin + (size - 2 * margin) * (value / far + 1) / 2;
  place.replaceChildren();
  const svg = node("svg", {viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": `traffic of ${row.label}`}, place);
  const heaviest = row.links.slice(0, 300);
  for (const [a, b, carried] of [...heaviest].reverse()) {
    const share = Math.sqrt(carried / (data.link_max || 1));
    const line = node("line", {x1: at(data.places[a][0]), y1: at(data.places[a][1]), x2: at(data.places[b][0]), y2: at(data.places[b][1]),
      stroke: "var(--base)", "stroke-width": 0.4 + 5 * share, "stroke-opacity": 0.15 + 0.75 * share}, svg);
    node("title", {}, line, `${data.names[a]} – ${data.names[b]}: ${short(carried)}`);
  }
  row.load.forEach((load, n) => {
    const share = load / (data.load_max || 1);
    const dot = node("circle", {cx: at(data.places[n][0]), cy: at(data.places[n][1]), r: 3 + 5 * Math.sqrt(share), "data-load": load,
      fill: `hsl(${50 - 50 * share}, 90%, ${60 - 20 * share}%)`, stroke: "var(--soft)", "stroke-width": 0.5}, svg);
    node("title", {}, dot, `broker ${data.names[n]}: ${short(load)} messages a publication`);
  });
  if (row.links.length > heaviest.length)
    node("text", {x: 6, y: size - 6}, svg, `the ${heaviest.length} heaviest links`);
}

function drawLines() {
  const {least} = data;
  const worst = least.stress_max === undefined ? [] : [{label: `${LEAST}, of the busiest broker`, kind: "least", x: [0, 1],
    y: [least.stress_max, least.stress_max]}];
  lines($("load-plot"), rows.map(row => {
    const load = [...row.load].sort((a, b) => b - a);
    return {label: row.label, kind: kind(row.label), x: load.map((_, k) => (k + 1) / load.length), y: load};
  }).concat(worst), ["share of brokers", "messages per publication"], value => `${Math.round(100 * value)}%`);
  const shares = [...Array(101).keys()].map(k => k / 100);
  lines($("delay-plot"), rows.map(row => ({label: row.label, kind: kind(row.label), x: row.delays, y: shares.slice(0, row.delays.length)}))
    .concat(least.delay_p99_ms === undefined ? [] : [{label: LEAST, kind: "least", x: [50, 90, 99].map(p => least[`delay_p${p}_ms`]),
      y: [0.5, 0.9, 0.99]}]),
    ["delay, ms", "share of deliveries"]);
}

function drawSensitivity() {
  const vary = data.sensitivity[$("vary").value], measure = $("vary-measure").value;
  lines($("vary-plot"), rows.map(row => {
    const points = vary.points[row.label] || [];
    return {label: row.label, kind: kind(row.label), dots: true, x: points.map(point => point.value),
      y: points.map(point => point.measures[measure])};
  }).filter(one => one.x.length), [vary.name, long(measure)]);
}

function drawAll() {
  drawTrade();
  drawLines();
  if (data.sensitivity.length) drawSensitivity();
}

function legend() {
  for (const row of rows) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = row.label;
    button.className = kind(row.label);
    button.setAttribute("aria-pressed", "false");
    button.dataset.label = row.label;
    button.onclick = () => choose(row.label);
    $("legend").append(button);
  }
}

function choose(label) {
  if (!rows.some(row => row.label === label)) return;
  if (!chosen.delete(label)) chosen.add(label);
  for (const button of $("legend").children) button.setAttribute("aria-pressed", chosen.has(button.dataset.label));
  drawAll();
}

function sortBy(button) {
  const head = button.closest("th"), key = button.dataset.key;
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = line => {
    if (key === "label") return line.dataset.label;
    const cell = line.querySelector(`[data-measure="${key}"]`);
    return cell && cell.dataset.value !== "" ? Number(cell.dataset.value) : Infinity;
  };
  const body = $("measures").tBodies[0];
  const sorted = [...body.rows].sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (down ? -1 : 1));
  body.append(...sorted);
}

for (const button of document.querySelectorAll("#measures th button")) button.onclick = () => sortBy(button);
$("all-measures").onchange = event => $("measures").classList.toggle("all", event.target.checked);
$("table-mode").onchange = event => {
  for (const cell of document.querySelectorAll("#measures td[data-measure] small"))
    cell.textContent = event.target.value === "difference" ? cell.parentNode.dataset.change : cell.parentNode.dataset.half;
};
for (const id of ["trade-x", "trade-y", "vary-measure"])
  for (const measure of data.measures) option($(id), measure.name, measure.long);
rows.forEach((row, n) => { option($("left-scheme"), n, row.label); option($("right-scheme"), n, row.label); });
data.sensitivity.forEach((vary, n) => option($("vary"), n, vary.name));
$("trade-x").value = $("vary-measure").value = data.matters;
$("trade-y").value = data.matters === "delay_p90_ms" ? "traffic" : "delay_p99_ms";
if (rows.length) {
  const find = label => Math.max(0, rows.findIndex(row => row.label === label));
  $("left-scheme").value = find(data.winner);
  $("right-scheme").value = find(data.baseline);
  for (const side of ["left", "right"]) { $(`${side}-scheme`).onchange = () => drawMap(side); drawMap(side); }
  $("trade-x").onchange = $("trade-y").onchange = drawTrade;
  $("vary").onchange = $("vary-measure").onchange = drawSensitivity;
  legend();
  drawAll();
}
if (!data.sensitivity.length || !rows.length) $("sensitivity").hidden = true;
