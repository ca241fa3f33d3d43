"""The pages of networks that learn and of populations that evolve, driven in a browser."""

from __future__ import annotations

import base64
import csv
import json
from pathlib import Path

import numpy as np
import pytest

import volumetric
from tests.serve.chromium import Page
from tests.web.engine_page import EnginePage
from tests.web.page_views import WebPages, check_names_and_widths, linear_genome, set_field, texts
from volumetric.cli import main
from volumetric.detect.load_state import load_state
from volumetric.evolution import EvolutionConfig
from volumetric.loaders.native_checkpoint import NativeFacts, save_native
from volumetric.network import initialise
from volumetric.train import SGD, Adam, CrossEntropy, TrainConfig, load_samples
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
    assert main(["export", str(tmp_path / "numbers"), str(tmp_path / "other"), "--web", "--learn"]) == 0
    assert "learn_numbers" in capsys.readouterr().out
    for wrong, said in (
        ("CartPole-v1", "4 inputs and 2 outputs"),
        ("Pong-v5", "no page has the environment 'Pong-v5'"),
    ):
        out = tmp_path / wrong
        assert main(["export", str(tmp_path / "numbers"), str(out), "--web", "--environment", wrong]) != 0
        assert said in capsys.readouterr().err
        assert not out.exists()


def test_a_champion_of_cartpole_goes_on_learning(tmp_path: Path) -> None:
    genome = linear_genome([1.0, 1.0, 10.0, 3.0])
    genome.save(tmp_path / "champion.json")
    (tmp_path / "config.toml").write_text('problem = { kind = "gym", id = "CartPole-v1" }\n', encoding="utf-8")
    (tmp_path / "origin.json").write_text("{}", encoding="utf-8")
    assert save_web(tmp_path, tmp_path / "plays").view == "cartpole"
    assert save_web(tmp_path, tmp_path / "learns", learn=True).view == "learn_cartpole"
    target = json.loads((tmp_path / "learns" / "network.json").read_text(encoding="utf-8"))["learner"]["targets"][
        "output"
    ]
    assert (target["loss"], target["shape"]) == ("mse", [1])


def _saved(page: Page) -> bytes:
    """Return the last file that the page has offered; `_WATCH` must have run before."""
    return base64.b64decode(page.value(
        "saved.at(-1).arrayBuffer().then(all => btoa(String.fromCharCode(...new Uint8Array(all))))"
    ))  # fmt: skip


_WATCH = """(() => { const make = URL.createObjectURL; globalThis.saved = [];
  URL.createObjectURL = blob => { saved.push(blob); return make(blob); }; })()"""


def test_a_visitor_teaches_points_of_a_plane(pages: WebPages, tmp_path: Path) -> None:
    """By pointer, by keys and by pasted rows; the weights that are saved predict what the page shows."""
    network = volumetric.sequential(2, 8, 2, activation="tanh")
    config = TrainConfig(loss=CrossEntropy(), optimiser=Adam(lr=0.05))
    kind = LearnerNetwork(
        network, initialise(network, seed=1), config, (8,), classes=("far, left", "right"), rows=(256,)
    )
    written = save_web(kind, tmp_path / "page")
    assert written.view == "learn_numbers"
    page = pages.open(written.path)
    pages.wait("document.querySelector('.field-canvas').dataset.filled === 'true'")
    pages.click(".field-canvas")
    pages.wait("document.body.innerText.includes('1 samples, 20 updates')")
    page.value("document.querySelector('.field-canvas').focus()")
    for key in ("ArrowRight", "2", "Enter"):
        page.call("Input.dispatchKeyEvent", type="keyDown", key=key)
    pages.wait("document.body.innerText.includes('2 samples, 40 updates')")
    page.value("document.querySelector('.paste').closest('details').open = true")
    rows = 'x,y,class\n-1,0,"far, left"\n0.5;0.5;1\n-.5\t-1\t0'
    page.value(f"document.querySelector('.paste textarea').value = {json.dumps(rows)}")
    pages.click(".paste button")
    pages.wait("document.body.innerText.includes('5 samples, 60 updates')")
    first = texts(page, "table tbody td:nth-child(3)")
    assert first == ["far, left", "right", "far, left", "right", "far, left"]
    for wrong, said in (("1,2,left", "left is not a class"), ("1,2", "2 inputs and a target"), ("1,x,1", "2 inputs")):
        page.value(f"document.querySelector('.paste textarea').value = {wrong!r}")
        pages.click(".paste button")
        assert said in texts(page, "[role=alert]")[0]
    pages.press("Keep learning")
    pages.wait("document.body.innerText.includes('right of the newest samples 1')")
    pages.press("Stop learning")
    page.value(_WATCH)
    pages.press("Save weights")
    pages.wait("saved.length === 1")
    (tmp_path / "weights.safetensors").write_bytes(_saved(page))
    pages.press("Save samples")
    rows = list(csv.reader(_saved(page).decode().splitlines()))
    assert rows[0] == ["input 1", "input 2", "class"]
    assert [row[2] for row in rows[1:]] == first[::-1]
    weights = load_state(network, tmp_path / "weights.safetensors")
    scores = volumetric.predict(
        network, weights, np.array([row[:2] for row in rows[:0:-1]], np.float32), device="reference"
    )
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    shown = [text.rpartition(", ") for text in texts(page, "table tbody td:nth-child(4)")]
    assert [name for name, _, _ in shown] == first
    np.testing.assert_allclose([float(share.rstrip(" %")) for *_, share in shown], 100 * shares.max(axis=1), atol=0.6)
    pages.press("Undo")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Delete")
    pages.wait("document.querySelectorAll('table tbody tr').length === 4")
    pages.press("Forget")
    pages.wait("document.body.innerText.includes('4 samples, 0 updates')")


def test_a_visitor_plays_and_the_network_goes_on(pages: WebPages, tmp_path: Path) -> None:
    """Who only ever pushes left, by a key and by a button, is imitated by a network that does the same."""
    network = volumetric.sequential(4, 8, 2, activation="tanh")
    written = save_web(
        network, tmp_path / "cart.html", params=initialise(network, seed=1), learn=True, environment="CartPole-v1",
        single_file=True,
    )  # fmt: skip
    assert written.view == "learn_cartpole"
    page = pages.open(written.path)
    page.value(
        "document.querySelector('[aria-label=Speed]').value = '0.5'; document.querySelector('.push').scrollIntoView()"
    )
    score = "[...document.querySelectorAll('[aria-label=Score] table:first-of-type td')].map(one => one.textContent)"
    box = page.value("(({x, y}) => [x + 20, y + 20])(document.querySelector('.push').getBoundingClientRect())")
    mouse = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
    fell = "document.body.innerText.includes('Push to begin again')"
    page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft")
    pages.wait(fell)
    page.call("Input.dispatchKeyEvent", type="keyUp", key="ArrowLeft")
    first = int(page.value(score)[0])
    page.call("Input.dispatchMouseEvent", type="mousePressed", **mouse)
    pages.wait(f"!{fell}")
    pages.wait(fell)
    page.call("Input.dispatchMouseEvent", type="mouseReleased", **mouse)
    last, best, steps = map(int, page.value(score)[:3])
    assert (steps, best) == (first + last, max(first, last))
    assert 5 < best < 20
    pages.press("Keep learning")
    pages.wait("Number(document.body.innerText.match(/loss ([^,]+),/)[1]) < 0.1")
    pages.press("Stop learning")
    page.value(_WATCH)
    pages.press("Save samples")
    (tmp_path / "samples.csv").write_bytes(_saved(page))
    assert load_samples(tmp_path / "samples.csv").inputs.shape == (steps, 4)
    rows = list(csv.reader((tmp_path / "samples.csv").read_text(encoding="utf-8").splitlines()))
    assert rows[0] == ["position", "speed", "angle", "angular speed", "action"]
    assert [row[4] for row in rows[1:]] == ["left"] * steps
    pages.press("Save weights")
    pages.wait("saved.length === 2")
    (tmp_path / "weights.safetensors").write_bytes(_saved(page))
    weights, x = (
        load_state(network, tmp_path / "weights.safetensors"),
        np.array([row[:4] for row in rows[1:]], np.float32),
    )
    assert (volumetric.predict(network, weights, x, device="reference").argmax(axis=1) == 0).all()
    pages.press("Let it play")
    pages.wait(f"{score}[3] !== '–'")
    assert 5 < int(page.value(score)[3]) < 20
    assert page.value(score)[2] == str(steps)
    pages.press("Let me play")
    for left in (first, 0):
        pages.press("Undo an episode")
        assert f"{left} samples" in _text(page)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["plane", "numbers", "cartpole"])
def test_everything_has_a_name_and_fits(pages: WebPages, tmp_path: Path, kind: str) -> None:
    widths = {"plane": (2, 3), "numbers": (3, 2), "cartpole": (4, 1)}[kind]
    network = volumetric.sequential(*widths)
    environment = "CartPole-v1" if kind == "cartpole" else None
    save_web(network, tmp_path / "page", params=initialise(network, seed=1), learn=True, environment=environment)
    page = pages.open(tmp_path / "page")
    if kind != "cartpole":
        pages.press("Add these inputs")
        pages.wait("document.body.innerText.includes('1 samples, 20 updates')")
    check_names_and_widths(page)


@pytest.mark.thorough
def test_genomes_are_shown_side_by_side(pages: WebPages, tmp_path: Path) -> None:
    weights = [[1.0, 2.0], [-3.0, 0.5], [0.0, 4.0]]
    written = save_web([linear_genome(one) for one in weights], tmp_path / "genomes.html", single_file=True)
    assert written.view == "genomes"
    page = pages.open(written.path)
    set_field(page, "input 1", 0.5)
    set_field(page, "input 2", -1.0)
    shown = "[...document.querySelectorAll('table td.number')].map(one => Number(one.textContent))"
    expected = np.array(weights) @ [0.5, -1.0]
    pages.wait(f"Math.abs({shown}[2] - {expected[2]}) < 1e-3")
    np.testing.assert_allclose(page.value(shown), expected, atol=1e-3)
    assert page.value("document.querySelectorAll('table svg').length") == 3
    check_names_and_widths(page)
