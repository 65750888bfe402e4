// The report: toggles by model, feature and subject; tables that sort; figures that open.

const data = JSON.parse($("#chart-data").textContent);
const hidden = { model: new Set(), group: new Set(), category: new Set() };
const rule = (kind, value) => `[data-${kind}="${CSS.escape(value)}"]{display:none !important}`;

function applyHidden() {
  $("#hidden").textContent = Object.entries(hidden).flatMap(([kind, values]) => [...values].map((value) => rule(kind, value))).join("\n");
  for (const chip of $$("[data-hides]")) chip.setAttribute("aria-pressed", String(!hidden[chip.dataset.hides].has(chip.dataset.value)));
}

function toggle(kind, value) {
  if (!hidden[kind].delete(value)) hidden[kind].add(value);
  applyHidden();
}

for (const bar of $$('[data-chips="models"]')) {
  bar.append("Models:");
  for (const model of data.models) {
    const chip = document.createElement("button");
    chip.type = "button";
    chip.className = "chip";
    chip.dataset.hides = "model";
    chip.dataset.value = model.name;
    chip.innerHTML = "<i></i>";
    chip.firstChild.style.background = model.color;
    chip.append(model.name);
    bar.append(chip);
  }
}
for (const chip of $$("[data-subject]")) {
  chip.dataset.hides = "category";
  chip.dataset.value = chip.dataset.subject;
}
for (const chip of $$("[data-hides]")) chip.addEventListener("click", () => toggle(chip.dataset.hides, chip.dataset.value));
applyHidden();

// Charts: one a feature, a button each.
const colors = Object.fromEntries(data.models.map((model) => [model.name, model.color]));
const open = new Set();

function chartOf(index) {
  const { name, label, lines } = data.series[index];
  const series = lines.map((line) => ({ ...line, color: colors[line.name] || "#8c8c8c" }));
  const svg = lineChart({ series, title: name[0].toUpperCase() + name.slice(1), ylabel: label.match(/\(([^()]*)\)$/)?.[1] || "" });
  svg.dataset.series = index;
  return svg;
}

function showFeature(index) {
  if (open.has(index)) return;
  open.add(index);
  $("#charts").append(chartOf(index));
  const chip = document.createElement("button");
  chip.type = "button";
  chip.className = "chip";
  chip.dataset.feature = data.series[index].feature;
  chip.textContent = data.series[index].name;
  chip.setAttribute("aria-pressed", "true");
  chip.addEventListener("click", () => {
    const shown = chip.getAttribute("aria-pressed") === "true";
    chip.setAttribute("aria-pressed", String(!shown));
    $(`#charts [data-series="${index}"]`).style.display = shown ? "none" : "";
  });
  $("#features").insertBefore(chip, $("#features label"));
}

data.series.forEach((one, index) => $("#more").add(new Option(one.name, index)));
$("#more").prepend(new Option("choose", "", true, true));
$("#more").addEventListener("change", (event) => {
  if (event.target.value !== "") showFeature(+event.target.value);
  event.target.value = "";
});
for (const [source, feature] of data.first) {
  const index = data.series.findIndex((one) => one.source === source && one.feature === feature);
  if (index >= 0) showFeature(index);
}

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

$("#search").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const row of $$("[data-sortable] tbody tr")) row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
});

// Figures: large in a dialog. The drawing itself moves there and back, so that its names stay unique.
const dialog = $("#large");
let home = null;
function enlarge(figure) {
  home = figure;
  figure.style.minHeight = figure.offsetHeight + "px";
  $("div", dialog).append(figure.firstElementChild);
  dialog.showModal();
}
dialog.addEventListener("close", () => {
  home.append($("div", dialog).firstElementChild);
  home.style.minHeight = "";
});
$("#close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
for (const figure of $$("[data-figure]")) {
  figure.addEventListener("click", () => enlarge(figure));
  figure.addEventListener("keydown", (event) => { if (event.key === "Enter") enlarge(figure); });
}
