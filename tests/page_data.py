"""What a page holds as packed data."""

import base64
import gzip
import re


def held(page: str, name: str) -> str:
    """The text under a name; KeyError where there is none."""
    element = re.search(rf'<script type="text/plain" id="{name}">([^<]+)<', page)
    if element is None:
        raise KeyError(name)
    return gzip.decompress(base64.b64decode(element.group(1))).decode()
