"""Pages of exported networks in a browser: each kind is driven, names stay text, and what fails says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.serve.chromium import Page
from tests.web.handmade_networks import dense_network, ticking_network
from tests.web.page_views import WebPages, add_page, one_file, texts

HOSTILE = "</script><img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
ANSWER = "[...document.querySelectorAll('.bars .value')].map(one => Number(one.textContent))"
FAR = "performance.getEntriesByType('resource').filter(one => !one.name.startsWith('blob:')).length"


def set_field(page: Page, name: str, value: float) -> None:
    page.value(
        f"(box => {{ box.value = {value}; box.dispatchEvent(new Event('input')); }})"
        f"(document.querySelector('[aria-label={json.dumps(name)}]'))"
    )


def test_numbers_in_and_out_by_sliders_and_in_a_table(pages: WebPages, tmp_path: Path) -> None:
    network, numbers = dense_network(tmp_path, np.random.default_rng(0))
    weights, bias = numbers[:8].reshape(2, 4), numbers[8:]
    network["title"] = HOSTILE
    network["origin"] = {"name": HOSTILE, "licence": "MIT"}
    network["inputs"]["input"]["names"] = [HOSTILE, "b", "c", "d"]
    network["outputs"]["output"]["label"] = HOSTILE
    page = pages.open(add_page(tmp_path, network))
    assert page.value("document.title") == HOSTILE == page.value("document.querySelector('h1').textContent")
    assert page.value("document.querySelectorAll('img, #stage script').length") == 0
    assert np.allclose(page.value(ANSWER), bias, rtol=1e-3)
    for name, value in (("b", 1.0), ("c", -0.5)):
        set_field(page, name, value)
    expected = weights @ [0, 1, -0.5, 0] + bias
    pages.wait(f"Math.abs({ANSWER}[0] - {expected[0]}) < 1e-3")
    assert np.allclose(page.value(ANSWER), expected, rtol=1e-3)
    page.value("document.querySelector('.paste').closest('details').open = true")
    page.value("document.querySelector('.paste textarea').value = '0, 0, 0, 0\\n1 2 3 4'")
    pages.click(".paste button")
    pages.wait("document.querySelectorAll('td.out').length === 4 && document.querySelector('td.out').textContent !== '…'")
    table = np.reshape([float(text) for text in texts(page, "td.out")], (2, 2))
    assert np.allclose(table, [bias, weights @ [1, 2, 3, 4] + bias], rtol=1e-3)
    page.value("document.querySelector('.paste textarea').value = '1 2 x 4'")
    pages.click(".paste button")
    assert texts(page, "[role=alert]") == ["Line 1 must have 4 numbers, it is: 1 2 x 4."]
    assert "MIT" in page.value("document.querySelector('.about').textContent")
    assert "swiftshader" in page.value("document.querySelector('#device').textContent").lower()


def test_one_file_streams_without_a_server(pages: WebPages, tmp_path: Path) -> None:
    page = pages.open(one_file(tmp_path / "leak.html", ticking_network(tmp_path) | {"title": HOSTILE}, paused=True))
    assert page.value("document.querySelector('h1').textContent") == HOSTILE
    assert page.value(FAR) == 0
    value = "Number(document.querySelector('.now td').textContent)"
    page.value("document.querySelector('select').value = 'hand'")
    pages.press("Reset")
    pages.wait("document.body.innerText.includes('forgotten')")
    for expected in (4, 2, 1):
        pages.press("Step")
        pages.wait(f"{value} === {expected}")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda network: network | {"version": 99}, "version 99"),
        (lambda network: network | {"kind": "<b>x</b>"}, '"<b>x</b>"'),
        (lambda network: network | {"pieces": [{**network["pieces"][0], "sha256": "0" * 64}]}, "damaged"),
        (lambda network: network | {"inputs": 5}, "inputs must be an object"),
    ],
)
def test_a_damaged_export_says_what_is_wrong(pages: WebPages, tmp_path: Path, damage, sentence) -> None:
    network, _ = dense_network(tmp_path, np.random.default_rng(0))
    add_page(tmp_path, network)
    (tmp_path / "network.json").write_text(json.dumps(damage(network)))
    page = pages.open(tmp_path, fails=True)
    assert sentence in " ".join(texts(page, "[role=alert]"))
    assert page.value("document.querySelectorAll('b, main *').length") == 0


@pytest.mark.parametrize(
    "hints", [{"view": "../engine"}, {"fields": {"input": 5}, "rows": "x", "outputs": []}, {"view": "field", "samples": 1}]
)
def test_odd_hints_do_no_harm(pages: WebPages, tmp_path: Path, hints) -> None:
    network, _ = dense_network(tmp_path, np.random.default_rng(0))
    add_page(tmp_path, network)
    (tmp_path / "network.json").write_text(json.dumps(network | {"ui": hints}))
    pages.server.folders["export"] = tmp_path
    page = pages.open(tmp_path, fails=hints.get("view") == "field")
    assert page.value("document.body.innerText").strip()
