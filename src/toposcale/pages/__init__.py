"""Pages that people open: one HTML file each, with everything in it, made from tables and files by Jinja2 templates."""

from __future__ import annotations

import base64
import gzip
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(template: str, **values: Any) -> str:
    """A template of this package, filled in; every value is escaped unless it is `Markup`."""
    environment = Environment(
        loader=PackageLoader("toposcale.pages", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["asset"] = _asset
    return environment.get_template(template).render(**values)


def compressed(data: bytes) -> str:
    """`data` as base64 of gzip without a time stamp: what the pages unpack with DecompressionStream."""
    return base64.b64encode(gzip.compress(data, compresslevel=9, mtime=0)).decode()


def _asset(name: str) -> Markup:
    """A style sheet or script of this package, to be written into the page as it is."""
    return Markup(resources.files(__package__).joinpath(name).read_text())
