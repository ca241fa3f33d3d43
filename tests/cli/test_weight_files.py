"""Commands on files of weights without a configuration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from volumetric.loaders import read_arrays

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
