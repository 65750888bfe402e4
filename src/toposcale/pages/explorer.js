// The explorer: one slider moves everything that is drawn of two models. `watch.js` keeps it up to date on the watch page.

const BARS_DRAWN = 60;  // of each dimension
const SOURCES = { weights: "the weights", embeddings: "embedded texts", gradients: "the gradients", landscape: "the loss landscape", trajectory: "the training trajectory" };
const DIMENSIONS = [["H₀", "#0b4f8a"], ["H₁", "#e08e0b"], ["H₂", "#1a1a1a"]];
const SIDES = ["left", "right"];
const PANELS = [
  ["loss", "Loss"], ["feature", "Feature"], ["diagram", "Persistence diagram"], ["barcode", "Barcode"],
  ["tree", "Merge tree"], ["surface", "Loss surface"],
];
const live = document.body.dataset.live === "yes";
const panels = {};
let run;
let loaded = new Map();  // models by number: unpacked when they are chosen
let all = [];  // the steps that the slider goes through
let range = [null, null];  // the steps that the curves show

async function part(name) {
  return live ? fetchPart(name) : JSON.parse(await unpack("data-" + name));
}

async function loadModel(number) {
  if (!loaded.has(number)) loaded.set(number, { ...run.models[number], ...(await part("model-" + number)) });
  return loaded.get(number);
}

const model = (side) => loaded.get(+$("#" + side).value);

/** True once both models are loaded in the version of the run's part: each version numbers its columns again. */
const isLoaded = () => SIDES.map(model).every((one) => one && one.version === run.version);

const chosen = () => ({ source: $("#source").value, layer: $("#layer").value, feature: $("#feature").value });
const curve = (one, source, layer, feature) => line(run.keys, one, source, layer, feature);

/** The last of some steps that is not after `step`; the first of them if all are. */
const before = (steps, step) => steps.findLast((one) => one <= step) ?? steps[0];

const ofLayer = (one, source, layer) => one.diagrams.filter((d) => d.source === source && (layer === "all" || d.layer === layer));

/** The bars of a model at a step, {dimension, birth, death}, the longest first; a bar that never ends has no death. */
function bars(one, source, layer, step) {
  const found = [];
  let total = 0;
  for (const { dimension, steps, counts, starts, births, deaths } of ofLayer(one, source, layer)) {
    const at = steps.indexOf(step);
    if (at < 0) continue;
    total += counts[at];
    for (let k = starts[at]; k < starts[at + 1]; k++) found.push({ dimension, birth: births[k], death: deaths[k] });
  }
  const length = (bar) => (bar.death === null ? Infinity : bar.death - bar.birth);
  found.sort((a, b) => (length(b) > length(a)) - (length(b) < length(a)) || a.birth - b.birth);
  return { found, total };
}

const diagramRange = (models, source, layer) => extent(models.flatMap((one) => ofLayer(one, source, layer)).flatMap((d) => [d.births, d.deaths]), 0.04);

/** Loss or feature over training, with the step of the slider and, for losses, what is forecast. */
function drawCurves({ lines, now, place, axis, yRange, unit, keep, name, alt, forecast }) {
  const traces = lines.map((one) => lineTrace(one, place));
  if (forecast) traces.unshift(...fan(forecast, lines[0].color, place));
  const mark = { type: "line", x0: place(now), x1: place(now), y0: 0, y1: 1, yref: "paper", line: { color: "#b3541e", width: 1.5 } };
  return { traces, name, alt, layout: { xaxis: axis, yaxis: { title: { text: unit }, range: yRange }, shapes: [mark], uirevision: keep } };
}

/** A forecast with its interval. */
function fan({ steps, values, low, high, name }, color, place) {
  const x = steps.map(place);
  const edge = { x, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
  return [
    { ...edge, y: low }, { ...edge, y: high, fill: "tonexty", fillcolor: color + "22" },
    { x, y: values, type: "scatter", mode: "lines", name, line: { color, width: 1.5, dash: "dash" }, meta: "steps", customdata: steps.map((step, k) => [step, low[k], high[k]]),
      hovertemplate: `${name}<br>step %{customdata[0]:,}: %{y:.4~g}<br>%{customdata[1]:.4~g} to %{customdata[2]:.4~g}<extra></extra>` },
  ];
}

function drawDiagram({ found }, extremes, labels) {
  const traces = distinct(found.map((bar) => bar.dimension)).sort().map((dimension) => {
    const own = found.filter((bar) => bar.dimension === dimension), [name, color] = DIMENSIONS[dimension];
    return {
      name: `${name}: ${own.length}`, type: "scatter", mode: "markers", x: own.map((bar) => bar.birth), y: own.map((bar) => bar.death ?? extremes[1]),
      customdata: own.map((bar) => bar.death ?? "never"), hovertemplate: `${name}<br>birth %{x:.4~g}<br>death %{customdata:.4~g}<extra></extra>`,
      marker: { color, size: 5, opacity: 0.6, symbol: own.map((bar) => (bar.death === null ? "triangle-up" : "circle")) },
    };
  });
  const diagonal = { type: "line", x0: extremes[0], x1: extremes[1], y0: extremes[0], y1: extremes[1], line: { color: GRID, width: 1 } };
  return { ...labels, traces, layout: { showlegend: true, xaxis: { title: { text: "birth" }, range: extremes }, yaxis: { title: { text: "death" }, range: extremes }, shapes: [diagonal], uirevision: labels.keep } };
}

function drawBarcode({ found }, extremes, labels) {
  let row = 0;
  const traces = distinct(found.map((bar) => bar.dimension)).sort().map((dimension) => {
    const own = found.filter((bar) => bar.dimension === dimension).slice(0, BARS_DRAWN), [name, color] = DIMENSIONS[dimension];
    const rows = own.map(() => row++);
    return {
      name, type: "scatter", mode: "lines", connectgaps: false, line: { color, width: 1.4 },
      x: own.flatMap((bar) => [bar.birth, bar.death ?? extremes[1], null]), y: rows.flatMap((k) => [k, k, null]),
      text: own.flatMap((bar) => Array(3).fill(`${shortNumber(bar.birth, 4)} to ${bar.death === null ? "never" : shortNumber(bar.death, 4)}`)),
      hovertemplate: `${name}<br>%{text}<extra></extra>`,
    };
  });
  return { ...labels, traces, layout: { showlegend: true, xaxis: { title: { text: "distance" }, range: extremes }, yaxis: { visible: false, title: { text: "bar" }, range: [-1, Math.max(row, 1)] }, uirevision: labels.keep } };
}

function drawTree({ nodes, segments, minima }, labels) {
  const points = Array.from({ length: nodes.length / 2 }, (_, k) => [nodes[2 * k], nodes[2 * k + 1]]);
  const [low, high] = extent([points.map(([, loss]) => loss)], 0.08);
  const top = high + 0.2 * (high - low);
  const x = [], y = [];
  for (let k = 0; k < segments.length; k += 4) { x.push(segments[k], segments[k + 2], null); y.push(segments[k + 1] ?? top, segments[k + 3] ?? top, null); }
  const marks = (name, own, color, symbol) => ({
    name, type: "scatter", mode: "markers", x: own.map((p) => p[0]), y: own.map((p) => p[1]), marker: { color, symbol, size: minima > 30 ? 4 : 8 }, hovertemplate: `${name}: loss %{y:.5~g}<extra></extra>`,
  });
  const traces = [
    { name: "tree", type: "scatter", mode: "lines", x, y, line: { color: INK, width: 1.2 }, hoverinfo: "skip", showlegend: false },
    marks("minimum", points.slice(0, minima), "#0b4f8a", "circle"), marks("saddle", points.slice(minima), "#e08e0b", "square"),
  ];
  return { ...labels, traces, layout: { xaxis: { visible: false, range: [-0.7, minima - 0.3] }, yaxis: { title: { text: "loss" }, range: [low, top] }, uirevision: labels.keep } };
}

const webgl = (() => { const canvas = document.createElement("canvas"); return Boolean(canvas.getContext("webgl2") || canvas.getContext("webgl")); })();

/** The surface in three dimensions, as a map where the browser has no WebGL; a loss that is not finite is a hole. */
function drawSurface({ x, y, losses }, labels) {
  const trace = { name: "loss", x, y, z: losses, colorscale: "Cividis", showscale: !webgl, type: webgl ? "surface" : "heatmap", hovertemplate: "x %{x:.3~g}, y %{y:.3~g}<br>loss %{z:.5~g}<extra></extra>" };
  const axis = (text) => ({ title: { text }, gridcolor: GRID, nticks: 5 });
  const scene = { xaxis: axis("x"), yaxis: axis("y"), zaxis: axis("loss"), camera: { eye: { x: 1.5, y: 1.5, z: 0.9 } } };
  return { ...labels, traces: [trace], layout: { ...(webgl ? { scene, margin: { l: 0, r: 0, t: 0, b: 0 } } : {}), uirevision: labels.keep } };
}

/** For each kind of drawing a panel of the left and one of the right model. */
function build() {
  for (const side of SIDES) $("#pairs").append(create("div", { className: "side", id: side + "-name", innerHTML: "<b></b><p class='small'></p>" }));
  for (let k = 0; k < PANELS.length; k += 2) for (const side of SIDES) for (const [kind, title] of PANELS.slice(k, k + 2)) {
    const panel = create("section", { className: "panel light", innerHTML: "<h3></h3><div class='chart'></div><p></p>" }, { kind, side });
    panel.style.setProperty("--row", 2 + PANELS.findIndex((other) => other[0] === kind));
    $("h3", panel).append(title, " ", ...exportButtons($(".chart", panel)));
    panels[side + kind] = panel;
    $("#pairs").append(panel);
  }
}

/** Options of a select; what was chosen stays chosen where it can. */
function fill(select, values, words = (value) => value, preferred = "") {
  const old = select.value;
  select.replaceChildren(...values.map((value) => new Option(words(value), value)));
  select.value = values.includes(old) ? old : values.includes(preferred) ? preferred : values[0] || "";
}

function fillModels() {
  const numbers = run.models.map((_, k) => String(k));
  const words = (k) => run.models[k].name + (run.models[k].parameters === null ? "" : ` (${run.models[k].parameters.toLocaleString("en")} parameters)`);
  document.body.dataset.models = run.models.length;
  fill($("#left"), numbers, words, "0");
  fill($("#right"), numbers, words, numbers.at(-1));
}

/** Sources, layers, features and steps of the two models. */
function fillChoices() {
  const both = SIDES.map(model);
  const has = new Set(both.flatMap((one) => Object.keys(one.columns).map(Number)));
  const keys = run.keys.filter((key, k) => has.has(k) && key.source !== "metric");
  fill($("#source"), distinct(keys.map((key) => key.source)), (source) => SOURCES[source] || source, "weights");
  const ofSource = keys.filter((key) => key.source === $("#source").value);
  fill($("#layer"), distinct(ofSource.map((key) => key.layer)), (layer) => (layer === "all" ? "all layers together" : layer), "all");
  const features = ofSource.filter((key) => key.layer === $("#layer").value);
  const names = Object.fromEntries(features.map((key) => [key.feature, key.name]));
  fill($("#feature"), Object.keys(names), (feature) => names[feature], "h0_total");
  const slider = $("#checkpoint"), old = all[+slider.value], wasLast = +slider.value === all.length - 1;
  all = distinct(both.flatMap((one) => one.steps)).sort((a, b) => a - b);
  slider.max = Math.max(all.length - 1, 0);
  moveTo(old === undefined || (live && wasLast) ? Infinity : old);
}

/** Put the slider on the last checkpoint that is not after `step`. */
function moveTo(step) {
  $("#checkpoint").value = Math.max(all.findLastIndex((one) => one <= step), 0);
}

function put(side, kind, make, note = "") {
  const panel = panels[side + kind];
  $("p", panel).textContent = note;
  chart($(".chart", panel), make);
}

const lateNote = (used, step) => (used === step ? "" : `Shown for step ${used}: not computed at step ${step}. `);

function draw() {
  if (!isLoaded()) return;
  const { source, layer, feature } = chosen();
  const both = SIDES.map(model), step = all[+$("#checkpoint").value] ?? 0;
  $("#step").value = step;
  const key = run.keys.find((one) => one.source === source && one.layer === layer && one.feature === feature);
  const metrics = distinct(run.keys.filter((k) => k.source === "metric").map((k) => k.feature));
  const losses = metrics.some((m) => m.endsWith("_loss")) ? metrics.filter((m) => m.endsWith("_loss")).reverse() : metrics;
  const curves = both.map((one) => losses.map((metric, k) => ({ ...curve(one, "metric", "all", metric), name: metric.replaceAll("_", " "), dash: k ? "dot" : "solid" })).filter((l) => l.steps.length));
  const ahead = both.flatMap((one) => one.forecast ? [one.forecast.values, one.forecast.low, one.forecast.high] : []);
  const { place, axis } = stepAxis([...all, ...both.flatMap((one) => one.forecast?.steps || [])], shownSteps());
  const lossRange = extent([...curves.flat().map((l) => l.values), ...ahead]);
  const featureRange = extent(both.map((one) => curve(one, source, layer, feature).values));
  const extremes = diagramRange(both, source, layer);
  const keep = [source, layer, feature, ...range].join();
  const mapped = both.some((one) => one.surfaces.length);
  SIDES.forEach((side, k) => {
    const one = both[k], now = before(one.steps, step) ?? step, file = `${one.name}-step-${step}`;
    $(`#${side}-name b`).textContent = one.name;
    $(`#${side}-name p`).textContent = one.advice || "";
    $(`#${side}-name`).style.setProperty("--curve", one.color);
    const shared = { now, place, axis, keep };
    put(side, "loss", () => curves[k].length ? drawCurves({ ...shared, lines: curves[k], yRange: lossRange, unit: run.keys.find((one) => one.feature === losses[0]).unit, forecast: one.forecast, name: `${one.name}-loss`, alt: `Loss of ${one.name} over training` }) : live ? "No loss was recorded yet." : "No loss is known of it.");
    put(side, "feature", () => key ? drawCurves({ ...shared, lines: [{ ...curve(one, source, layer, feature), name: key.name }], yRange: featureRange, unit: key.unit, name: `${one.name}-${feature}-${layer}`, alt: `${key.name} of ${one.name} over training` }) : "No feature was computed yet.", key?.name || "");
    drawBars(side, one, source, layer, step, extremes, { keep, file });
    // Where neither model has a surface, its panels would be empty.
    for (const kind of ["tree", "surface"]) panels[side + kind].hidden = !mapped;
    if (mapped) drawLandscape(side, one, step, file);
  });
  remember();
}

function drawBars(side, one, source, layer, step, extremes, { keep, file }) {
  const there = distinct(ofLayer(one, source, layer).flatMap((d) => d.steps)).sort((a, b) => a - b);
  const where = layer === "all" ? SOURCES[source] || source : layer;
  if (!there.length) {
    for (const kind of ["diagram", "barcode"]) put(side, kind, () => `${one.name} has no diagram of ${where}.`);
    return;
  }
  const used = before(there, step), found = bars(one, source, layer, used);
  const kept = found.found.length < found.total ? `${found.found.length} of ${found.total} bars are drawn.` : `${found.total} bars.`;
  const labels = (kind, title) => ({ keep, name: `${file}-${kind}`, alt: `${title} of ${where}, ${one.name}, step ${used}: ${kept}` });
  put(side, "diagram", () => drawDiagram(found, extremes, labels("diagram", "Persistence diagram")), lateNote(used, step) + kept);
  put(side, "barcode", () => drawBarcode(found, extremes, labels("barcode", "Barcode")), `At most the ${BARS_DRAWN} longest bars of each dimension.`);
}

function drawLandscape(side, one, step, file) {
  if (!one.surfaces.length) {
    for (const kind of ["tree", "surface"]) put(side, kind, () => `No loss surface of ${one.name} was computed in this run.`);
    return;
  }
  const used = before(one.surfaces.map((surface) => surface.step), step), surface = one.surfaces.find((s) => s.step === used);
  const count = (number, word, words) => `${number} ${number === 1 ? word : words}`;
  const told = `${count(surface.minima, "minimum", "minima")}, ${count(surface.saddles, "saddle", "saddles")}`;
  const labels = (kind, title) => ({ keep: one.name, name: `${file}-${kind}`, alt: `${title} of ${one.name}, step ${used}: ${told}` });
  put(side, "tree", () => drawTree(surface, labels("tree", "Merge tree of the loss surface")), `${lateNote(used, step)}${told}.`);
  const [low, high] = extent(surface.losses, 0);
  put(side, "surface", () => drawSurface(surface, labels("surface", "Loss surface")), `${lateNote(used, step)}Loss ${shortNumber(low)} to ${shortNumber(high)}.`);
}

/** The steps of the curves' axes, where someone asked for some. */
function shownSteps() {
  if (range.every((end) => end === null)) return null;
  return [range[0] ?? all[0], range[1] ?? all.at(-1)].sort((a, b) => a - b);
}

// What is shown stands in the address, by name: a link shows the same.
const STATE = ["left", "right", "source", "layer", "feature"];

function remember() {
  const state = new URLSearchParams(STATE.map((id) => [id, SIDES.includes(id) ? run.models[$("#" + id).value].name : $("#" + id).value]));
  state.set("step", all[+$("#checkpoint").value] ?? 0);
  range.forEach((end, k) => end !== null && state.set(["from", "to"][k], end));
  history.replaceState(null, "", "#" + state);
}

async function recall() {
  const state = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (state.get(name) === null || state.get(name) === "" || !Number.isFinite(+state.get(name)) ? null : +state.get(name));
  for (const side of SIDES) {
    const found = run.models.findIndex((one) => one.name === state.get(side));
    if (found >= 0) $("#" + side).value = found;
    await loadModel(+$("#" + side).value);
  }
  if (!isLoaded()) return;
  fillChoices();
  for (const id of ["source", "layer", "feature"]) {
    const wanted = state.get(id);
    if ([...$("#" + id).options].some((option) => option.value === wanted)) $("#" + id).value = wanted;
    fillChoices();
  }
  if (number("step") !== null) moveTo(number("step"));
  range = [number("from"), number("to")];
  ["from", "to"].forEach((id, k) => { $("#" + id).value = range[k] ?? ""; });
  draw();
}

async function change() {
  await Promise.all(SIDES.map((side) => loadModel(+$("#" + side).value)));
  if (!isLoaded()) return;
  fillChoices();
  draw();
}

let waiting = false;
/** Draw at most once a frame, however fast the slider moves. */
function drawSoon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

function listen() {
  for (const id of [...SIDES, "source", "layer"]) $("#" + id).addEventListener("change", change);
  $("#feature").addEventListener("change", draw);
  $("#checkpoint").addEventListener("input", drawSoon);
  $("#step").addEventListener("change", () => { moveTo(+$("#step").value); draw(); });
  ["from", "to"].forEach((id, k) => $("#" + id).addEventListener("change", (event) => { range[k] = event.target.value === "" ? null : +event.target.value; draw(); }));
  window.addEventListener("hashchange", recall);
  $("#link").addEventListener("click", () => navigator.clipboard?.writeText(location.href));
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
}

(async () => {
  if (!live && !("DecompressionStream" in window)) {
    $("#pairs").textContent = "This browser is too old for this page: it cannot unpack compressed data (DecompressionStream).";
    return;
  }
  run = await part("run");
  build();
  if (live) await firstModel();
  fillModels();
  await recall();
  listen();
  document.body.dataset.ready = "yes";
  if (live) follow();
})();
