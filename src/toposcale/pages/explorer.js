// The explorer: one slider moves everything that is drawn of two models.

const BARS_DRAWN = 60;  // of each dimension
const KINDS = { u2: Uint16Array, u4: Uint32Array, f4: Float32Array };
const SOURCES = { weights: "the weights", embeddings: "embedded texts", gradients: "the gradients", landscape: "the loss landscape", trajectory: "the training trajectory" };
let run, arrays;
let all = [];  // the steps that the slider goes through
let turn = -0.7;  // of the surfaces, in radians

async function load() {
  const buffer = await unpack("packed");
  const length = new DataView(buffer).getUint32(0, true);
  run = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  arrays = run.arrays.map(([kind, place, count]) => new KINDS[kind](buffer, 4 + length + place, count));
}

const model = (side) => run.models[+$("#" + side).value];
const chosen = () => ({ source: $("#source").value, layer: $("#layer").value, feature: $("#feature").value });
const distinct = (values) => [...new Set(values)];

/** A feature or metric of a model over the steps at which it was computed. */
function line(one, source, layer, feature, dash = "") {
  const key = run.keys.findIndex((k) => k.source === source && k.layer === layer && k.feature === feature);
  const row = one.keys.indexOf(key);
  const all = row < 0 ? [] : arrays[one.values].subarray(row * one.steps.length, (row + 1) * one.steps.length);
  const there = [...all.keys()].filter((k) => all[k] !== Infinity);
  return { name: one.name, color: one.color, dash, steps: there.map((k) => one.steps[k]), values: there.map((k) => all[k]) };
}

/** The last of some steps that is not after `step`; the first of them if all are. */
function before(steps, step) {
  let found = steps[0];
  for (const one of steps) if (one <= step) found = one;
  return found;
}

const ofLayer = (one, source, layer) => one.diagrams.filter((d) => d.source === source && (layer === "all" || d.layer === layer));

/** The bars of a model at a step: (dimension, birth, death), the longest first. */
function bars(one, source, layer, step) {
  const found = [];
  let total = 0;
  for (const part of ofLayer(one, source, layer)) {
    const at = part.steps.indexOf(step);
    if (at < 0) continue;
    total += part.counts[at];
    const decode = (code) => (code > run.top ? Infinity : part.low + (code / run.top) * (part.high - part.low));
    const starts = arrays[part.starts], births = arrays[part.births], deaths = arrays[part.deaths];
    for (let k = starts[at]; k < starts[at + 1]; k++) found.push([part.dimension, decode(births[k]), decode(deaths[k])]);
  }
  found.sort((a, b) => b[2] - b[1] - (a[2] - a[1]) || a[1] - b[1]);
  return { found, total };
}

/** The size of a drawing: as wide as its panel, so that letters keep theirs. */
const size = (ratio) => {
  const width = Math.max(150, panels.leftloss.clientWidth - 18);
  return { width, height: Math.max(150, Math.round(width * ratio)) };
};

/** A linear scale as `frame` wants it. */
const linear = ([low, high], count = 5) => ({ place: (value) => (value - low) / (high - low), marks: count ? ticks(low, high, count) : [] });

function diagramRange(models, source, layer) {
  const parts = models.flatMap((one) => ofLayer(one, source, layer));
  return extent([parts.flatMap((part) => [part.low, part.high])], 0.04);
}

function drawDiagram({ found }, range) {
  const drawing = frame({ ...size(0.9), x: linear(range), y: range, xlabel: "birth", ylabel: "death" });
  const { svg, px, py } = drawing;
  node("line", { class: "axis", x1: px(range[0]), y1: py(range[0]), x2: px(range[1]), y2: py(range[1]) }, null, svg);
  for (const dimension of distinct(found.map((bar) => bar[0])).sort()) {
    const own = found.filter((bar) => bar[0] === dimension);
    const dots = own.map(([, birth, death]) => `M${px(birth).toFixed(1)} ${Math.max(drawing.top, death === Infinity ? 0 : py(death)).toFixed(1)}h0`);
    node("path", { class: `points h${dimension}`, d: dots.join("") }, null, svg);
    node("text", { x: drawing.right - 2, y: drawing.bottom - 8 - 14 * dimension, "text-anchor": "end", style: `fill:${["#0b4f8a", "#a86500", "#1a1a1a"][dimension]}` }, `H${"₀₁₂"[dimension]}: ${own.length}`, svg);
  }
  return svg;
}

function drawBarcode({ found }, range) {
  const drawing = frame({ ...size(0.9), x: linear(range), y: [0, 1], yCount: 0, xlabel: "distance" });
  const { svg, px } = drawing;
  const drawn = distinct(found.map((bar) => bar[0])).sort().flatMap((dimension) => found.filter((bar) => bar[0] === dimension).slice(0, BARS_DRAWN));
  const height = (drawing.bottom - drawing.top) / Math.max(drawn.length, 1);
  for (const dimension of distinct(drawn.map((bar) => bar[0]))) {
    const d = drawn.map(([own, birth, death], row) => (own === dimension ? `M${px(birth).toFixed(1)} ${(drawing.bottom - (row + 0.5) * height).toFixed(1)}H${Math.min(drawing.right, px(Math.min(death, range[1]))).toFixed(1)}` : "")).join("");
    node("path", { class: `bars h${dimension}`, d }, null, svg);
  }
  return svg;
}

function drawTree(surface) {
  const nodes = arrays[surface.nodes], segments = arrays[surface.segments];
  const heights = [...nodes].filter((_, k) => k % 2);
  const [low, top] = extent([heights], 0.08);
  const y = [low, top + 0.2 * (top - low)];
  const drawing = frame({ ...size(0.9), x: linear([-0.7, surface.minima - 0.3], 0), y, ylabel: "loss", xlabel: `${surface.minima} ${surface.minima === 1 ? "minimum" : "minima"}, ${surface.saddles} ${surface.saddles === 1 ? "saddle" : "saddles"}` });
  const { svg, px, py } = drawing;
  const at = (x, h) => `${px(x).toFixed(1)} ${Math.max(drawing.top, py(h)).toFixed(1)}`;
  let d = "";
  for (let k = 0; k < segments.length; k += 4) d += `M${at(segments[k], segments[k + 1])}L${at(segments[k + 2], segments[k + 3])}`;
  node("path", { class: "tree", d }, null, svg);
  const dots = Array.from({ length: nodes.length / 2 }, (_, k) => `M${at(nodes[2 * k], nodes[2 * k + 1])}h0`);
  const marks = surface.minima > 30 ? "stroke-width: 3" : "";
  node("path", { class: "minima", style: marks, d: dots.slice(0, surface.minima).join("") || "M0 0" }, null, svg);
  node("path", { class: "saddles", style: marks, d: dots.slice(surface.minima).join("") || "M0 0" }, null, svg);
  return svg;
}

// Blue to yellow, evenly growing lighter.
const SHADES = [[0, 34, 78], [54, 68, 109], [108, 110, 114], [162, 153, 112], [254, 232, 56]];
function shade(value) {
  const place = Math.min(Math.max(value, 0), 1) * (SHADES.length - 1);
  const k = Math.min(Math.floor(place), SHADES.length - 2);
  return `rgb(${SHADES[k].map((low, c) => Math.round(low + (place - k) * (SHADES[k + 1][c] - low))).join(",")})`;
}

/** The surface as a mesh seen from above and aside, far faces first; a loss that is not finite is a hole. */
function drawSurface(canvas, surface, [low, high]) {
  const { width: w, height: h } = surface, codes = arrays[surface.losses];
  const context = canvas.getContext("2d");
  const [across, down] = [(canvas.width = 640), (canvas.height = 480)];
  const loss = (code) => surface.low + (code / run.top) * (surface.high - surface.low);
  const tall = (code) => (loss(code) - low) / (high - low || 1);
  const point = (i, j) => {
    const a = j / (w - 1 || 1) - 0.5, b = i / (h - 1 || 1) - 0.5;
    const depth = a * Math.sin(turn) + b * Math.cos(turn), aside = a * Math.cos(turn) - b * Math.sin(turn);
    return [across / 2 + aside * 420, down * 0.62 + depth * 190 - (tall(codes[i * w + j]) - 0.3) * 210, depth];
  };
  const faces = [];
  for (let i = 0; i + 1 < h; i++) for (let j = 0; j + 1 < w; j++) {
    const corners = [i * w + j, i * w + j + 1, (i + 1) * w + j + 1, (i + 1) * w + j].map((k) => codes[k]);
    if (corners.some((code) => code > run.top)) continue;
    const points = [point(i, j), point(i, j + 1), point(i + 1, j + 1), point(i + 1, j)];
    faces.push([points.reduce((sum, p) => sum + p[2], 0), points, corners.reduce((sum, code) => sum + tall(code), 0) / 4]);
  }
  faces.sort((a, b) => a[0] - b[0]);
  for (const [, points, level] of faces) {
    context.beginPath();
    points.forEach(([x, y], k) => (k ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.closePath();
    context.fillStyle = context.strokeStyle = shade(level);
    context.fill();
    context.stroke();
  }
}

// The page: for each kind of drawing a panel of the left and one of the right model.
const PANELS = [
  ["loss", "Loss"], ["feature", "Feature"], ["diagram", "Persistence diagram"], ["barcode", "Barcode"],
  ["tree", "Merge tree of the loss surface"], ["surface", "Loss surface"],
];
const panels = {};

function build() {
  for (const side of ["left", "right"]) {
    const head = document.createElement("div");
    head.className = "side";
    head.id = side + "-name";
    $("#pairs").append(head);
  }
  for (let k = 0; k < PANELS.length; k += 2) for (const side of ["left", "right"]) for (const [kind, title] of PANELS.slice(k, k + 2)) {
    const panel = document.createElement("div");
    panel.className = "panel light";
    panel.dataset.kind = kind;
    panel.dataset.side = side;
    panel.style.setProperty("--row", 2 + PANELS.findIndex((other) => other[0] === kind));
    panel.innerHTML = "<h3></h3><div></div><p></p>";
    $("h3", panel).textContent = title;
    panels[side + kind] = panel;
    $("#pairs").append(panel);
  }
  run.models.forEach((one, k) => { for (const side of ["left", "right"]) $("#" + side).add(new Option(`${one.name} (${shortNumber(one.parameters)} parameters)`, k)); });
  $("#left").value = 0;
  $("#right").value = run.models.length - 1;
  fill($("#source"), distinct(run.keys.map((key) => key.source)).filter((source) => source !== "metric"), (source) => SOURCES[source] || source, "weights");
}

/** Options of a select; what was chosen stays chosen where it can. */
function fill(select, values, words = (value) => value, preferred = "") {
  const old = select.value;
  select.replaceChildren(...values.map((value) => new Option(words(value), value)));
  select.value = values.includes(old) ? old : values.includes(preferred) ? preferred : values[0] || "";
}

function fillChoices() {
  const both = [model("left"), model("right")];
  const has = new Set(both.flatMap((one) => one.keys));
  const keys = run.keys.filter((key, k) => has.has(k) && key.source === $("#source").value);
  fill($("#layer"), distinct(keys.map((key) => key.layer)), (layer) => (layer === "all" ? "all layers together" : layer), "all");
  const features = keys.filter((key) => key.layer === $("#layer").value);
  const names = Object.fromEntries(features.map((key) => [key.feature, key.name]));
  fill($("#feature"), Object.keys(names), (feature) => names[feature], "h0_total");
  const step = all[+$("#checkpoint").value];
  all = distinct(both.flatMap((one) => one.steps)).sort((a, b) => a - b);
  const at = step === undefined ? all.length - 1 : all.findIndex((one) => one >= step);
  $("#checkpoint").max = all.length - 1;
  $("#checkpoint").value = at < 0 ? all.length - 1 : at;
}

function put(panel, drawing, note = "") {
  $("div", panel).replaceChildren(...(drawing ? [drawing] : []));
  $("p", panel).textContent = note;
}

const lateNote = (used, step) => (used === step ? "" : `Of step ${used}: none at ${step}. `);

function draw() {
  const { source, layer, feature } = chosen();
  const both = [model("left"), model("right")];
  const step = all[+$("#checkpoint").value];
  $("#step").value = `step ${step.toLocaleString("en")}`;
  const key = run.keys.find((one) => one.source === source && one.layer === layer && one.feature === feature);
  const losses = (one) => [line(one, "metric", "all", "validation_loss"), line(one, "metric", "all", "training_loss", "4 3")].filter((l) => l.steps.length);
  const curves = (one) => (losses(one).length ? losses(one) : distinct(run.keys.filter((k) => k.source === "metric").map((k) => k.feature)).map((metric) => line(one, "metric", "all", metric)));
  const lossRange = extent(both.flatMap((one) => curves(one).map((l) => l.values)));
  const featureRange = extent(both.map((one) => line(one, source, layer, feature).values));
  const range = diagramRange(both, source, layer);
  ["left", "right"].forEach((side, k) => {
    const one = both[k];
    $(`#${side}-name`).textContent = one.name;
    $(`#${side}-name`).style.borderColor = one.color;
    const own = before(one.steps, step);
    put(panels[side + "loss"], lineChart({ series: curves(one), now: own, yRange: lossRange, ...size(0.75) }), losses(one).length ? "solid: validation, dashed: training" : "");
    put(panels[side + "feature"], lineChart({ series: [line(one, source, layer, feature)], now: own, yRange: featureRange, ylabel: key?.unit || "", ...size(0.75) }), key?.name || "");
    drawBars(side, one, source, layer, step, range);
    drawLandscape(side, one, both, step);
  });
}

function drawBars(side, one, source, layer, step, range) {
  const there = distinct(ofLayer(one, source, layer).flatMap((part) => part.steps)).sort((a, b) => a - b);
  if (!there.length) {
    for (const kind of ["diagram", "barcode"]) put(panels[side + kind], null, `${one.name} has no diagram of ${layer === "all" ? SOURCES[source] || source : layer}.`);
    return;
  }
  const used = before(there, step);
  const found = bars(one, source, layer, used);
  const kept = found.found.length < found.total ? `${found.found.length} of ${found.total} bars are drawn.` : `${found.total} bars.`;
  put(panels[side + "diagram"], drawDiagram(found, range), lateNote(used, step) + kept);
  put(panels[side + "barcode"], drawBarcode(found, range), `At most the ${BARS_DRAWN} longest bars of each dimension.`);
}

function drawLandscape(side, one, both, step) {
  if (!one.surfaces.length) {
    for (const kind of ["tree", "surface"]) put(panels[side + kind], null, `No loss surface of ${one.name} was computed in this run.`);
    return;
  }
  const used = before(one.surfaces.map((surface) => surface.step), step);
  const surface = one.surfaces.find((s) => s.step === used);
  put(panels[side + "tree"], drawTree(surface), lateNote(used, step));
  const canvas = $("canvas", panels[side + "surface"]) || document.createElement("canvas");
  put(panels[side + "surface"], canvas, `${lateNote(used, step)}Loss ${shortNumber(surface.low)} to ${shortNumber(surface.high)}; drag to turn.`);
  drawSurface(canvas, surface, [surface.low, surface.high]);
}

function listen() {
  for (const id of ["left", "right", "source", "layer"]) $("#" + id).addEventListener("change", () => { fillChoices(); draw(); });
  $("#feature").addEventListener("change", draw);
  $("#checkpoint").addEventListener("input", draw);
  window.addEventListener("resize", draw);
  let playing = null;
  $("#play").addEventListener("click", () => {
    if (playing) { clearInterval(playing); playing = null; }
    else playing = setInterval(() => {
      const slider = $("#checkpoint");
      slider.value = +slider.value >= +slider.max ? 0 : +slider.value + 1;
      draw();
    }, 350);
    $("#play").textContent = playing ? "❚❚" : "▶";
  });
  $("#pairs").addEventListener("pointermove", (event) => {
    if (event.target.tagName !== "CANVAS" || !event.buttons) return;
    turn += event.movementX * 0.01;
    draw();
  });
}

(async () => {
  if (!("DecompressionStream" in window)) {
    $("#pairs").textContent = "This browser is too old for this page: it cannot unpack compressed data (DecompressionStream).";
    return;
  }
  await load();
  build();
  fillChoices();
  draw();
  listen();
  document.body.dataset.ready = "yes";
})();
