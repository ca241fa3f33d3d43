"""The verb scope: models that run are recorded, recordings are drawn and served, and mistakes are told."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from volumetric import Clocked
from volumetric.builders import chain
from volumetric.cli import main
from volumetric.layers import Dense
from volumetric.loaders import save_native
from volumetric.network import initialise
from volumetric.observe import Recording, record

NETWORK = chain([Dense(in_features=3, out_features=3, activation="tanh")] * 3, (3,))
PARAMS = initialise(NETWORK)
X = np.random.default_rng(0).standard_normal((2, 6, 3)).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    save_native("net", NETWORK, PARAMS, clocked=Clocked(network=NETWORK))
    np.savez("rows.npz", input=X)
    return "net"


def test_a_model_is_recorded_and_drawn(model: str, run: Any) -> None:
    code, out, err = run(
        "scope", model, "-o", "net.scope", "--in", "rows.npz", "--ticks", "4", "--row", "1", "--device", "reference"
    )
    assert (code, out) == (0, "")
    assert "10 ticks drawn in net.scope" in err
    recorded = Recording.open("net.scope")
    assert (recorded.scene.kind, len(recorded), recorded.meta.row) == ("systolic", 10, 1)
    assert recorded.meta.device == "reference"
    code, _, err = run("scope", "net.scope", "--html")
    assert (code, "network of net.scope: written to net.html" in err) == (0, True)
    assert 'id="document"' in Path("net.html").read_text()
    assert run("scope", "net.scope", "--out", "other.gif", "--rate", "5")[0] == 0
    assert Path("other.gif").read_bytes().startswith(b"GIF89a")
    arguments = ["scope", model, "--in", "rows.npz", "--no-clocked", "--every", "2", "-o", "rows.scope"]
    assert run(*arguments, "--device", "cpu")[0] == 0
    assert (Recording.open("rows.scope").scene.kind, len(Recording.open("rows.scope"))) == ("stack", 3)


def test_former_words_still_work(model: str, run: Any) -> None:
    code, _, err = run("scope", "record", model, "--in", "rows.npz", "--device", "reference")
    assert (code, "is now `volumetric scope net --out net.scope`" in err) == (0, True)
    code, _, err = run("scope", "html", "net.scope")
    assert (code, Path("net.html").exists()) == (0, True)
    assert run("scope", "gif", "net.scope")[0] == 0
    assert Path("net.gif").exists()


@pytest.mark.parametrize("arguments", [[], ["--in", "rows.npz"]])
def test_a_network_is_written_as_a_page(model: str, arguments: list[str], run: Any) -> None:
    code, _, err = run("scope", model, *arguments, "--out", "page.html", "--device", "reference")
    assert (code, "written to page.html" in err) == (0, True)
    assert "2.0.0.0 dense" in Path("page.html").read_text()


class Served:
    """The verb in a thread, until the test ends it."""

    def __init__(
        self, arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._stop = threading.Event()
        monkeypatch.setattr("volumetric.cli.scope_request.StopRequest", lambda: self)
        self._codes: list[int] = []
        self._verb = threading.Thread(target=lambda: self._codes.append(main([*arguments, "--no-browser"])))
        self._verb.start()
        told = ""
        while not (address := re.search(r"http://127\.0\.0\.1:\d+/\?token=[\w-]+", told)):
            told += capsys.readouterr().err
            self._verb.join(0.05)
            assert self._verb.is_alive(), told
        self.address = address[0]

    requested = property(lambda self: self._stop.is_set())

    def waiting(self) -> Any:
        return contextlib.nullcontext()

    def close(self) -> list[int]:
        self._stop.set()
        self._verb.join(20)
        return self._codes


@pytest.mark.parametrize("arguments", [["net"], ["net", "--in", "rows.npz"], ["net.scope"]])
def test_pages_are_served_with_a_token(
    model: str, arguments: list[str], run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record(Clocked(network=NETWORK), X[:1], params=PARAMS, device="reference").save("net.scope")
    verb = Served(["scope", *arguments, "--device", "reference"], capsys, monkeypatch)
    try:
        with urllib.request.urlopen(verb.address, timeout=20) as page:
            assert "2.0.0.0 dense" in page.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(verb.address.partition("?")[0], timeout=20)
    finally:
        assert verb.close() == [0]


def test_figures_of_pages_are_drawn(model: str, run: Any) -> None:
    line = {"name": "loss $1", "x": [0, 1], "y": [2.0, None], "colour": "#336699"}
    figures = [{"kind": "lines", "series": [line], "xLabel": "step"}]
    Path("a.figure.json").write_text(json.dumps({"volumetric.figure": 1, "title": "a", "figures": figures}))
    code, _, err = run("scope", "a.figure.json", "-o", "a.svg")
    assert (code, "drawn in a.svg" in err) == (0, True)
    assert "<svg" in Path("a.svg").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["film", "net"], 1, "film"),
        (["net", "--in", "rows.npz", "--out", "a.mp4"], 2, "--out must end in .html, .gif, .scope"),
        (["net", "--in", "rows.npz", "--html", "--out", "a.gif"], 2, "does not end in .html"),
        (["net", "--in", "rows.npz", "--row", "2", "--html"], 1, "row must be in 0 … 1"),
        (["net", "--in", "rows.npz", "--ticks", "0"], 2, "--ticks must be 1 or more"),
        (["net", "--in", "rows.npz", "--no-clocked", "--ticks", "3", "--html"], 1, "tick by tick"),
        (["net", "--out", "a.scope"], 2, "needs rows"),
        (["net", "--prompt", "hello", "--html"], 2, "--prompt is for language models"),
        (["net.scope", "--out", "a.gif"], 1, "no such file"),
        (["rows.npz", "--html"], 1, "rows.npz"),
        (["net", "--out", "a.pdf"], 2, "can only be drawn from a figure"),
        (["net.scope", "--in", "rows.npz", "--html"], 2, "cannot run rows"),
        (["net.scope", "--html", "--rate", "0"], 2, "--rate must be 1 or more"),
    ],
)
def test_mistakes_are_told(model: str, arguments: list[str], code: int, part: str, run: Any) -> None:
    assert part in run("scope", *arguments)[2]
    assert run("scope", *arguments)[0] == code
