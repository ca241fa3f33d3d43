"""Pages of the scope in a browser."""

from __future__ import annotations

import base64
from pathlib import Path

from tests.serve.chromium import Page
from volumetric.scope import ScopeDocument, Viewer

WEBGL = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist")
"""Flags of Chromium for WebGL on the processor."""


def show(page: Page, document: ScopeDocument, folder: Path, *, anchor: str = "") -> Page:
    """Show a document as a file and wait until its first view is drawn."""
    path = Viewer(document).save(folder / "page.html")
    open_page(page, f"file://{path}{anchor}")
    return page


def open_page(page: Page, url: str) -> None:
    """Go to a page of the scope and wait until its first view is drawn."""
    page.open("about:blank")  # so that a change of only the anchor is a new page, too
    page.forget_complaints()
    page.open(url)
    page.wait("document.documentElement.dataset.shown !== undefined || document.documentElement.dataset.failed")
    assert page.value("document.documentElement.dataset.failed ?? null") is None, page.value("document.body.innerText")


def save_picture(page: Page, path: Path, *, width: int = 1280, height: int = 800, scheme: str = "light") -> None:
    """Write a PNG of the page, to look at it."""
    page.value(f"scope.dark.set({'true' if scheme == 'dark' else 'false'})")
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    page.value("new Promise(done => setTimeout(done, 300))")
    path.write_bytes(base64.b64decode(page.call("Page.captureScreenshot", format="png")["data"]))
