"""One browser for all tests of the scope that a process runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gpu.browser import find_or_skip
from tests.scope.pages import WEBGL
from tests.serve.chromium import Page, chromium


@pytest.fixture(scope="session")
def _browser() -> Iterator[Page]:
    find_or_skip()
    with chromium(*WEBGL) as page:
        page.call("Page.enable")
        page.call("Runtime.enable")
        page.call("Log.enable")
        yield page


@pytest.fixture
def browser(_browser: Page) -> Iterator[Page]:
    """A browser with WebGL on the processor; the test fails if a page reports an error."""
    page = _browser
    page.forget_complaints()
    page.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    yield page
    assert page.complaints() == []
