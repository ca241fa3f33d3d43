"""Pages of exports, driven in a browser."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.serve.chromium import Page
from tests.web.static_server import StaticServer
from volumetric import initialise
from volumetric.builders import sequential
from volumetric.evolution.genome import Genome
from volumetric.network.weight_store import Params, WeightStore
from volumetric.web.page_files import page_files, single_page
from volumetric.web.page_hints import page_hints

SHOWN = "document.documentElement.dataset.shown ?? (document.documentElement.dataset.failed && 'failed')"
_PATIENCE = 60.0
"""Seconds for a page: a software adapter compiles a pipeline for seconds."""


class WebPages:
    """A browser that opens pages of exports.

    Parameters
    ----------
    page, server : the browser's page, and the server of folders
    """

    def __init__(self, page: Page, server: StaticServer) -> None:
        self.page, self.server = page, server

    def open(self, path: Path, *, fails: bool = False) -> Page:
        """Open a folder or a file, and wait until its view is there, or until it says why not."""
        page = self.page
        page.open("about:blank")
        page.forget_complaints()
        if path.is_dir():
            self.server.folders["export"] = path
        self.server.requests.clear()
        page.open(f"{self.server.url}/export/index.html" if path.is_dir() else f"file://{path}")
        until = time.monotonic() + _PATIENCE
        while (shown := page.value(SHOWN)) is None:
            assert time.monotonic() < until, page.value("document.body.innerText")
            time.sleep(0.02)
        assert (shown == "failed") == fails, page.value("document.body.innerText")
        return page

    def wait(self, expression: str) -> None:
        """Wait until an expression is true, for longer than a page without a GPU needs."""
        until = time.monotonic() + _PATIENCE
        while not self.page.value(expression):
            assert time.monotonic() < until, f"{expression}: never; {self.page.value('document.body.innerText')}"
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """Click an element, wherever the page must be scrolled to."""
        self.page.value(
            f"document.querySelector({selector!r}).scrollIntoView({{block: 'center', behavior: 'instant'}})"
        )
        self.page.click(selector)

    def press(self, label: str) -> None:
        """Press the button with a text."""
        self.page.value(f"[...document.querySelectorAll('button')].find(one => one.textContent === {label!r}).click()")

    def draw(self, selector: str, points: Sequence[tuple[float, float]]) -> None:
        """Draw a line with the mouse on an element, through points of 0 … 1."""
        box = f"document.querySelector({selector!r})"
        self.page.value(f"{box}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        left, top, width, height = self.page.value(
            f"(({{x, y, width, height}}) => [x, y, width, height])({box}.getBoundingClientRect())"
        )
        for kind, (x, y) in (("mousePressed", points[0]), *(("mouseMoved", point) for point in points[1:]),
                             ("mouseReleased", points[-1])):  # fmt: skip
            at = {"x": left + x * width, "y": top + y * height}
            self.page.call("Input.dispatchMouseEvent", type=kind, **at, button="left", buttons=1, clickCount=1)

    def end(self) -> None:
        """Leave the page; fails if it has reported errors."""
        complaints = self.page.complaints()
        self.page.open("about:blank")
        assert complaints == [], "\n".join(complaints)


def add_page(folder: Path, network: dict[str, Any], **hints: Any) -> Path:
    """Put the page beside a network.json that a test has written by hand."""
    network["ui"] = page_hints(network) | hints
    (folder / "network.json").write_text(json.dumps(network))
    for name, text in page_files(network).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def one_file(path: Path, network: dict[str, Any], **hints: Any) -> Path:
    """Write a network.json of a test, and the pieces beside it, as one page."""
    network["ui"] = page_hints(network) | hints
    pieces = [(path.parent / piece["file"]).read_bytes() for piece in network["pieces"]]
    path.write_text(single_page(network, pieces, {}))
    return path


def texts(page: Page, selector: str) -> list[str]:
    """Return the texts of elements."""
    texts: list[str] = page.value(f"[...document.querySelectorAll({selector!r})].map(one => one.textContent)")
    return texts


def set_field(page: Page, name: str, value: float) -> None:
    """Move a slider or a box to a value."""
    page.value(
        f"(box => {{ box.value = {value}; box.dispatchEvent(new Event('input')); }})"
        f"(document.querySelector('[aria-label={json.dumps(name)}]'))"
    )


def linear_genome(weights: list[float]) -> Genome:
    """Return a genome of one output node that sums its inputs by these weights."""
    network = sequential(len(weights), 1)
    keys = list(initialise(network))
    arrays = {keys[0]: np.array([weights], np.float32)} | {key: np.zeros(1, np.float32) for key in keys[1:]}
    return Genome.from_network(network, Params({key: WeightStore.from_array(a) for key, a in arrays.items()}))


def check_names_and_widths(page: Page, least: int = 8) -> None:
    """Check that what can be used has a name, and that nothing is wider than a phone, in both schemes."""
    page.call("Accessibility.enable")
    nodes = [node for node in page.call("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    asked = (
        "button",
        "slider",
        "spinbutton",
        "textbox",
        "combobox",
        "DisclosureTriangle",
        "image",
        "region",
        "form",
        "list",
    )
    named = [node for node in nodes if node["role"]["value"] in asked]
    assert len(named) >= least
    assert all(node["name"]["value"] for node in named), named
    for width in (320, 390, 1280):
        for scheme in ("light", "dark"):
            page.picture(width, 800, scheme)
            assert page.value("document.documentElement.scrollWidth <= innerWidth"), width
