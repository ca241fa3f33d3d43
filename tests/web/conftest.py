"""One browser with WebGPU, and one server of files, for the tests of exported networks that a process runs.

With ``VOLUMETRIC_BROWSER_GPU=1`` the browser uses a GPU of this machine instead of its software adapter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import volumetric
from tests.gpu.browser import find_or_skip
from tests.serve.chromium import SOFTWARE_WEBGPU, VULKAN_WEBGPU, Page, chromium
from tests.web.engine_page import EnginePage
from tests.web.page_views import WebPages
from tests.web.static_server import StaticServer, static_server

_SITE = Path(volumetric.__file__).parent / "web" / "site"


@pytest.fixture(scope="package")  # what its software adapter has compiled fills gigabytes
def _webgpu() -> Iterator[tuple[Page, StaticServer]]:
    find_or_skip()
    flags = VULKAN_WEBGPU if os.environ.get("VOLUMETRIC_BROWSER_GPU") else SOFTWARE_WEBGPU
    with static_server() as server, chromium(*flags) as page:
        server.folders["engine"] = _SITE
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        yield page, server


@pytest.fixture
def engine(_webgpu: tuple[Page, StaticServer], tmp_path: Path) -> Iterator[EnginePage]:
    """A page with the engine, and a folder that it may load from; the test fails if the page reports an error."""
    page, server = _webgpu
    server.folders["net"] = tmp_path
    server.cuts.clear()
    server.requests.clear()
    server.ranges = server.marks = True
    opened = EnginePage(page, server, tmp_path)
    opened.open()
    yield opened
    opened.end()


@pytest.fixture
def pages(_webgpu: tuple[Page, StaticServer]) -> Iterator[WebPages]:
    """A browser that opens pages of exports; the test fails if a page reports an error."""
    page, server = _webgpu
    page.call("Emulation.clearDeviceMetricsOverride")
    opened = WebPages(page, server)
    yield opened
    opened.end()
