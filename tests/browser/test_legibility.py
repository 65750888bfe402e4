"""No text lies on other text, and every text stands out from what is behind it: wide and narrow, light and dark."""

# ruff: noqa: E501 (a script of the page)
import pytest

pytestmark = pytest.mark.workflow

MIN_CONTRAST = 4.5
"""WCAG 2.1, level AA."""

# Every text that is seen: its box, cut by whatever scrolls around it, and its contrast with what is behind it.
MEASURE = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const memo = (act, seen = new Map()) => (key) => { if (!seen.has(key)) seen.set(key, act(key)); return seen.get(key); };
  const rgba = memo((css) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  });
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
  const paper = matchMedia('(prefers-color-scheme: dark)').matches ? '#121212' : '#fff';
  const behind = memo((e) => over(rgba(getComputedStyle(e).backgroundColor), e.parentElement ? behind(e.parentElement) : rgba(paper)));
  const opacity = memo((e) => +getComputedStyle(e).opacity * (e.parentElement ? opacity(e.parentElement) : 1));
  const room = memo((e) => {  // what the scrolling ancestors let through
    const outer = e.parentElement ? room(e.parentElement) : { l: -1e9, t: -1e9, r: 1e9, b: 1e9 };
    if (getComputedStyle(e).overflowX === 'visible') return outer;
    const cut = e.getBoundingClientRect();
    return { l: Math.max(outer.l, cut.left), t: Math.max(outer.t, cut.top), r: Math.min(outer.r, cut.right), b: Math.min(outer.b, cut.bottom) };
  });
  const texts = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (element.closest('script, style, option, dialog:not([open])')) continue;
    const range = document.createRange(); range.selectNodeContents(node);
    const held = room(element), rects = [...range.getClientRects()].map((rect) => (
      { l: Math.max(held.l, rect.left), t: Math.max(held.t, rect.top), r: Math.min(held.r, rect.right), b: Math.min(held.b, rect.bottom) }
    )).filter((box) => box.r - box.l > 1 && box.b - box.t > 1);
    if (!rects.length) continue;
    const style = getComputedStyle(element), back = behind(element), ink = [...rgba(element instanceof SVGElement ? style.fill : style.color)];
    ink[3] *= opacity(element);
    const [a, b] = [light(over(ink, back)), light(back)].sort((x, y) => y - x), contrast = (a + 0.05) / (b + 0.05);
    for (const box of rects) texts.push({ ...box, text: node.textContent.trim().slice(0, 40), contrast, node });
  }
  texts.sort((one, other) => one.t - other.t);
  const overlaps = [];
  texts.forEach((one, k) => {
    for (let j = k + 1; j < texts.length && texts[j].t < one.b; j += 1) {
      const other = texts[j], across = Math.min(one.r, other.r) - Math.max(one.l, other.l), down = Math.min(one.b, other.b) - other.t;
      // Boxes of a line reach beyond its letters.
      if (one.node !== other.node && across > 2 && down > 0.35 * Math.min(one.b - one.t, other.b - other.t)) overlaps.push(`${one.text} | ${other.text}`);
    }
  });
  const faint = texts.filter((one) => one.contrast < LEAST).map((one) => `${one.text}: ${one.contrast.toFixed(1)}`);
  return { n: texts.length, overlaps, faint: [...new Set(faint)] };
})()"""


def measured(browser):
    return browser.run(MEASURE.replace("LEAST", str(MIN_CONTRAST)))


def opened(browser, page, width, scheme):
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(page, width=width, height=900)
    browser.wait_for("document.body.dataset.ready === 'yes' || document.querySelector('#training')")


def seen_whole(browser):
    """Draw and fill everything, as it would be when it came into view."""
    browser.run("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    browser.run("document.querySelector('#training')?.scrollIntoView({behavior: 'instant'})")
    browser.wait_for("document.body.dataset.ready === 'yes'")
    browser.run("Promise.all([...[...makers.keys()].map(drawChart), ...$$('[data-packed]').map(fill)]).then(() => 0)")
    browser.wait_for("$$('.chart').every((e) => !e.offsetParent || e.dataset.drawn || e.textContent)")
    browser.run("scrollTo({top: 0, behavior: 'instant'})")


@pytest.fixture
def emulated(browser):
    yield browser
    browser.call("Emulation.setEmulatedMedia", features=[])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1300])
@pytest.mark.parametrize("name", ["report.html", "explorer.html"])
def test_no_text_overlaps_and_every_text_is_legible(name, width, scheme, finished, emulated):
    opened(emulated, finished.results / name, width, scheme)
    seen_whole(emulated)
    found = measured(emulated)
    assert found["n"] > 50
    assert found["overlaps"] == []
    assert found["faint"] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colour_beside_the_name_of_a_model_is_that_of_its_curves(scheme, finished, emulated):
    opened(emulated, finished.results / "explorer.html", 1300, scheme)
    seen_whole(emulated)
    swatch = emulated.run(
        "(({ backgroundColor, filter }) => [backgroundColor, filter])(getComputedStyle($('#left-name'), '::before'))"
    )
    panel = "$('.panel[data-side=left][data-kind=feature]')"
    curve = f"{panel}.querySelector('.chart path.js-line').style.stroke"
    assert swatch == emulated.run(f"[{curve}, getComputedStyle({panel}).filter]")


def test_overlap_and_faint_text_would_be_found(emulated, tmp_path):
    page = tmp_path / "page.html"
    lines = ["<p style='margin: -28px 0 0; color: #888'>second line</p>", "<p style='color: #999'>faint line</p>"]
    page.write_text(
        f"<body data-ready='yes' style='background: #fff; color: #111'><p>first line</p>{''.join(lines)}</body>"
    )
    opened(emulated, page, 400, "light")
    found = measured(emulated)
    assert found["overlaps"] != []
    assert [text.partition(":")[0] for text in found["faint"]] == ["second line", "faint line"]
