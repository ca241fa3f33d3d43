"""The verb train for networks with several inputs and outputs, and for those that run tick by tick."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from tests.clocked.test_outputs import tapped
from volumetric.cli import main
from volumetric.layers import Dense
from volumetric.layers.clock import Every
from volumetric.loaders import open_model, save_native
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid, Link, Port
from volumetric.train import CrossEntropy, Huber, Systolic
from volumetric.train.settings import read_settings

NETWORK = Network(
    grid=Grid(4),
    layers={
        Coord(0): Dense(in_features=4, out_features=8, activation="tanh"),
        Coord(1): Dense(in_features=8, out_features=8, activation="tanh"),
        Coord(2): Dense(in_features=8, out_features=4),
        Coord(3): Dense(in_features=8, out_features=1),
    },
    links=(Link(kind="activation", source=Coord(1), target=Coord(3), combine="replace"),),
    inputs={"side": Port(coord=Coord(1), shape=(8,), combine="add")},
    outputs={"output": Coord(2), "value": Coord(3)},
    input_shape=(4,),
    input_dtype="float32",
)
BOTH = """
[network]
file = "network.json"
[data]
npz = "rows.npz"
validation = 0.25
[train]
optimiser = { kind = "adam", lr = 0.02 }
epochs = 3
"""
TICKS = """
[network]
file = "network.json"
[data]
npz = "sequences.npz"
batch_size = 8
[clocked]
start = "wavefront"
clocks = { "0.0.0.0" = { period = 2 } }
hold = { side = "zero" }
[train]
mode = { kind = "systolic", window = 10, ticks_per_row = 2, delay = { value = 2 } }
loss = { output = "cross_entropy", value = { kind = "huber", delta = 0.5 } }
loss_weights = { value = 0.5 }
optimiser = { kind = "adam", lr = 0.02 }
epochs = 2
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    Path("network.json").write_text(NETWORK.to_json())
    ids = rng.integers(0, 4, (16, 6))
    x = np.eye(4, dtype=np.float32)[ids]
    side = rng.standard_normal((16, 6, 8)).astype(np.float32)
    before = np.concatenate([np.full((16, 1), -100), ids[:, :-1]], 1)
    score = rng.standard_normal((16, 12)).astype(np.float32)  # a target a tick
    mask, resets = rng.integers(0, 2, (16, 12)), np.zeros((16, 6))
    resets[0, 3] = 1
    named: dict[str, Any] = {"inputs.side": side, "inputs.resets": resets, "targets.value": score, "mask.value": mask}
    np.savez("sequences.npz", inputs=x, targets=before, **named)
    rows: dict[str, Any] = {"inputs.side": side[:, 0], "targets.value": score[:, 0]}
    np.savez("rows.npz", inputs=x[:, 0], targets=ids[:, 0], **rows)
    np.savez("odd.npz", x=x[:, 0], s=side[:, 0], labels=ids[:, 0], score=score[:, 0])
    return tmp_path


def trained(text: str, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, object]:
    Path("a.toml").write_text(text)
    assert main(["train", "a.toml", "--device", "reference", "--json", "--quiet", *flags]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_arrays_belong_to_inputs_and_outputs_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    told = trained(BOTH, capsys)
    assert told["losses"].keys() == {"output", "value"}  # pyright: ignore[reportAttributeAccessIssue]
    assert told["accuracies"] == {"output": told["accuracy"]}
    model = open_model("a/model")
    assert (model.network, model.classes) == (NETWORK, ("0", "1", "2", "3"))
    with volumetric.load("a/model", device="reference") as opened:
        given = {"input": np.ones((3, 4)), "side": np.ones((3, 8))}
        found = opened.predict(given, outputs=["value", "output"])
        assert {name: y.shape for name, y in found.items()} == {"value": (3, 1), "output": (3, 4)}
        assert np.array_equal(opened.predict(given), found["output"])
    names = ["inputs={input='x',side='s'}", "targets={output='labels',value='score'}", "npz='odd.npz'"]
    flags = [flag for change in names for flag in ("--set", f"data.{change}")]
    assert trained(BOTH, capsys, *flags, "--out", "b")["loss"] == told["loss"]
    alone = ["--out", "c", "--set", "data.targets={value='targets.value'}"]
    assert "losses" not in trained(BOTH + "loss = { value = 'mse' }", capsys, *alone)
    flags = ["--out", "d", "--set", "data.standardise=true"]
    standard = trained(BOTH + "loss = { output = 'cross_entropy', value = 'l1' }", capsys, *flags)
    assert standard["reason"] == "epochs"
    assert open_model("d/model").inputs is not None


@pytest.mark.thorough
def test_a_clocked_network_learns_from_a_file_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    run = read_settings(_written(TICKS))
    assert run.train.mode == Systolic(window=10, ticks_per_row=2, delay={"value": 2})
    assert run.train.loss == {"output": CrossEntropy(), "value": Huber(delta=0.5)}
    whole = trained(TICKS, capsys)
    assert whole["updates"] == 2 * 2 * 2  # batches, windows, epochs
    model = open_model("a/model")
    assert model.clocked is not None
    assert (model.clocked.start, model.clocked.hold) == ("wavefront", {"side": "zero"})
    assert model.clocked.clocks == {Coord(0): Every(period=2)}
    lines = Path("a/history.jsonl").read_text().splitlines()
    trained(TICKS, capsys, "--out", "b", "--set", "train.max_steps=3")
    again = trained(TICKS, capsys, "--out", "b", "--resume")
    assert {key: value for key, value in again.items() if key != "model"} == {
        key: value for key, value in whole.items() if key != "model"
    }
    assert len(Path("b/history.jsonl").read_text().splitlines()) == len(lines)
    for key, store in model.params.items():
        assert np.array_equal(open_model("b/model").params[key].values(), store.values())
    np.savez("in.npz", input=np.zeros((2, 3, 4), "f4"), side=np.zeros((2, 3, 8), "f4"))
    assert main(["run", "a/model", "--in", "in.npz", "--out", "y.npz", "--device", "reference", "--quiet"]) == 0
    assert np.load("y.npz")["value"].shape == (2, 3, 1)


@pytest.mark.thorough
def test_a_clocked_network_learns_by_targets_from_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    text = TICKS.replace('kind = "systolic", window = 10', 'kind = "target", window = 10')
    assert read_settings(_written(text)).ticking
    whole = trained(text, capsys)
    assert whole["updates"] == 2 * 2 * 2  # batches, programs, epochs
    model = open_model("a/model")
    assert model.clocked is not None
    assert "target" in Path("a/history.jsonl").read_text()
    trained(text, capsys, "--out", "b", "--set", "train.max_steps=3")
    trained(text, capsys, "--out", "b", "--resume")
    for key, store in model.params.items():
        assert np.array_equal(open_model("b/model").params[key].values(), store.values())


def test_a_model_keeps_its_clocks_unless_the_file_says_others(capsys: pytest.CaptureFixture[str]) -> None:
    machine = tapped(14)
    save_native(Path("machine"), machine.network, initialise(machine.network), clocked=machine)
    wide = machine.network.shapes[machine.network.taps["tap"]][1]
    rng = np.random.default_rng(0)
    shapes = {f"inputs.{name}": port.shape for name, port in machine.network.ports.items()}
    given: dict[str, Any] = {name: rng.standard_normal((8, 4, *shape)).astype("f4") for name, shape in shapes.items()}
    given["targets.tap"] = rng.standard_normal((8, 4, wide)).astype("f4")
    np.savez("tap.npz", **given)
    text = """
    network.model = "machine"
    data.npz = "tap.npz"
    train = { mode = "systolic", loss = { tap = "mse" } }
    """
    trained(text, capsys)
    assert open_model("a/model").clocked == machine
    trained(text + "clocked.start = 'wavefront'", capsys, "--out", "b")
    found = open_model("b/model").clocked
    assert found is not None
    assert (found.start, found.clocks) == ("wavefront", machine.clocks)


def _written(text: str) -> Path:
    Path("a.toml").write_text(text)
    return Path("a.toml")


BAD = {
    "builder": (
        BOTH.replace('file = "network.json"', ""),
        "one output, the samples have inputs 'input', 'side' and targets 'output', 'value'",
        "file or model",
    ),
    "array": (
        BOTH + "[data.targets]\nvalue = 'scoer'",
        "no array 'scoer', which targets.value names",
        "it has inputs, targets, inputs.side",
    ),
    "output": (
        BOTH + "loss = { output = 'cross_entropy', valeu = 'mse' }",
        "the network has no output 'valeu'",
        "its outputs are 'output', 'value'",
    ),
    "no loss": (BOTH + "loss = 'cross_entropy'", "targets of output 'value' have no loss", "losses are of 'output'"),
    "kind": (
        BOTH + "loss = { output = 'cross_entropy', value = 'sme' }",
        "[train] loss.value: unknown kind 'sme'",
        "did you mean 'mse'?",
    ),
    "no name": (
        BOTH + "loss = { output = 'mse', value = 3 }",
        "[train] loss.value: expected a name or a table with a kind, got 3",
        "cross_entropy",
    ),
    "empty": (BOTH + "loss = {}", "[train] loss: no loss is set", "one for each trained output"),
    "weight": (
        BOTH + "loss = { value = 'mse' }\nloss_weights = { output = 1 }",
        "loss_weights: output 'output' has no loss",
        "losses are of 'value'",
    ),
    "weights alone": (BOTH + "loss_weights = { value = 1 }", "[train] loss_weights: loss is not set", "loss = {"),
    "weight type": (
        BOTH + "loss = { value = 'mse' }\nloss_weights = { value = 'much' }",
        "[train] loss_weights: the weight of output 'value' must be 0 or more, got 'much'",
        "",
    ),
    "other mode": (
        TICKS.replace("mode = { kind", "# {"),
        "[clocked] is for modes 'systolic' and 'target', and [train] mode is 'backprop'",
        "[train]",
    ),
    "place": (TICKS.replace('"0.0.0.0"', '"0.0"'), "[clocked]: clocks", '"0.0.1.0"'),
    "layer": (
        TICKS.replace('"0.0.0.0"', '"9.0.0.0"'),
        "[clocked] clock: there is no layer at 9.0.0.0",
        "layers are at",
    ),
    "period": (TICKS.replace("period = 2", "period = 0"), "the period must be 1 … 16777216 steps, got 0", ""),
    "clock text": (TICKS.replace("{ period = 2 }", '"every(2"'), "clock: expected ), at character 8", ""),
    "clock key": (TICKS.replace("period = 2", "perod = 2"), "unknown key 'perod'", "did you mean 'period'?"),
    "hold": (TICKS.replace("side = ", "sied = "), "[clocked] hold: the network has no input 'sied'", "'input', 'side'"),
    "what is held": (TICKS.replace('"zero"', '"none"'), "[clocked].hold: Invalid enum value 'none'", ""),
    "start": (TICKS.replace("wavefront", "wave"), "[clocked].start: unknown name 'wave'", "did you mean 'wavefront'?"),
    "window": (
        TICKS.replace("window = 10", "window = 2"),
        "a window of 2 ticks is too short for a delay of 2 and 2 ticks a row",
        "window=3",
    ),
    "delay": (
        TICKS.replace("value = 2 }", "valeu = 2 }"),
        "delay of output 'valeu', which has no loss",
        "'output', 'value' have",
    ),
    "late": (
        TICKS.replace("value = 2 }", "value = -2 }"),
        "delay of output 'value' must be 0 or more ticks, got -2",
        "",
    ),
    "rows": (TICKS.replace("sequences", "rows"), "input 'input': expected [8, T, 4], got [8, 4]", ""),
    "accumulate": (
        TICKS + "accumulate = 2",
        "mode 'systolic' makes each update from one batch: accumulate must be 1",
        "",
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize(("text", "message", "hint"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_named_with_advice(
    text: str, message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["train", str(_written(text)), "--device", "reference"])
    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    error, *advice = err.strip().splitlines()
    assert message in error
    assert hint in "".join(advice)
