// The report: toggles by model, feature and subject; charts; tables that sort; figures that open.

const models = JSON.parse($("#models").textContent);
const hidden = { model: new Set(), group: new Set(), category: new Set() };
document.head.append(create("style", { id: "hidden" }));
const rule = (kind, value) => `[data-${kind}="${CSS.escape(value)}"]{display:none !important}`;

function applyHidden() {
  $("#hidden").textContent = Object.entries(hidden).flatMap(([kind, values]) => [...values].map((value) => rule(kind, value))).join("\n");
  for (const chip of $$("[data-hides]")) chip.setAttribute("aria-pressed", String(!hidden[chip.dataset.hides].has(chip.dataset.value)));
}

function toggle(kind, value) {
  if (!hidden[kind].delete(value)) hidden[kind].add(value);
  applyHidden();
  if (kind === "model") drawCharts();
}

for (const bar of $$('[data-chips="models"]')) {
  bar.append("Models:");
  for (const { name, color } of models) {
    const chip = create("button", { type: "button", className: "chip", innerHTML: "<i></i>" }, { hides: "model", value: name });
    chip.firstChild.style.background = color;
    chip.append(name);
    bar.append(chip);
  }
}
for (const chip of $$("[data-subject]")) Object.assign(chip.dataset, { hides: "category", value: chip.dataset.subject });
for (const chip of $$("[data-hides]")) chip.addEventListener("click", () => toggle(chip.dataset.hides, chip.dataset.value));
applyHidden();

// Charts: one a feature, a button each. The columns are unpacked when the charts come near the window.
const FIRST = ["metric/validation_loss", "weights/neural_persistence", "weights/h0_total", "weights/h1_total", "weights/frobenius_norm", "weights/stable_rank"];
const open = new Map();  // the chart of each feature that was chosen, by its number
let data = null;

function featureChart(key) {
  const { source, layer, feature, name, unit } = key;
  const lines = data.models.map((one) => line(data.keys, one, source, layer, feature)).filter((one) => one.steps.length && !hidden.model.has(one.name));
  const ends = ["from", "to"].map((id) => $("#" + id).value);
  const all = distinct(data.models.flatMap((one) => one.steps)).sort((a, b) => a - b);
  const range = ends.some(Boolean) ? [+ends[0] || 0, ends[1] === "" ? all.at(-1) : +ends[1]].sort((a, b) => a - b) : null;
  const { place, axis } = stepAxis(all, range);
  return { traces: lines.map((one) => lineTrace(one, place)), name: `${source}-${feature}`, alt: `${name} over training: ${lines.map((one) => one.name).join(", ")}`, layout: { xaxis: axis, yaxis: { title: { text: unit } }, uirevision: ends.join() } };
}

function drawCharts() {
  for (const [index, panel] of open) chart($(".chart", panel), () => featureChart(data.keys[index]));
}

function showFeature(index) {
  if (open.has(index)) return;
  const key = data.keys[index], title = key.name[0].toUpperCase() + key.name.slice(1);
  const panel = create("section", { innerHTML: "<h3></h3><div class='chart'></div>" }, { key: `${key.source}/${key.feature}` });
  $("h3", panel).append(title + (["metric", "weights"].includes(key.source) ? "" : ` (${key.source})`) + " ", ...exportButtons($(".chart", panel)));
  const href = `explorer.html#${new URLSearchParams({ source: key.source, feature: key.feature })}`;
  if (key.source !== "metric") $("h3", panel).append(" ", create("a", { className: "small", textContent: "by layer", href }));
  $("#charts").append(panel);
  open.set(index, panel);
  const chip = create("button", { type: "button", className: "chip", textContent: key.name }, { feature: key.feature });
  chip.setAttribute("aria-pressed", "true");
  chip.addEventListener("click", () => { panel.hidden = !panel.hidden; chip.setAttribute("aria-pressed", String(!panel.hidden)); });
  $("#features").insertBefore(chip, $("#features label"));
  drawCharts();
}

async function loadCharts() {
  data = JSON.parse(await unpack("data-columns"));
  data.keys.forEach((key, index) => $("#more").add(new Option(key.source === "metric" || key.source === "weights" ? key.name : `${key.name} (${key.source})`, index)));
  $("#more").prepend(new Option("choose", "", true, true));
  $("#more").addEventListener("change", (event) => {
    if (event.target.value !== "") showFeature(+event.target.value);
    event.target.value = "";
  });
  for (const id of ["from", "to"]) $("#" + id).addEventListener("change", drawCharts);
  // Where no validation loss is known, the training loss takes its place.
  const first = data.keys.some((key) => key.feature === "validation_loss") ? FIRST : ["metric/training_loss", ...FIRST];
  for (const wanted of first) {
    const index = data.keys.findIndex((key) => `${key.source}/${key.feature}` === wanted);
    if (index >= 0) showFeature(index);
  }
  document.body.dataset.ready = "yes";
}

/** Do something with elements, each once, when it comes near the window. */
function whenNear(elements, act) {
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) { observer.unobserve(target); act(target); }
  }, { rootMargin: "600px" });
  elements.forEach((element) => observer.observe(element));
}

/** Add to an element, once, what is packed under the name in its `data-packed`: a drawing, or the further rows of a table. */
async function fill(element) {
  const name = element.dataset.packed;
  delete element.dataset.packed;
  if (!name) return;
  element.insertAdjacentHTML("beforeend", JSON.parse(await unpack(name)));
  if (element.tagName === "TBODY") search(element.parentNode);
}

whenNear([$("#training")], loadCharts);
whenNear($$("[data-packed]"), fill);

// Tables: a number by its value, anything else by its letters; what is missing comes last either way.
function sortBy(head) {
  const table = head.closest("table"), body = table.tBodies[0];
  const column = [...head.parentNode.children].indexOf(head);
  const numeric = head.classList.contains("number");
  const descending = head.getAttribute("aria-sort") === "ascending";
  const key = (row) => (numeric ? row.cells[column].dataset.key : row.cells[column].textContent);
  const rows = [...body.rows].sort((a, b) => {
    const [one, other] = [key(a), key(b)];
    if (one === "" || other === "") return (one === "") - (other === "");
    const order = numeric ? Number(one) - Number(other) : one.localeCompare(other, "en", { numeric: true });
    return descending ? -order : order;
  });
  $$("th", table).forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  body.append(...rows);
}
for (const head of $$("[data-sortable] th")) $("button", head).addEventListener("click", () => sortBy(head));

/** Show the rows that contain the text of the search field, or say that none does. */
function search(table) {
  const listing = table.closest(".listing"), wanted = $("input", listing)?.value.trim().toLowerCase() || "";
  const rows = [...table.tBodies[0].rows];
  for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  $(".none", listing).textContent = wanted && rows.every((row) => row.hidden) ? `No row matches “${wanted}”.` : "";
}
for (const field of $$(".listing > input")) field.addEventListener("input", () => search($("table", field.parentNode)));

// Figures: large in a dialog. The drawing itself moves there and back, so that its names stay unique.
const dialog = $("#large");
let home = null;
function enlarge(figure) {
  if (!figure.firstElementChild) return;
  home = figure;
  $("div", dialog).append(figure.firstElementChild);
  dialog.showModal();
}
dialog.addEventListener("close", () => home.append($("div", dialog).firstElementChild));
$("#close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
for (const figure of $$("[data-figure]")) {
  figure.addEventListener("click", () => enlarge(figure));
  figure.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();  // or the same key would press the close button, which gets the focus
    enlarge(figure);
  });
}
