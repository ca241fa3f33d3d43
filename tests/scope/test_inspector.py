"""The inspector in a browser: from the network down to a weight and to the product that a number comes from."""

from __future__ import annotations

import numpy as np
import pytest

from tests.scope.pages import open_page, show
from tests.serve.chromium import Page
from volumetric import initialise
from volumetric.dtypes import Scheme
from volumetric.layers import LSTM, Dense, MultiHeadAttention
from volumetric.network import Network
from volumetric.network.grid import Coord
from volumetric.observe import record
from volumetric.scope import ScopeDocument, Viewer
from volumetric.scope.inspection import Inspection, InspectionSource, inspected
from volumetric.scope.scene_tables import scene_view

LAYERS = (Dense(6, 24, activation="tanh"), LSTM(24, 16), MultiHeadAttention(16, 4), Dense(16, 200), Dense(200, 3))


def recorded():
    network = Network(layers={Coord(0, 0, i, 0): spec for i, spec in enumerate(LAYERS)}, input_shape=(6,))
    params = initialise(network, seed=2)
    params["0.0.3.0/weight"].morph(Scheme.parse("int4:g32"))
    x = np.random.default_rng(0).standard_normal((1, 12, 6)).astype(np.float32)
    return network, params, x, record(network, x, params=params, device="reference")


def document(network, params, x, recording, **options) -> ScopeDocument:
    view = inspected(scene_view(recording.scene, [recording]), network, params, x, **options)
    return ScopeDocument(title="a network", source="here", views=(view,))


def at_cell(page: Page, canvas: str, row: int, column: int, *, click: bool = False) -> None:
    """Move the pointer to a cell of a heat map; with `click`, press there."""
    page.value(f"document.querySelector({canvas!r}).scrollIntoView({{block: 'center'}})")
    box = f"document.querySelector({canvas!r}).getBoundingClientRect()"
    x, y, wide, tall = page.value(f"[{box}.x, {box}.y, {box}.width, {box}.height]")
    columns, rows = page.value(f"(c => [c.width, c.height])(document.querySelector({canvas!r}))")
    place = {"x": x + wide * (column + 0.5) / columns, "y": y + tall * (row + 0.5) / rows}
    page.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
    for kind in ("mousePressed", "mouseReleased") if click else ():
        page.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)


def activate(page: Page, selector: str) -> None:
    """Bring a button into sight and press it."""
    page.value(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
    page.click(selector)


def activate_named(page: Page, text: str) -> None:
    """Press the button of the inspector with a text."""
    page.value(f"[...document.querySelectorAll('.inspect button')].find(one => one.textContent === {text!r}).click()")


def text_of(page: Page, selector: str) -> str:
    return page.value(f"document.querySelector({selector!r}).textContent")


def up(page: Page, key: str = "Escape") -> None:
    page.value(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: {key!r}, bubbles: true}}))")


def level(page: Page, name: str) -> None:
    """Wait until the inspector shows a level."""
    shown = f"document.querySelector('.inspect').dataset.level === {name!r}"
    page.wait(f"{shown} && !!document.querySelector('.inspect-body > *')")
    page.value("new Promise(done => setTimeout(done, 40))")


def tooltip(page: Page) -> str:
    return text_of(page, ".tooltip")


def test_from_the_network_to_a_weight_and_back(browser, tmp_path):
    network, params, x, recording = recorded()
    page = show(browser, document(network, params, x, recording, explain=[11], most_bytes=1 << 20), tmp_path)
    level(page, "network")
    activate(page, ".inspect-list li:nth-child(4) button")
    level(page, "node")
    assert page.value("scope.selection.value") == 3
    activate(page, '[data-parameter="weight"]')
    level(page, "matrix")  # 200 rows are averaged two by two
    at_cell(page, "canvas[data-matrix]", 40, 5)
    assert "rows 80…81, columns 5" in tooltip(page)
    at_cell(page, "canvas[data-matrix]", 40, 5, click=True)
    page.wait("document.querySelectorAll('.inspect-crumbs li').length === 4")
    level(page, "matrix")
    assert "rows 49…112, columns 0…15" in text_of(page, ".inspect-matrix")
    at_cell(page, "canvas[data-matrix]", 3, 5)
    weight, packed = params["0.0.3.0/weight"].numpy(), params["0.0.3.0/weight"].packed()
    lines = tooltip(page).split("\n")
    assert lines[0].startswith("weight[52, 5] = ")
    assert float(lines[0].split("= ")[1]) == weight[52, 5]
    assert packed.scales is not None
    assert lines[1] == f"code {packed.codes()[52, 5]}"
    assert float(lines[2].removeprefix("= ").removesuffix(" · code")) == packed.scales[52, 0]
    at_cell(page, "canvas[data-matrix]", 3, 5, click=True)
    level(page, "weight")
    assert float(text_of(page, ".inspect-value")) == weight[52, 5]
    assert "multiplies number 5 of what is read, for number 52" in page.value(
        "document.querySelector('.inspect').textContent"
    )
    for name, key in (("matrix", "Escape"), ("matrix", "Backspace"), ("node", "Escape"), ("network", "Backspace")):
        up(page, key)
        level(page, name)
    assert page.value("scope.selection.value") is None


@pytest.mark.thorough
def test_an_output_is_explained_at_a_frame(browser, tmp_path):
    network, params, x, recording = recorded()
    page = show(browser, document(network, params, x, recording, explain=[11], most_bytes=1 << 20), tmp_path)
    page.value("scope.selection.set(1)")
    level(page, "node")
    assert "not of this one" in text_of(page, ".inspect")  # frame 0 is not there
    page.value(
        "[...document.querySelectorAll('.inspect-body button')].find(one => one.textContent === 'Go to row 12').click()"
    )
    page.wait("!!document.querySelector('canvas[data-group=output]')")
    at_cell(page, "canvas[data-group=output]", 0, 3, click=True)
    level(page, "number")
    want = Inspection(network, params, x).explain(1, 11, index=3)
    assert float(text_of(page, ".inspect-value")) == pytest.approx(want["value"], rel=1e-12)
    assert text_of(page, ".inspect-formula code") == "o · tanh(c′)"
    page.value("document.querySelector('.inspect-step:nth-child(4) .inspect-terms .inspect-link').click()")
    level(page, "weight")
    assert text_of(page, "[aria-current]").startswith("ih.weight[51, ")
    page.value("scope.selection.set(2)")
    level(page, "node")
    page.value(
        "[...document.querySelectorAll('.inspect-chips button')].find(one => one.textContent === 'head 2').click()"
    )
    level(page, "part")
    activate(page, '[data-parameter="o.weight"]')
    level(page, "matrix")
    assert "rows 0…15, columns 8…11" in text_of(page, ".inspect-matrix")
    address = page.value("scope.state.address()")
    assert "inspect=" in address
    open_page(page, address)  # the link holds the level
    level(page, "matrix")
    assert page.value("scope.selection.value") == 2


@pytest.mark.thorough
def test_a_program_behind_the_page_answers_the_rest(browser):
    network, params, x, recording = recorded()
    source = InspectionSource({"network": Inspection(network, params, x)})
    server = Viewer(document(network, params, x, recording, explain=[], most_bytes=1000), source).serve()
    try:
        page = browser
        open_page(page, server.address)
        page.value("(scope.selection.set(2), scope.time.set(7))")
        page.wait("!!document.querySelector('canvas[data-group=output]')")
        at_cell(page, "canvas[data-group=output]", 0, 6, click=True)
        level(page, "number")
        want = Inspection(network, params, x).explain(2, 7, index=6)
        assert float(text_of(page, ".inspect-value")) == want["value"]
        activate_named(page, "how")
        level(page, "step")
        page.wait("document.querySelector('.inspect-step')?.textContent.includes('head')")  # the program's answer
        before = text_of(page, ".inspect-value")
        page.value("scope.time.set(9)")
        page.wait(f"document.querySelector('.inspect-value')?.textContent !== {before!r}")
        page.value("scope.selection.set(3)")
        page.wait("!!document.querySelector('[data-parameter=weight]')")
        activate(page, "[data-parameter=weight]")
        page.wait("!!document.querySelector('canvas[data-matrix]')")
        page.value("document.querySelector('canvas[data-matrix]').focus()")
        page.value(
            "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))"
        )
        assert "columns 1" in text_of(page, ".status")
    finally:
        server.close()
        browser.open("about:blank")


@pytest.mark.thorough
def test_a_page_without_weights_says_so(browser, tmp_path):
    network, params, _, recording = recorded()
    page = show(browser, document(network, params, None, recording, most_bytes=0), tmp_path)
    page.value("scope.selection.set(1)")
    level(page, "node")
    assert not page.value("document.querySelector('.inspect').textContent.includes('Numbers')")
    activate(page, '[data-parameter="hh.weight"]')
    page.wait("!!document.querySelector('.inspect-sentence')")
    assert "not in this page" in text_of(page, ".inspect-sentence")
