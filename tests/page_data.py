"""What a page holds as packed data."""

import base64
import gzip
import re


def held(page: str, name: str) -> str:
    """The text under a name; KeyError where there is none."""
    found = re.search(rf'<script type="text/plain" id="{name}">([^<]+)<', page)
    if found is None:
        raise KeyError(name)
    return gzip.decompress(base64.b64decode(found.group(1))).decode()
