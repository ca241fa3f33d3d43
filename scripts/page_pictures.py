"""Pictures of pages in Chromium, for the documents."""

from __future__ import annotations

import base64
import io
from pathlib import Path

from PIL import Image

from tests.serve.chromium import Page

DESKTOP, PHONE = (1280, 800), (390, 844)


def resize(page: Page, size: tuple[int, int]) -> None:
    """Give the page a width and a height."""
    page.call("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)


def grab(page: Page) -> Image.Image:
    """Return what the page shows now."""
    data = page.call("Page.captureScreenshot", format="png")["data"]
    return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")


def save_still(image: Image.Image, path: Path) -> None:
    """Write a picture as WebP."""
    image.save(path, quality=82, method=6)
