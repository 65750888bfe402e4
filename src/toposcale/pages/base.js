"use strict";
// What both pages share: reading what is packed into the page, and charts by Plotly.

const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
const distinct = (values) => [...new Set(values)];

/** A new element with these properties and data attributes. */
const create = (tag, properties, data = {}) => {
  const made = Object.assign(document.createElement(tag), properties);
  Object.assign(made.dataset, data);
  return made;
};

const SIZES = [[1e9, "G"], [1e6, "M"], [1e4, "k"]];

/** A number as people read it: at most `digits` significant digits, whole numbers whole. */
function shortNumber(value, digits = 3) {
  if (!Number.isFinite(value)) return "none";
  const size = Math.abs(value);
  for (const [unit, letter] of SIZES) if (size >= unit) return +(value / (letter === "k" ? 1e3 : unit)).toPrecision(digits) + letter;
  return size !== 0 && size < 1e-3 ? value.toExponential(digits - 1) : String(+value.toPrecision(digits));
}

/** The text behind an element that holds base64 of gzip. */
async function unpack(id) {
  const packed = await (await fetch("data:;base64," + $("#" + id).textContent)).blob();
  return new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

let plotlyLoaded = null;
/** Plotly, unpacked when the first chart is drawn. */
function loadPlotly() {
  plotlyLoaded ??= unpack("plotly").then((text) => document.head.append(create("script", { textContent: text })));
  return plotlyLoaded;
}

/** A feature or metric of a model over the steps at which it was computed. */
function line(keys, { name, color, steps, columns }, source, layer, feature) {
  const key = keys.findIndex((k) => k.source === source && k.layer === layer && k.feature === feature);
  const { at, values } = columns[key] ?? { at: [], values: [] };
  return { name, color, steps: at ? at.map((k) => steps[k]) : steps, values };
}

/** Lowest and highest number of some arrays, with room around them; [0, 1] where there is none. */
function extent(arrays, room = 0.05) {
  let low = Infinity, high = -Infinity;
  for (const array of arrays) for (const value of array) if (Number.isFinite(value)) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return [0, 1];
  const margin = room * (high - low || Math.abs(high) || 1);
  return [low - margin, high + margin];
}

/** Where steps stand on an axis, and the axis: by their logarithm where half of them lie in the first tenth. */
function stepAxis(steps, range = null) {
  const sorted = Float64Array.from(new Set(steps)).sort();
  const last = sorted[sorted.length - 1] || 1;
  const title = { text: "training step" };
  if (!(sorted.length > 3 && sorted[sorted.length >> 1] < 0.1 * last)) return { place: (step) => step, axis: { title, tickformat: "~s", ...(range && { range }) } };
  // A logarithmic axis of Plotly has no step 0.
  const first = sorted.find((step) => step > 0);
  const place = (step) => Math.log10(1 + step / first);
  const marks = [0, ...Array.from({ length: 12 }, (_, k) => 10 ** k).filter((mark) => mark >= first && mark <= last)];
  return { place, axis: { title, ...(range && { range: range.map(place) }), tickvals: marks.map(place), ticktext: marks.map((mark) => shortNumber(mark)) } };
}

/** One line over training, whose points say their step and value. */
function lineTrace({ name, color, steps, values, dash = "solid" }, place) {
  const few = values.filter((value) => value !== null).length < 3;
  return {
    name, type: "scatter", mode: few ? "lines+markers" : "lines", x: steps.map(place), y: values, customdata: steps, meta: "steps",
    line: { color, width: 1.8, dash }, hovertemplate: "%{fullData.name}<br>step %{customdata:,}: %{y:.4~g}<extra></extra>",
  };
}

const INK = "#222222", GRID = "#e4e4e4";
const AXIS = { gridcolor: GRID, zeroline: false, linecolor: "#6b6b6b", automargin: true };
const SETTINGS = { displayModeBar: false, responsive: true, doubleClick: "reset+autosize" };

// Charts are drawn when they come into view, and again when they are there and what they show has changed.
const makers = new Map();
const inView = new Set();
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) inView.add(target); else inView.delete(target);
    if (isIntersecting) drawChart(target);
  }
}, { rootMargin: "300px" });

/** Have `element` show what `make` returns: {traces, layout, alt, name}, or a text in place of a chart. */
function chart(element, make) {
  if (!makers.has(element)) {
    element.tabIndex = 0;
    element.setAttribute("role", "group");
    element.addEventListener("keydown", walk);
    seen.observe(element);
  }
  makers.set(element, { make, drawn: false });
  if (inView.has(element)) drawChart(element);
}

async function drawChart(element) {
  const todo = makers.get(element);
  if (!todo || todo.drawn) return;
  todo.drawn = true;
  const made = todo.make();
  if (typeof made !== "string") await loadPlotly();
  if (makers.get(element) !== todo) return;  // something newer is drawn by now
  if (typeof made === "string") {
    if (element.data) Plotly.purge(element);
    element.textContent = made;
    return;
  }
  if (!element.data) element.textContent = "";
  const { traces, layout, alt, name } = made;
  element.setAttribute("aria-label", alt);
  element.dataset.name = name;
  await Plotly.react(element, traces, {
    font: { family: "system-ui, DejaVu Sans, sans-serif", size: 11, color: INK }, paper_bgcolor: "#fff", plot_bgcolor: "#fff",
    margin: { l: 48, r: 8, t: 8, b: 38 }, showlegend: traces.length > 1, hovermode: "closest",
    legend: { orientation: "h", traceorder: "normal", y: 1.02, yanchor: "bottom", x: 0, font: { size: 10 } }, ...layout,
    ...(layout.scene ? {} : { xaxis: { ...AXIS, ...layout.xaxis }, yaxis: { ...AXIS, ...layout.yaxis } }),
  }, SETTINGS);
  element.dataset.drawn = String(+(element.dataset.drawn || 0) + 1);
}

/** Arrow keys walk along the points of a chart that has the focus; up and down change the line. */
function walk(event) {
  const element = event.currentTarget, move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0] }[event.key];
  if (!move || !element.data || element.data[0].type === "surface") return;
  event.preventDefault();
  const shown = element.data.map((_, k) => k).filter((k) => element.data[k].hoverinfo !== "skip" && element.data[k].visible !== "legendonly" && element.data[k].x.length);
  if (!shown.length) return;
  const at = element.walked || { line: 0, point: -1 };
  at.line = (at.line + move[0] + shown.length) % shown.length;
  at.point = Math.min(Math.max(at.point + move[1], 0), element.data[shown[at.line]].x.length - 1);
  element.walked = at;
  Plotly.Fx.hover(element, [{ curveNumber: shown[at.line], pointNumber: at.point }]);
}

/** What a chart shows as CSV: the lines that are not hidden, as far as the axes show them. */
function csvOf(element) {
  // A spreadsheet runs a text that begins with = + - or @ as a formula: it has an apostrophe before it.
  const plain = (text) => text.replace(/^[=+@\t\r-]/, "'$&");
  const quoted = (value) => (typeof value === "string" ? `"${plain(value).replaceAll('"', '""')}"` : value ?? "");
  const drawn = element.data.filter((trace) => trace.visible !== "legendonly" && trace.hoverinfo !== "skip");
  const { scene, xaxis, yaxis } = element._fullLayout;
  const text = (axis, otherwise) => axis?.title?.text?.replace(/<br>/g, " ") || otherwise;
  if (scene) {
    const [{ x, y, z }] = drawn;
    return [["x", "y", "loss"], ...z.flatMap((row, i) => row.map((value, j) => [x[j], y[i], value]))].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  }
  const inside = (value, axis) => value !== null && (axis.type === "category" || (value >= Math.min(...axis.range) && value <= Math.max(...axis.range)));
  // An axis of steps may be logarithmic: the step itself stands at the point.
  const place = (trace, x, k) => (trace.meta === "steps" ? [trace.customdata[k]].flat()[0] : x);
  const rows = drawn.flatMap((trace) => Array.from(trace.x, (x, k) => [trace, x, trace.y[k], k])
    .filter(([, x, y]) => inside(x, xaxis) && inside(y, yaxis)).map(([own, x, y, k]) => [own.name, place(own, x, k), y]));
  return [["series", text(xaxis, "x"), text(yaxis, "y")], ...rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
}

/** Buttons that save what a chart shows. */
function exportButtons(element) {
  const button = (label, title, act) => {
    const made = create("button", { type: "button", className: "export", textContent: label, title });
    made.addEventListener("click", () => element.data && act());
    return made;
  };
  return [
    button("PNG", "Save this chart as a picture", () => Plotly.downloadImage(element, { format: "png", scale: 2, filename: element.dataset.name })),
    button("CSV", "Save what this chart shows as a table", () => {
      const href = URL.createObjectURL(new Blob([csvOf(element)], { type: "text/csv" }));
      create("a", { href, download: element.dataset.name + ".csv" }).click();
      setTimeout(() => URL.revokeObjectURL(href), 1000);
    }),
  ];
}
