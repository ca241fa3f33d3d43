"""Commands on files of weights without a configuration."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from volumetric.builders import sequential
from volumetric.loaders import read_arrays, save_arrays, save_onnx
from volumetric.network import initialise

HOME = Path(__file__).parents[1] / "fixtures" / "torch_files"


@pytest.mark.parametrize("ending", ["safetensors", "npz"])
def test_weights_of_torch_are_converted(ending: str, tmp_path: Path, run) -> None:
    target = tmp_path / f"out.{ending}"
    code, out, _ = run("convert", str(HOME / "checkpoint.ckpt"), str(target))
    assert (code, "4 tensors" in out) == (0, True)
    copied, arrays = read_arrays(target), read_arrays(HOME / "checkpoint.ckpt")
    assert sorted(copied) == sorted(arrays)
    for name, array in arrays.items():
        assert copied[name].dtype == array.dtype
        np.testing.assert_array_equal(copied[name], array)


def test_weights_of_torch_are_inspected(run) -> None:
    code, out, _ = run("inspect", str(HOME / "sequential.pt"))
    assert (code, "linear 3 → 5" in out) == (0, True)
    code, _, err = run("inspect", str(HOME / "module.pt"))
    assert (code, "a whole module" in err) == (1, True)


def test_weights_without_a_configuration_are_converted_by_a_guess(run):
    network = sequential(3, 2, hidden=(4,), activation="tanh")
    save_onnx("net.onnx", network, initialise(network, seed=1))
    save_arrays("weights.npz", {key: store.values() for key, store in initialise(network, seed=1).items()})
    Path("x.csv").write_text("a,b,c\n1,2,3\n-1,0.5,0\n")
    code, _, err = run("convert", "weights.npz", "guessed")
    assert code == 1
    assert "--guess" in err
    code, _, err = run("convert", "weights.npz", "guessed", "--assume", "0.0.0.0.activation=tanh")
    assert code == 0, err
    expected = run("run", "net.onnx", "--in", "x.csv", "--device", "reference")[1]
    out = run("run", "guessed", "--in", "x.csv", "--device", "reference")[1]
    np.testing.assert_allclose(
        [json.loads(line) for line in out.splitlines()], [json.loads(line) for line in expected.splitlines()], rtol=1e-5
    )
