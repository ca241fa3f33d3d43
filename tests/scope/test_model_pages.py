"""Views of models in a browser: pressed, pointed at, and driven by the keyboard alone."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from tests.scope.pages import open_page, show
from tests.serve.chromium import Page
from volumetric.loaders import open_model
from volumetric.scope import ScopeDocument, ScopeView
from volumetric.scope.model_views import model_views
from volumetric.viz.scope_figure import LinesFigure, MatrixFigure, read_scope_figures

FIXTURES = Path(__file__).parents[1] / "fixtures"
IDS = [5, 17, 33, 17, 60, 8, 91, 2, 40, 41, 42, 43]
_CODES = {"ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39, "Enter": 13}


@cache
def views() -> list[ScopeView]:
    llama = FIXTURES / "hf_tiny" / "llama"
    return model_views(open_model(llama, dtype="int4:g32"), IDS, llama)


def shown(browser: Page, folder: Path, *kinds: str) -> Page:
    some = tuple(view for view in views() if view.name in kinds)
    return show(browser, ScopeDocument(title="tiny", source="here", views=some), folder)


def press(page: Page, key: str) -> None:
    about = {"key": key, "code": key, "windowsVirtualKeyCode": _CODES[key]}
    page.call("Input.dispatchKeyEvent", type="keyDown", **about, **({"text": "\r"} if key == "Enter" else {}))
    page.call("Input.dispatchKeyEvent", type="keyUp", **about)


def point(page: Page, selector: str, across: float = 0.5, down: float = 0.5, *, click: bool = False) -> None:
    """Move the mouse to a place of an element, given as shares of its size, and click there."""
    box = f"document.querySelector({selector!r}).getBoundingClientRect()"
    page.value(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center', inline: 'center'}})")
    x, y = page.value(f"(box => [box.x + box.width * {across}, box.y + box.height * {down}])({box})")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    if click:
        for kind in ("mousePressed", "mouseReleased"):
            page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def tip(page: Page) -> str:
    return page.value("(box => box.hidden ? '' : box.textContent)(document.querySelector('.tooltip'))")


def text(page: Page, selector: str) -> str:
    return page.value(f"document.querySelector({selector!r}).textContent")


@pytest.mark.thorough
def test_attention_of_a_prompt_is_read_head_by_head(browser, tmp_path):
    page = shown(browser, tmp_path, "attention")
    data = next(view for view in views() if view.name == "attention").data
    assert page.value("document.querySelectorAll('.tokens .token').length") == len(IDS)
    point(page, ".tokens .token:nth-child(6)")
    weights = data["layers"][0]["weights"][0, 5]
    best = int(weights.argmax())
    assert f"“#{IDS[5]}” reads “#{IDS[best]}” " in text(page, ".attention-note")
    shades = page.value(
        "[...document.querySelectorAll('.tokens .token')].map(one => parseFloat(one.style.getPropertyValue('--shade')))"
    )
    assert shades == pytest.approx((100 * weights.astype(float) ** 0.5).tolist(), abs=0.1)
    # the grid: a press chooses a head, the arrow keys the next one
    point(page, ".multiples canvas", 0.99, 0.99, click=True)
    assert text(page, ".attention-head h2") == "block 1, head 3"
    page.value("document.querySelector('.multiples canvas').focus()")
    press(page, "ArrowUp")
    press(page, "ArrowLeft")
    assert text(page, ".attention-head h2") == "block 0, head 2"
    page.wait("location.hash.includes('head=0.2')")
    # the large matrix: the weight under the pointer, and what cannot be seen
    point(page, ".attention-head canvas", 2.5 / 12, 7.5 / 12)
    assert tip(page) == f"#{IDS[7]} (7) → #{IDS[2]} (2)\nweight {data['layers'][0]['weights'][2, 7, 2]:.4f}"
    point(page, ".attention-head canvas", 9.5 / 12, 3.5 / 12)
    assert "cannot see" in tip(page)
    page.value("document.querySelector('.attention-head canvas').focus()")
    press(page, "ArrowDown")
    assert text(page, ".status").startswith(f"#{IDS[4]} (4) cannot see #{IDS[9]} (9)")
    page.value("document.querySelector('.tokens .token').focus()")
    press(page, "ArrowRight")
    press(page, "Enter")
    assert page.value("document.activeElement.getAttribute('aria-pressed')") == "true"
    page.value("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: ']', bubbles: true}))")
    assert text(page, ".attention-head h2") == "block 1, head 2"
    page.value("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '[', bubbles: true}))")
    page.wait("location.hash.includes('head=0.2')")
    # whoever gets the link sees the same head
    address = page.value("scope.state.address()")
    open_page(page, address)
    assert text(page, ".attention-head h2") == "block 0, head 2"


def test_tokens_by_layer_are_pinned_and_walked(browser, tmp_path):
    page = shown(browser, tmp_path, "lens")
    data = next(view for view in views() if view.name == "lens").data
    top, probability = data["top"], data["probability"]
    assert page.value("document.querySelectorAll('.lens-table td').length") == 3 * len(IDS)
    assert page.value("[...document.querySelectorAll('.lens-table tbody th')].map(one => one.textContent)") == [
        "block 1", "block 0", "embedding",
    ]  # fmt: skip
    point(page, "[data-cell='1.4']", click=True)
    assert text(page, ".lens-side h2") == f"block 0, after #{IDS[4]} (4)"
    rows = page.value("[...document.querySelectorAll('.lens-side .likeliest .token')].map(one => one.textContent)")
    assert rows == [data["vocabulary"][i] for i in top[1, 4]]
    assert f"{100 * probability[1, 4, 0]:.1f} %" in tip(page)
    press(page, "ArrowUp")
    press(page, "ArrowRight")
    assert text(page, ".lens-side h2") == f"block 1, after #{IDS[5]} (5)"
    assert page.value("document.activeElement.dataset.cell") == "2.5"
    # each cell that is the model's own prediction is marked
    settled = page.value("[...document.querySelectorAll('td.settled')].map(one => one.dataset.cell)")
    same = {f"{i}.{k}" for i in range(3) for k in range(len(IDS)) if top[i, k, 0] == top[2, k, 0]}
    assert set(settled) == same


def test_layers_are_sorted_and_filtered(browser, tmp_path):
    page = shown(browser, tmp_path, "model")
    data = next(view for view in views() if view.name == "model").data
    rows = "[...document.querySelectorAll('.sortable tbody tr')]"
    assert page.value(f"{rows}.length") == len(data["rows"])
    page.value("[...document.querySelectorAll('.sortable th button')].find(one => one.textContent === 'Size').focus()")
    press(page, "Enter")
    sizes = sorted((row["bytes"] for row in data["rows"]), reverse=True)
    assert page.value(f"{rows}.map(one => one.row.bytes)") == sizes
    assert page.value("document.activeElement.closest('th').getAttribute('aria-sort')") == "descending"
    page.value("document.querySelector('.sortable tbody tr').focus()")
    press(page, "ArrowDown")
    press(page, "Enter")
    assert page.value("document.querySelector('.model-details').hidden") is False
    point(page, ".bars .bar:nth-of-type(2) rect:nth-of-type(2)")
    assert "bits per weight" in tip(page)
    assert "relative error" in tip(page)
    page.value("document.querySelector('.bars .bar').focus()")
    press(page, "ArrowDown")
    press(page, "Enter")
    assert page.value(f"new Set({rows}.map(one => one.row.block)).size") == 1
    assert "block 1 only" in text(page, ".which")
    press(page, "Enter")
    assert page.value(f"{rows}.length") == len(data["rows"])


@pytest.mark.thorough
def test_differences_are_a_tower_and_lists(browser, tmp_path):
    page = shown(browser, tmp_path, "dna")
    data = next(view for view in views() if view.name == "dna").data
    assert page.value("[...document.querySelectorAll('.dna-row > [role=rowheader]')].map(one => one.textContent)") == [
        "head", "block 1", "block 0", "embedding",
    ]  # fmt: skip
    least = min(data["cells"], key=lambda cell: cell["similarity"])
    assert f"{least['similarity']:.6f}" in text(page, ".dna-lists tbody tr")
    page.value("document.querySelector('.dna-cell[tabindex=\"0\"]').focus()")
    press(page, "ArrowDown")
    press(page, "ArrowRight")
    assert page.value("document.activeElement.dataset.place") == "2/1"
    press(page, "Enter")
    assert "attention" in text(page, ".dna-lists tr[aria-selected='true']")
    page.value(
        "(list => { list.value = 'weights'; list.dispatchEvent(new Event('change')); })"
        "(document.querySelector('.dna-right select'))"
    )
    assert text(page, ".dna-lists tbody td") == data["weights"]["keys"][0]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["model", "attention", "lens", "dna"])
def test_pages_give_the_numbers_of_figures(browser, tmp_path, name):
    page = shown(browser, tmp_path, name)
    source = "document.querySelector('[data-module=\"export/save.js\"]').textContent"
    address = f"URL.createObjectURL(new Blob([{source}], {{type: 'text/javascript'}}))"
    numbers = "save.figuresOf(document.querySelector('#stage'), scope.shown.exports())"
    figures = page.value(f"import({address}).then(save => {numbers})")
    content = {"volumetric.figure": 1, "title": name, "figures": figures}
    path = tmp_path / "x.figure.json"
    path.write_text(json.dumps(content))
    first = read_scope_figures(path).figures[0]
    data = next(view for view in views() if view.name == name).data
    if isinstance(first, MatrixFigure):
        expected = {"attention": (12, 12), "lens": (3, 12), "dna": (4, 4)}
        assert first.shape == expected[name]
        assert len(first.values) == len(first.rowNames) * len(first.columnNames)
    else:
        assert isinstance(first, LinesFigure)
        assert sum(y or 0 for line in first.series for y in line.y) == data["total"]["bytes"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["tower", "model", "attention", "lens", "dna"])
def test_pages_fit_a_phone_and_names_are_no_scripts(browser, tmp_path, name):
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    hostile = "</script><img src=x onerror=alert(1)>"
    chosen = next(view for view in views() if view.name == name)
    data = dict(chosen.data)
    for key in ("tokens", "vocabulary", "blocks"):
        if key in data:
            data[key] = [hostile] * len(data[key])
    view = ScopeView(kind=chosen.kind, name=chosen.name, label=chosen.label, data=data)
    page = show(browser, ScopeDocument(title=hostile, source=hostile, views=(view,)), tmp_path)
    assert page.value("document.documentElement.scrollWidth") == 390
    assert page.value("document.querySelectorAll('img').length") == 0
    assert page.value("[...document.querySelectorAll('button')].every(one => one.textContent || one.ariaLabel)")
