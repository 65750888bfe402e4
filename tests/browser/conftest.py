"""One browser for all the pages."""

import pytest

from chromium import NAMES, Chromium, executable


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if executable() is None:
        pytest.skip(f"no Chromium is installed (none of {', '.join(NAMES)} is on the PATH)")
    chromium = Chromium(tmp_path_factory.mktemp("chromium"))
    yield chromium
    chromium.close()
