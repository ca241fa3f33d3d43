"""The verb scope: models that run are recorded, recordings are drawn and served, and mistakes are told."""

from __future__ import annotations

import json
import re
import threading
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
from volumetric.observe import Recording

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
        "scope", "record", model, "--in", "rows.npz", "--ticks", "4", "--row", "1", "--device", "reference"
    )
    assert (code, out) == (0, "")
    assert "10 ticks drawn in net.scope" in err
    found = Recording.open("net.scope")
    assert (found.scene.kind, len(found), found.meta.row, found.meta.device) == ("systolic", 10, 1, "reference")
    code, _, err = run("scope", "html", "net.scope")
    assert (code, "10 frames of 3 nodes (systolic)" in err) == (0, True)
    assert "const film=" in Path("net.html").read_text()
    assert run("scope", "gif", "net.scope", "--out", "other.gif", "--rate", "5")[0] == 0
    assert Path("other.gif").read_bytes().startswith(b"GIF89a")
    code, _, err = run(
        "scope",
        "record",
        model,
        "--in",
        "rows.npz",
        "--no-clocked",
        "--every",
        "2",
        "-o",
        "rows.scope",
        "--device",
        "cpu",
    )
    assert code == 0
    assert (Recording.open("rows.scope").scene.kind, len(Recording.open("rows.scope"))) == ("stack", 3)


def served(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Run the verb in a thread, and return the frames that it sends."""
    codes: list[int] = []
    verb = threading.Thread(target=lambda: codes.append(main(arguments)))
    verb.start()
    told = ""
    while not (found := re.search(r"http://127\.0\.0\.1:\d+", told)):
        told += capsys.readouterr().err
        verb.join(0.05)
        assert verb.is_alive(), told
    with urllib.request.urlopen(f"{found[0]}/scene", timeout=20) as page:
        assert len(json.load(page)["nodes"]) == 3
    with urllib.request.urlopen(found[0], timeout=20) as page:
        assert "<canvas" in page.read().decode()
    with urllib.request.urlopen(f"{found[0]}/ticks", timeout=20) as events:
        frames = [json.loads(line.removeprefix(b"data: ")) for line in events if line.startswith(b"data")]
    verb.join(20)
    assert codes == [0]
    return frames


def test_a_model_and_a_recording_are_served(model: str, run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    live = served(["scope", "serve", model, "--in", "rows.npz", "--rate", "500", "--device", "reference"], capsys)
    assert [frame["t"] for frame in live] == [1, 2, 3, 4, 5, 6]
    assert run("scope", "record", model, "--in", "rows.npz", "--device", "reference")[0] == 0
    again = served(["scope", "serve", "net.scope", "--rate", "500"], capsys)
    assert [frame["t"] for frame in again] == [1, 2, 3, 4, 5, 6]
    assert again[-1]["meters"]["mean"] == pytest.approx(live[-1]["meters"]["mean"], rel=0.02)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["film", "net"], 2, "film"),
        (["record", "net", "--in", "rows.npz", "--out", "a.gif"], 2, "must end in .scope"),
        (["record", "net", "--in", "rows.npz", "--row", "2"], 1, "row must be in 0 … 1"),
        (["record", "net", "--in", "rows.npz", "--ticks", "0"], 2, "--ticks must be 1 or more"),
        (["record", "net", "--in", "rows.npz", "--no-clocked", "--ticks", "3"], 1, "tick by tick"),
        (["record", "net"], 2, "scope record net needs rows"),
        (["serve", "net"], 2, "--in - for stdin"),
        (["gif", "net.scope"], 1, "no such file"),
        (["html", "net"], 1, "net is a directory, not a recording"),
        (["gif", "rows.npz"], 1, "rows.npz: it has no meta.json"),
        (["html", "net.scope", "--in", "rows.npz"], 2, "cannot run rows"),
        (["html", "net.scope", "--rate", "0"], 2, "--rate must be 1 or more"),
        (["serve", "net", "--in", "rows.npz", "--out", "a.scope"], 2, "writes no file"),
    ],
)
def test_mistakes_are_told(model: str, arguments: list[str], code: int, part: str, run: Any) -> None:
    assert part in run("scope", *arguments)[2]
    assert run("scope", *arguments)[0] == code
