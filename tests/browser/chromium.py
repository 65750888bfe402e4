"""A headless Chromium that the tests drive through its DevTools protocol, over a pipe: no package, no port."""

import base64
import json
import os
import select
import shutil
import subprocess
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--enable-unsafe-swiftshader",  # WebGL without a GPU, for the surfaces
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE = 300.0
"""Seconds that an answer may take on a busy machine."""


def executable() -> str | None:
    """The browser, if one is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One browser with one tab. Everything that the page says or asks for is kept in `events`."""

    def __init__(self, profile: Path) -> None:
        answers, to_us = os.pipe()
        from_us, commands = os.pipe()
        # The browser reads commands from file descriptor 3 and answers on 4.
        wiring = f'exec "$@" 3<&{from_us} 4>&{to_us}'
        command = ["bash", "-c", wiring, "bash", executable(), *FLAGS, f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            [*command, "about:blank"], pass_fds=(from_us, to_us), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(from_us)
        os.close(to_us)
        self._commands, self._answers = commands, answers
        self._buffer, self._number, self._session = b"", 0, None
        self.events: list[dict] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters):
        """One command of the protocol, and its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, page: Path | str, *, width: int = 1280, height: int = 900) -> None:
        """Load a page, a file or an address, in a window of that size, and forget the events of the one before."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        # From one place in a page to another in the same page would not load it again.
        self.call("Page.navigate", url="about:blank")
        self.wait_for("location.href === 'about:blank' && document.readyState === 'complete'")
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri() if isinstance(page, Path) else page)
        self.wait_for("document.readyState === 'complete'")

    def wait_for(self, condition: str) -> None:
        """Until a JavaScript expression is true. The page itself looks: to ask it all the time would slow it down."""
        seen = self.run(
            f"""(async () => {{
                const end = performance.now() + {PATIENCE} * 1000;
                while (!({condition})) {{
                    if (performance.now() > end) return false;
                    await new Promise((done) => setTimeout(done, 20));
                }}
                return true;
            }})()"""
        )
        assert seen, f"never true: {condition}"

    def run(self, script: str):
        """The value of a JavaScript expression."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, f"{script}: {done['exceptionDetails']}"
        return done["result"].get("value")

    def click(self, selector: str) -> None:
        """A real click of the mouse in the middle of an element."""
        # What comes into view may grow in the next frames, and move the element: wait until it stands still.
        x, y = self.run(
            f"""(async () => {{
                const element = document.querySelector({json.dumps(selector)});
                const middle = () => {{
                    element.scrollIntoView({{block: 'center', behavior: 'instant'}});
                    const box = element.getBoundingClientRect();
                    return [box.x + box.width / 2, box.y + box.height / 2];
                }};
                let place = middle();
                for (let still = 0, frame = 0; still < 20 && frame < 600; frame += 1) {{
                    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
                    const next = middle();
                    still = String(next) === String(place) ? still + 1 : 0;
                    place = next;
                }}
                return place;
            }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def point_at(self, selector: str, line: int, point: int) -> str:
        """Move the mouse to a point of a line of a Plotly chart; what the chart says of it."""
        place = f"""(() => {{
            const chart = document.querySelector({json.dumps(selector)});
            chart.scrollIntoView({{block: 'center', behavior: 'instant'}});
            const {{ xaxis, yaxis }} = chart._fullLayout, box = chart.getBoundingClientRect();
            const {{ x, y }} = chart.data[{line}], at = (axis, value) => axis._offset + axis.d2p(value);
            return [box.x + at(xaxis, x[{point}]), box.y + at(yaxis, y[{point}])];
        }})()"""
        for nudge in (9, 0):
            x, y = self.run(place)
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + nudge, y=y)
        label = f"document.querySelector({json.dumps(selector)}).querySelector('.hoverlayer .hovertext')?.textContent"
        self.wait_for(f"Boolean({label})")
        return self.run(label)

    def put(self, selector: str, value: object, event: str = "change") -> None:
        """Set the value of a form element and tell the page so."""
        self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)}; "
            f"e.dispatchEvent(new Event('{event}')); }})()"
        )

    def errors(self) -> list[str]:
        """What the page wrote to the console as an error or warning, and exceptions that nothing caught."""
        self.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        messages = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                messages.append(json.dumps(parameters["exceptionDetails"]))
            elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                # How fast the browser draws without a GPU is not the page's doing.
                if parameters["entry"]["source"] != "rendering":
                    messages.append(parameters["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                messages.append(json.dumps(parameters["args"]))
        return messages

    def requests(self) -> list[str]:
        """The addresses that the page asked for, but for itself and for what it holds."""
        asked = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        address = self.run("location.href").partition("#")[0]
        return [url for url in asked if url.partition("#")[0] != address and not url.startswith(("data:", "blob:"))]

    def screenshot(self, path: Path) -> None:
        """The window as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        """End the browser, gently first."""
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, EOFError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._commands)
        os.close(self._answers)

    def _read(self) -> dict:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], 2 * PATIENCE)
            if not ready:
                raise TimeoutError(f"Chromium said nothing for {2 * PATIENCE:.0f} s")
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise EOFError("Chromium ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)
