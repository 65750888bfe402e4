"""What a page holds: packed data, and the rows of its tables."""

import base64
import gzip
import json
import re


def held(page: str, name: str) -> str:
    """The text under a name; KeyError where there is none."""
    element = re.search(rf'<script type="text/plain" id="{name}">([^<]+)<', page)
    if element is None:
        raise KeyError(name)
    return gzip.decompress(base64.b64decode(element.group(1))).decode()


def rows_of(page: str, table: str) -> str:
    """The rows of a table as HTML, those in the page and those that are packed; KeyError where it is not there."""
    rows = re.search(rf'<tbody id="rows-{table}"( data-packed="\S+")?>(.*?)</tbody>', page, re.DOTALL)
    if rows is None:
        raise KeyError(table)
    return rows[2] + (json.loads(held(page, f"data-rows-{table}")) if rows[1] else "")
