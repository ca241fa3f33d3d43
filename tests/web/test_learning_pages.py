"""The pages of networks that learn and of populations that evolve, driven in a browser."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import volumetric
from tests.serve.chromium import Page
from tests.web.engine_page import EnginePage
from tests.web.page_views import WebPages
from volumetric.cli import main
from volumetric.evolution import EvolutionConfig
from volumetric.loaders.native_checkpoint import NativeFacts, save_native
from volumetric.network import initialise
from volumetric.train import SGD, CrossEntropy, TrainConfig
from volumetric.web.learner_network import LearnerNetwork
from volumetric.web.neat_population import NeatPopulation
from volumetric.web.save_web import save_web

_STROKE = """(() => {
  const canvas = document.querySelector('canvas.pixels'), box = canvas.getBoundingClientRect();
  canvas.setPointerCapture = () => {};
  const send = (name, x, y) => canvas.dispatchEvent(new PointerEvent(name, {
    bubbles: true, pointerId: 1, buttons: 1, clientX: box.x + x * box.width, clientY: box.y + y * box.height}));
  send('pointerdown', .2, HEIGHT);
  send('pointermove', .8, HEIGHT);
})()"""


def _press(page: Page, name: str) -> None:
    page.value(f"[...document.querySelectorAll('button')].find(one => one.textContent === {name!r}).click()")


def _text(page: Page) -> str:
    return page.value("document.body.innerText")


@pytest.mark.thorough
def test_a_visitor_teaches_two_classes(engine: EnginePage) -> None:
    network = volumetric.sequential((1, 8, 8), volumetric.layers.Flatten(), 2)
    kind = LearnerNetwork(
        network, initialise(network, seed=1), TrainConfig(loss=CrossEntropy(), optimiser=SGD(lr=0.5)), (8,),
        classes=("above", "below"),
    )  # fmt: skip
    page = (pages := WebPages(engine.page, engine.server)).open(save_web(kind, engine.folder / "page").path)
    _press(page, "above")
    assert "Draw something first" in _text(page)
    for sample in range(6):
        page.value(_STROKE.replace("HEIGHT", str(0.2 + 0.6 * (sample % 2))))
        _press(page, ("above", "below")[sample % 2])
        pages.wait(f"document.body.innerText.includes('{sample + 1} samples, {8 * (sample + 1)} updates')")
    for label, name in enumerate(("above", "below")):
        page.value(_STROKE.replace("HEIGHT", str(0.2 + 0.6 * label)))
        pages.wait(f"document.querySelector('.bars .best .name').textContent === {name!r}")
        _press(page, "Clear")
    _press(page, "Forget")
    pages.wait("document.body.innerText.includes('forgotten')")
    pages.end()


def test_a_population_evolves_in_one_file(engine: EnginePage) -> None:
    kind = NeatPopulation(EvolutionConfig(population=60))
    written = save_web(kind, engine.folder / "neat.html", single_file=True, title="Evolve")
    assert (written.kind, written.view, written.title) == ("population", "neat", "Evolve")
    assert written.bytes < 90_000
    page = (pages := WebPages(engine.page, engine.server)).open(written.path)
    assert "60 genomes" in _text(page)
    _press(page, "One generation")
    pages.wait("document.body.innerText.includes('Generation 0: 1 species')")
    rows = page.value(
        "[...document.querySelectorAll('table.now tbody tr')].map(row => row.innerText.split('\\t').map(Number))"
    )
    assert [[a, b, expected] for a, b, expected, _ in rows] == [[0, 0, 0], [1, 0, 1], [0, 1, 1], [1, 1, 0]]
    champion = np.array([one for *_, one in rows])
    best = float(page.value("document.body.innerText.match(/fitness ([\\d.]+) of generation 0/)[1]"))
    assert 4 - ((champion - [0, 1, 1, 0]) ** 2).sum() == pytest.approx(best, abs=2e-3)
    pages.end()


def test_the_command_exports_what_goes_on_learning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = volumetric.sequential(64, 10)
    facts = NativeFacts(classes=tuple("0123456789"))
    save_native(tmp_path / "model", network, initialise(network, seed=1), facts=facts)
    assert main(["export", str(tmp_path / "model"), str(tmp_path / "page"), "--web", "--learn"]) == 0
    assert "learn_digits" in capsys.readouterr().out
    written = json.loads((tmp_path / "page" / "network.json").read_text(encoding="utf-8"))
    assert [one["rows"] for one in written["learner"]["updates"]] == [1, 16]
    assert written["learner"]["targets"]["output"]["loss"] == "cross_entropy"
    save_native(tmp_path / "numbers", network, initialise(network, seed=1))
    assert main(["export", str(tmp_path / "numbers"), str(tmp_path / "other"), "--web", "--learn"]) != 0
    assert "images of classes" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
