"""Machines as JSON: nothing is lost, in a text and beside a network, and what is wrong is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clocked.machines import machine, weights
from volumetric import Clocked, Coord, Every
from volumetric.base.errors import CheckpointError, ShapeError, SpecError, UnsupportedError
from volumetric.builders.sequential import chain
from volumetric.layers import RNN, Dense
from volumetric.loaders import open_model, save_native
from volumetric.loaders.convert_model import convert_model
from volumetric.network import initialise

NETWORK = chain([Dense(in_features=2, out_features=3), RNN(input_size=3, hidden_size=3)], (2,))
MACHINE = Clocked(
    network=NETWORK, clocks={Coord(1): Every(period=3, phase=2)}, hold={"input": "zero"}, start="wavefront"
)


def test_a_round_trip_loses_nothing() -> None:
    seen = 0
    for seed in range(40):
        try:
            made = machine(seed)
        except ShapeError:
            continue
        seen += 1
        text = made.to_json()
        again = Clocked.from_json(text)
        assert again == made
        assert again.to_json() == text
        assert Clocked.from_json(made.to_json(network=False).encode(), made.network) == made
    assert seen > 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, "clocked: format is 'x'"),
        ({"version": 3}, "version 3"),
        ({"clock": {}}, r"\$: unknown key 'clock'"),
        ({"clocks": []}, r"\$\.clocks: "),
        ({"clocks": {"0.0.0.0": {"period": 1.5}}}, r"\$\.clocks\.0\.0\.0\.0\.period"),
        ({"clocks": {"0.0.0.0": {"period": 0}}}, r"\$\.clocks\.0\.0\.0\.0: every: the period"),
        ({"clocks": {"0.0.0.0": {"phase": 0}}}, r"\$\.clocks\.0\.0\.0\.0: a clock needs a period"),
        ({"clocks": {"0.0.0.0": {"period": 2, "of": 1}}}, r"\$\.clocks\.0\.0\.0\.0: unknown key 'of'"),
        (
            {"clocks": {"0.0.0.0": "every(2"}},
            r"\$\.clocks\.0\.0\.0\.0: clock: expected \), at character 8\n  every\(2\n         \^",
        ),
        ({"clocks": {"0.0.0.0": "inner(every(2), 3)"}}, "computes once per tick"),
        ({"clocks": {"0.0.0.0": "on(eye)"}}, "no input 'eye'"),
        ({"clocks": {"0.0.0.0": "eye.rms > 1"}}, "no layer, input or output 'eye' to watch"),
        ({"clocks": {"0.0.0.0": "4.0.0.0.rms > 1"}}, r"no layer at 4\.0\.0\.0 to watch"),
        ({"clocks": {"0.0.0.0": "output.loudness > 1"}}, "unknown number 'loudness'"),
        ({"clocks": {"0.0": {"period": 2}}}, "not a coordinate"),
        ({"clocks": {"7.0.0.0": {"period": 2}}}, r"no layer at 7\.0\.0\.0"),
        ({"hold": {"input": 1}}, r"\$\.hold"),
        ({"hold": {"input": "first"}}, "cannot hold 'first'"),
        ({"hold": {"eye": "zero"}}, "no input 'eye'"),
        ({"start": "now"}, r"\$\.start"),
        ({"network": {}}, r"\$\.network: "),
        ({"network": None}, r"\$\.network: "),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Clocked.from_json(json.dumps(json.loads(MACHINE.to_json()) | change))


def test_files_of_before_are_read() -> None:
    old = json.loads(MACHINE.to_json()) | {"version": 1, "clocks": {"1.0.0.0": {"period": 3, "phase": 2}}}
    assert Clocked.from_json(json.dumps(old)) == MACHINE


def test_a_text_needs_one_network() -> None:
    with pytest.raises(SpecError, match="the text has no network"):
        Clocked.from_json(MACHINE.to_json(network=False))
    with pytest.raises(SpecError, match="another network than the one passed"):
        Clocked.from_json(MACHINE.to_json(), machine(0).network)
    for text in ("{", "[" * 10_000, b"\xff"):
        with pytest.raises(SpecError, match="not valid JSON"):
            Clocked.from_json(text)


def test_a_directory_keeps_its_machine(tmp_path: Path) -> None:
    save_native(tmp_path / "a", NETWORK, weights(MACHINE), clocked=MACHINE)
    assert open_model(tmp_path / "a").clocked == MACHINE
    assert convert_model(tmp_path / "a", tmp_path / "b", dtype="bf16").clocked == MACHINE
    assert open_model(tmp_path / "b").clocked == MACHINE
    with pytest.raises(UnsupportedError, match="tick by tick"):
        convert_model(tmp_path / "a", tmp_path / "c.json")
    other = chain([Dense(in_features=2, out_features=2)], (2,))
    with pytest.raises(SpecError, match="another network"):
        save_native(tmp_path / "d", other, initialise(other), clocked=MACHINE)
    save_native(tmp_path / "e", other, initialise(other))
    assert open_model(tmp_path / "e").clocked is None
    (tmp_path / "e" / "clocked.json").write_text(MACHINE.to_json(network=False))
    with pytest.raises(CheckpointError, match=r"clocked\.json: clock: there is no layer at 1\.0\.0\.0"):
        open_model(tmp_path / "e")
    (tmp_path / "e" / "clocked.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"clocked\.json: clocked: not valid JSON"):
        open_model(tmp_path / "e")
