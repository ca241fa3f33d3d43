"""Pages of exported networks in a browser: each kind is driven, names stay text, and what fails says so."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tests.generate.letters import loaded_letters, next_letter_logits
from tests.serve.chromium import Page
from tests.web.handmade_networks import dense_network, ticking_network
from tests.web.page_views import (
    WebPages,
    add_page,
    check_names_and_widths,
    linear_genome,
    one_file,
    set_field,
    texts,
)
from volumetric import initialise, predict
from volumetric.base.errors import SpecError
from volumetric.builders import sequential, stack
from volumetric.cli import main
from volumetric.loaders import ChatTemplate, save_native
from volumetric.web.save_web import save_web

ROOT = Path(__file__).parents[2]
ENCODERS = ROOT / "tests" / "fixtures" / "hf_encoders"
HOSTILE = "</script><img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
ANSWER = "[...document.querySelectorAll('.bars .value')].map(one => Number(one.textContent))"
FAR = "performance.getEntriesByType('resource').filter(one => !one.name.startsWith('blob:')).length"


def focus(page: Page, label: str) -> None:
    page.value(
        "[...document.querySelectorAll('button, input, textarea')].find(one => (one.ariaLabel ?? one.textContent)"
        f" === {label!r}).focus()"
    )


def test_a_folder_without_a_server_says_what_it_needs(pages: WebPages, tmp_path: Path) -> None:
    """Browsers load no modules from files."""
    dense_network(tmp_path, np.random.default_rng(0))
    add_page(tmp_path, json.loads((tmp_path / "network.json").read_text()))
    pages.page.open(f"file://{tmp_path}/index.html")
    pages.wait("document.body.innerText.includes('python -m http.server')")
    pages.page.open("about:blank")
    pages.page.forget_complaints()


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
    pages.wait(
        "document.querySelectorAll('td.out').length === 4 && document.querySelector('td.out').textContent !== '…'"
    )
    table = np.reshape([float(text) for text in texts(page, "td.out")], (2, 2))
    assert np.allclose(table, [bias, weights @ [1, 2, 3, 4] + bias], rtol=1e-3)
    focus(page, "Copy table")
    page.press("Enter")
    pages.wait("document.activeElement.textContent === 'Copied'")
    page.value("document.querySelector('.paste textarea').focus()")
    page.paste()
    heads, first, second = page.value("document.querySelector('.paste textarea').value").split("\n")
    assert heads.split("\t")[1:4] == ["b", "c", "d"]
    assert first.split("\t")[:4] == ["0", "0", "0", "0"]
    assert np.allclose([float(text) for text in second.split("\t")], [1, 2, 3, 4, *table[1]])
    page.value("document.querySelector('.paste textarea').value = '1 2 x 4'")
    pages.click(".paste button")
    assert texts(page, "[role=alert]") == ["Line 1 must have 4 numbers, it is: 1 2 x 4."]
    focus(page, "Remove row 2")
    for where in ("Remove row 1", "Add these inputs"):
        page.press("Enter")  # whoever uses keys goes on where he was
        assert page.value("(one => one.ariaLabel ?? one.textContent)(document.activeElement)") == where
    assert page.value("document.querySelector('[aria-label=c]').getAttribute('aria-valuetext')") == "-0.5"
    # Of many classes the likeliest are shown, best first.
    assert page.value(
        "import('./answers.js').then(({ answers }) => {"
        " const names = Array.from({ length: 1000 }, (_, i) => `class ${i}`),"
        " shown = answers({ outputs: { y: { shape: [1000], names } } });"
        " shown.show({ y: Float32Array.from(names, (_, i) => (i === 777 ? 9 : i / 1000)) });"
        " return [...shown.element.querySelectorAll('.name, .note')].map(one => one.textContent); })"
    ) == ["class 777", *(f"class {i}" for i in range(999, 980, -1)), "The likeliest 20 of 1,000."]
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


def test_an_input_is_fed_at_its_period_and_held_between(pages: WebPages, tmp_path: Path) -> None:
    network = ticking_network(tmp_path)
    network["inputs"]["x"]["every"] = [2, 1]
    network["ticks"]["programs"] = [{"fed": ["x"], "program": "tick"}, {"fed": [], "program": "held"}]
    for variant in network["variants"]:  # without a row, the leak does not move
        variant["programs"]["held"] = []
    page = pages.open(add_page(tmp_path, network, paused=True))
    assert page.value("document.querySelector('[aria-label^=\"x: ticks\"]').value") == "2"
    value = "Number(document.querySelector('.now td').textContent)"
    step = "Number(document.querySelector('.dim.number').textContent.replace(/\\D/g, ''))"
    page.value("document.querySelector('select').value = 'hand'")
    pages.press("Reset")
    pages.wait("document.body.innerText.includes('forgotten')")
    set_field(page, "x", 1)
    seen = []
    for tick in range(6):
        if tick == 4:
            set_field(page, "x: ticks from one row to the next, 0 for none", 0)
        pages.press("Step")
        pages.wait(f"{step} === {tick + 1}")
        seen.append(page.value(value))
    assert seen[1:] == [5, 5, 3.5, 3.5, 3.5], "8 / 2 + 1 at tick 1, 5 / 2 + 1 at tick 3"


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        pytest.param(lambda network: network | {"version": 99}, "version 99", marks=pytest.mark.thorough),
        (lambda network: network | {"kind": "<b>x</b>"}, '"<b>x</b>"'),
        pytest.param(
            lambda network: network | {"pieces": [{**network["pieces"][0], "sha256": "0" * 64}]},
            "damaged",
            marks=pytest.mark.thorough,
        ),
        pytest.param(lambda network: network | {"inputs": 5}, "inputs must be an object", marks=pytest.mark.thorough),
    ],
)
def test_a_damaged_export_says_what_is_wrong(pages: WebPages, tmp_path: Path, damage, sentence) -> None:
    network, _ = dense_network(tmp_path, np.random.default_rng(0))
    add_page(tmp_path, network)
    (tmp_path / "network.json").write_text(json.dumps(damage(network)))
    page = pages.open(tmp_path, fails=True)
    assert sentence in " ".join(texts(page, "[role=alert]"))
    assert page.value("document.querySelectorAll('b, main *').length") == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("hints", "sentence"),
    [
        ({"view": "../engine"}, None),
        ({"fields": {"input": 5}, "rows": "x", "outputs": []}, None),
        ({"view": "field", "samples": 1}, "this network has 4"),
    ],
)
def test_odd_hints_do_no_harm(pages: WebPages, tmp_path: Path, hints, sentence) -> None:
    network, _ = dense_network(tmp_path, np.random.default_rng(0))
    add_page(tmp_path, network, **({} if sentence is None else hints))
    (tmp_path / "network.json").write_text(json.dumps(network | {"ui": hints}))
    page = pages.open(tmp_path, fails=sentence is not None)
    assert (sentence or "Inputs") in page.value("document.body.innerText")


@pytest.fixture(scope="module")
def xor_run(tmp_path_factory) -> Path:
    """The directory of a run that solves XOR."""
    folder = tmp_path_factory.mktemp("runs")
    assert main(["evolve", str(ROOT / "examples/xor.toml"), "--out", str(folder / "xor"), "--quiet"]) == 0
    return folder / "xor"


@pytest.mark.thorough
def test_a_champion_is_one_small_file(xor_run: Path, tmp_path: Path, capsys) -> None:
    page = tmp_path / "xor.html"
    assert main(["export", str(xor_run), str(page), "--web", "--single-file", "--licence", "CC0-1.0"]) == 0
    assert "xor, evolved as a page (field)" in capsys.readouterr().out
    text = page.read_text()
    assert len(text.encode()) <= 60_000
    assert "http" not in text.replace("http-equiv", "")
    assert "unsafe-inline'; script" not in text.partition("script-src")[2]


@pytest.mark.thorough
def test_a_champion_of_xor_in_one_file(pages: WebPages, xor_run: Path, tmp_path: Path) -> None:
    save_web(xor_run, tmp_path / "xor.html", single_file=True, author="Ada", description="Tells whether bits differ.")
    page = pages.open(tmp_path / "xor.html")
    pages.wait("document.querySelectorAll('.samples tbody tr').length === 4")
    assert texts(page, ".total") == ["4 of 4 right"]
    assert texts(page, ".samples .right") == ["✓ right"] * 4
    assert page.value("document.querySelectorAll('svg.genome path').length") > 3
    assert "Tells whether bits differ." in texts(page, "header p")
    assert {"Ada", "xor", "not stated"} <= set(texts(page, ".about dd"))
    assert "--licence" in page.value("document.querySelector('.about').textContent")
    rows = [float(text) for text in texts(page, ".samples td.number")]
    for left, right, expected, got in np.reshape(rows, (4, 4)):
        assert expected == (left != right)
        assert abs(got - expected) < 0.5
    pages.wait("document.querySelector('.field-canvas').dataset.filled === 'true'")
    shades = page.value(
        "(canvas => { const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        " const seen = new Set(); for (let i = 0; i < all.length; i += 400) seen.add(all[i] + ',' + all[i + 2]);"
        " return seen.size; })(document.querySelector('.field-canvas'))"
    )
    assert shades > 20
    page.value("document.querySelector('.field-canvas').focus()")
    before = page.value(ANSWER)
    page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowUp", code="ArrowUp", windowsVirtualKeyCode=38)
    pages.wait(f"{ANSWER}[0] !== {before[0]}")
    assert page.value(FAR) == 0


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["rows", "ticks"])
def test_everything_has_a_name_and_fits(pages: WebPages, tmp_path: Path, kind: str) -> None:
    network = dense_network(tmp_path, np.random.default_rng(0))[0] if kind == "rows" else ticking_network(tmp_path)
    page = pages.open(add_page(tmp_path, network, paused=True))
    if kind == "rows":
        pages.press("Add a random row")
    check_names_and_widths(page)


@pytest.mark.thorough
def test_a_lost_gpu_is_told(pages: WebPages, tmp_path: Path) -> None:
    page = pages.open(add_page(tmp_path, dense_network(tmp_path, np.random.default_rng(0))[0]))
    page.call("Emulation.clearDeviceMetricsOverride")
    browser = {key: page._session.pop(key) for key in list(page._session)}
    try:
        page.call("Browser.crashGpuProcess")
    finally:
        page._session.update(browser)
    pages.wait("document.querySelector('[role=alert]') !== null")
    assert "Load again" in page.value("document.querySelector('[role=alert]').textContent")
    page.forget_complaints()


@pytest.mark.thorough
def test_an_image_is_drawn(pages: WebPages, tmp_path: Path) -> None:
    network = sequential(64, 10)
    params = initialise(network, seed=1)
    save_web(network, tmp_path / "page", params=params, image=(8, 8), title="digits")
    page = pages.open(tmp_path / "page")
    empty = predict(network, params, np.zeros((1, 64), np.float32), device="reference")[0]
    assert np.allclose(page.value(ANSWER), empty, atol=1e-3)
    pages.click("canvas.pixels")
    pages.wait(f"Math.abs({ANSWER}[0] - {empty[0]}) > 1e-3")
    image = np.array(page.value(
        "[...document.querySelector('canvas.pixels').getContext('2d').getImageData(0, 0, 8, 8).data]"
    )).reshape(8, 8, 4)[..., 0]  # fmt: skip
    assert image[3:5, 3:5].min() > 150
    assert image[0].max() == 0
    drawn = predict(network, params, (image / 255).reshape(1, 64).astype(np.float32), device="reference")[0]
    pages.wait(f"Math.abs({ANSWER}[0] - {drawn[0]}) < 0.02")
    page.value("document.querySelector('canvas.pixels').focus()")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Delete", code="Delete", windowsVirtualKeyCode=46)
    pages.wait(f"Math.abs({ANSWER}[0] - {empty[0]}) < 1e-3")


@pytest.mark.thorough
def test_a_recurrent_network_streams(pages: WebPages, tmp_path: Path) -> None:
    network = stack(8, ["L"], inputs=2, classes=2)
    save_web(network, tmp_path / "page", params=initialise(network, seed=1))
    page = pages.open(tmp_path / "page")
    pages.wait("Number(document.querySelector('.dim.number').textContent.replace(/\\D/g, '')) > 4")
    pages.press("Pause")
    assert len(texts(page, ".now td")) == 2
    assert "step" in page.value("document.querySelector('.speed').textContent")


@pytest.mark.thorough
def test_a_pole_is_balanced(pages: WebPages, tmp_path: Path) -> None:
    genome = linear_genome([1.0, 1.0, 10.0, 3.0])
    genome.save(tmp_path / "champion.json")
    (tmp_path / "config.toml").write_text('[problem]\nkind = "gym"\nid = "CartPole-v1"\n')
    (tmp_path / "origin.json").write_text("{}")
    save_web(tmp_path, tmp_path / "page.html", single_file=True)
    page = pages.open(tmp_path / "page.html")
    assert page.value("document.querySelectorAll('svg.genome circle').length") == 5
    assert {"angular speed", "push"} <= set(texts(page, "svg.genome text"))
    steps = "Number(document.querySelector('.dim.number').textContent.match(/best ([\\d,]+)/)[1].replace(',', ''))"
    pages.wait(f"{steps} >= 60")
    assert "fell" not in page.value("document.body.innerText")


@pytest.mark.thorough
def test_a_conversation(pages: WebPages, tmp_path: Path) -> None:
    model = loaded_letters(next_letter_logits())
    template = ChatTemplate(
        {"default": "{% for m in messages %}{{ m.content }}{% endfor %}" + "{# " + HOSTILE + " #}"}, {}, "x"
    )
    save_web(dataclasses.replace(model, chat_template=template), tmp_path / "page", title=HOSTILE)
    page = pages.open(tmp_path / "page")
    page.write("ab")
    page.press("Enter")
    pages.wait("document.querySelector('#stop').hidden && document.querySelectorAll('.assistant').length === 1")
    assert texts(page, ".assistant") == ["cdefgh"]
    speed = page.value("document.querySelector('#speed').textContent")
    assert "tokens/s" in speed
    assert f"context: {2 + 7} of" in speed  # the prompt, and the answer with its end
    assert page.value("document.querySelector('#temperature').placeholder") == "0"
    page.value("document.querySelector('#tokens').value = 2")
    pages.press("Retry")
    pages.wait("document.querySelector('#stop').hidden && document.querySelector('.assistant').textContent === 'cd'")
    assert texts(page, ".user") == ["ab"]
    stored = page.value("JSON.parse(sessionStorage.getItem(`talk ${location.pathname} ${document.title}`))")
    assert [one["content"] for one in stored] == ["ab", "cd"]
    pages.press("Edit message")
    assert page.value("document.activeElement.value") == "ab"
    assert texts(page, "#talk > :not(#empty)") == []
    page.value("document.activeElement.value = '<b>x</b>'")
    page.press("Enter")
    pages.wait("document.querySelector('#stop').hidden")
    assert page.value("document.querySelectorAll('#talk b').length") == 0


@pytest.mark.thorough
def test_texts_are_compared(pages: WebPages, tmp_path: Path) -> None:
    save_web(str(ENCODERS / "sentences_mean"), tmp_path / "page")
    page = pages.open(tmp_path / "page")
    page.value("document.querySelectorAll('textarea').forEach(box => { box.value = 'the same text'; })")
    pages.press("Compare")
    pages.wait("document.querySelector('.similarity').textContent === 'Similarity 1.000'")
    page.value("document.querySelector('#text-1').value = 'another one'; 0")
    pages.press("Compare")
    pages.wait("/^Similarity .*[^0]$/.test(document.querySelector('.similarity').textContent)")
    for text, sentence in (("", "Write two texts."), ("word " * 200, "tokens; the model takes")):
        page.value(
            f"(box => {{ box.value = {text!r}; box.dispatchEvent(new Event('input')); }})"
            "(document.querySelector('#text-1'))"
        )
        assert page.value("document.querySelector('.card-part').ariaBusy") == "true"  # what is shown is of other texts
        pages.wait("document.querySelector('.card-part').ariaBusy === 'false'")
        assert page.value("document.querySelector('.similarity').textContent") == "–"
        assert sentence in page.value("document.body.innerText")


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    network = sequential(2, 1)
    save_native(tmp_path / "net", network, initialise(network))
    for arguments, sentence in (
        (["net", "page"], "with --web"),
        (["net", "page.html", "--web"], "add --single-file"),
        (["net", "page", "--web", "--single-file"], "page.html"),
        (["net", "page", "--web", "--image", "big"], "as --image 28x28"),
        (["net", "page", "--web", "--image", "3x3"], "the input has 2"),
        (["nothing", "page", "--web"], "nothing"),
    ):
        assert main(["export", *arguments]) != 0
        error = capsys.readouterr().err
        assert sentence in error
        assert "Traceback" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net"]
    assert main(["export", "net", "page", "--web"]) == 0
    output = capsys.readouterr()
    assert "page (field)" in output.out
    assert "python -m http.server -d page" in output.err
    assert main(["export", "net", "page", "--web"]) == 2
    assert main(["export", "net", "page", "--web", "--overwrite", "--quiet"]) == 0
    policy = (tmp_path / "page" / "index.html").read_text()
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


@pytest.mark.thorough
def test_large_networks_are_no_single_file(tmp_path: Path) -> None:
    network = sequential(3000, 3000)
    with pytest.raises(SpecError, match=r"46 MiB, and one file may have 32"):
        save_web(network, tmp_path / "x.html", params=initialise(network), single_file=True)
    assert not (tmp_path / "x.html").exists()
