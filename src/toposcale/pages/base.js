"use strict";
// What both pages share: reading what is packed into the page, and drawing lines over training.

const SVG = "http://www.w3.org/2000/svg";
const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

/** The bytes behind an element that holds base64 of gzip. */
async function unpack(id) {
  const packed = Uint8Array.from(atob($("#" + id).textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function node(name, attributes = {}, text = null, parent = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

/** About `count` round numbers from low to high. */
function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((unit) => unit * power >= rough) || 10);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9; k++) found.push(+(k * step).toPrecision(12));
  return found;
}

function shortNumber(value) {
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (size >= unit) return +(value / (letter === "k" ? 1e3 : unit)).toPrecision(4) + letter;
  return size !== 0 && size < 1e-3 ? value.toExponential(1) : String(+value.toPrecision(4));
}

/** Lowest and highest finite number of some arrays, with room around them; [0, 1] where there is none. */
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

/** Places of steps between 0 and 1: evenly, or by their logarithm where half of them lie in the first tenth. */
function stepScale(steps) {
  const sorted = Float64Array.from(new Set(steps)).sort();
  const last = sorted[sorted.length - 1] || 1;
  const logarithmic = sorted.length > 3 && sorted[sorted.length >> 1] < 0.1 * last;
  const first = sorted.find((step) => step > 0) || 1;
  const raw = logarithmic ? (step) => Math.log10(1 + step / first) : (step) => step;
  const low = raw(sorted[0] || 0), high = raw(last);
  const marks = logarithmic
    ? [...(sorted[0] === 0 ? [0] : []), ...Array.from({ length: 12 }, (_, k) => 10 ** k).filter((mark) => mark >= first && mark <= last)]
    : ticks(sorted[0] || 0, last, 5);
  const place = (step) => (raw(step) - low) / (high - low || 1);
  return { place, marks: marks.filter((mark, k) => !k || !logarithmic || place(mark) - place(marks[k - 1]) > 0.07) };
}

/** A frame with axes; returns the drawing and the functions that place x and y in it. */
function frame({ width = 420, height = 230, title = "", x, y, yCount = 4, xlabel = "", ylabel = "" }) {
  const left = 46, right = 12, top = title ? 24 : 10, bottom = 34;
  const svg = node("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img" });
  node("title", {}, title, svg);
  if (title) node("text", { class: "title", x: 4, y: 14 }, title, svg);
  const px = (value) => left + (width - left - right) * x.place(value);
  const py = (value) => height - bottom - (height - bottom - top) * (value - y[0]) / (y[1] - y[0]);
  for (const mark of yCount ? ticks(y[0], y[1], yCount) : []) {
    node("line", { class: "axis", x1: left, x2: width - right, y1: py(mark), y2: py(mark) }, null, svg);
    node("text", { x: left - 5, y: py(mark) + 4, "text-anchor": "end" }, shortNumber(mark), svg);
  }
  const every = Math.ceil((x.marks.length * 44) / (width - left - right));
  for (const mark of x.marks.filter((_, k) => k % every === 0))
    node("text", { x: px(mark), y: height - bottom + 14, "text-anchor": "middle" }, shortNumber(mark), svg);
  node("line", { class: "axis", x1: left, x2: left, y1: top, y2: height - bottom }, null, svg);
  node("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, xlabel, svg);
  if (ylabel) node("text", { x: 11, y: (top + height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 11 ${(top + height - bottom) / 2})` }, ylabel, svg);
  return { svg, px, py, left, right: width - right, top, bottom: height - bottom };
}

/** Lines over training; a value that is not finite leaves a gap. `now`: a step to mark. */
function lineChart({ series, now = null, yRange = null, ...labels }) {
  const x = stepScale(series.flatMap((line) => [...line.steps]));
  const drawing = frame({ x, y: yRange || extent(series.map((line) => line.values)), xlabel: "training step", ...labels });
  const { svg, px, py } = drawing;
  for (const line of series) {
    let path = "", pen = "M";
    line.values.forEach((value, k) => {
      if (!Number.isFinite(value)) { pen = "M"; return; }
      path += `${pen}${px(line.steps[k]).toFixed(1)} ${py(value).toFixed(1)}`;
      pen = "L";
    });
    const drawn = node("path", { class: "series", d: path || "M0 0", stroke: line.color, "stroke-dasharray": line.dash || "none", "data-model": line.name }, null, svg);
    node("title", {}, line.name, drawn);
    const at = now === null ? -1 : line.steps.indexOf(now);
    if (at >= 0 && Number.isFinite(line.values[at]))
      node("circle", { cx: px(now), cy: py(line.values[at]), r: 4, fill: line.color }, null, svg);
  }
  if (now !== null) node("line", { class: "now", x1: px(now), x2: px(now), y1: drawing.top, y2: drawing.bottom }, null, svg);
  if (!series.some((line) => [...line.values].some(Number.isFinite)))
    node("text", { x: (drawing.left + drawing.right) / 2, y: (drawing.top + drawing.bottom) / 2, "text-anchor": "middle" }, "no values", svg);
  return svg;
}
