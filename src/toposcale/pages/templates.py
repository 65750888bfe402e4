"""Pages from Jinja2 templates, with Plotly and the data compressed inside."""

import base64
import gzip
import json
from importlib import resources
from typing import Any

import plotly.offline
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(template: str, **values: Any) -> str:
    """Fill in a template of this package; every value is escaped unless it is `Markup`."""
    environment = Environment(
        loader=PackageLoader("toposcale.pages", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["asset"] = lambda name: Markup(resources.files(__package__).joinpath(name).read_text())
    environment.globals |= {"embedded": embedded, "plotly": lambda: _packed("plotly", plotly.offline.get_plotlyjs())}
    return environment.get_template(template).render(**values)


def embedded(name: str, data: Any) -> Markup:
    """Return the element of the page that holds JSON-serialisable `data` under a name."""
    return _packed(f"data-{name}", to_json(data))


def to_json(data: Any) -> str:
    """Serialise to compact JSON. ValueError: a number that is not finite, which JSON does not have."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def _packed(name: str, text: str) -> Markup:
    # Without a time stamp: the same tables give the same page.
    packed = base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()
    return Markup('<script type="text/plain" id="{}">{}</script>').format(name, packed)
