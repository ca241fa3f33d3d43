"""The menu that saves what is on screen: a picture, a drawing, a film, numbers for a figure, a link."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.scope.pages import show
from tests.scope.test_page import document
from tests.serve.chromium import Page
from volumetric.viz.scope_figure import scope_figures

CATCH = """
window.saved = {};
HTMLAnchorElement.prototype.click = function () {
  const keep = bytes => { saved[this.download] = new Uint8Array(bytes); };
  fetch(this.href).then(answer => answer.arrayBuffer()).then(keep);
};
window.filmed = 0;
const { start } = MediaRecorder.prototype;
MediaRecorder.prototype.start = function (...options) {
  this.addEventListener("dataavailable", event => { filmed += event.data.size; });
  return start.apply(this, options);
};
"""
MOVE = "(t => setInterval(() => scope.time.set(4 + (t++ % 2)), 40))(0)"


def choose(page: Page, label: str) -> None:
    item = f"[...document.querySelectorAll('.menu button')].find(one => one.textContent === {label!r})"
    page.value(f"(document.querySelector('[aria-haspopup=menu]').click(), {item}.click())")


def saved(page: Page, name: str) -> bytes:
    page.wait(f"window.saved[{name!r}] !== undefined")
    return bytes(page.value(f"Array.from(window.saved[{name!r}])"))


@pytest.mark.thorough
def test_what_is_shown_is_saved(browser: Page, tmp_path: Path) -> None:
    page = show(browser, document(), tmp_path)
    page.value(f"(() => {{ {CATCH} }})()")
    choose(page, "PNG picture")
    assert saved(page, "a-network-network.png").startswith(b"\x89PNG")
    choose(page, "SVG drawing")
    drawing = saved(page, "a-network-network.svg").decode()
    assert drawing.startswith("<svg")
    assert "dense" in drawing
    choose(page, "WebM film")
    page.value(MOVE)
    page.wait("window.filmed > 0")
    choose(page, "Stop the film")
    assert saved(page, "a-network-network.webm").startswith(b"\x1a\x45\xdf\xa3")
    choose(page, "Figure for a paper")
    figures = scope_figures(json.loads(saved(page, "a-network-network.figure.json")))
    assert figures.title == "a network"
    assert "-o figure.pdf" in page.value("document.querySelector('.alerts').textContent")
