"""What is written as ONNX is read again: every kind of layer computes the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.devices import device
from tests.examples import CASES
from tests.loaders.test_onnx_export import FEWER, assert_near, expected, filled, inputs_of, network_of
from volumetric.loaders import load_onnx, save_onnx


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_every_layer_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    spec, shape = CASES[name]
    network, path = network_of(spec, shape), tmp_path / "m.onnx"
    params = filled(network, spec, shape)
    save_onnx(path, network, params)
    model = load_onnx(path, device("reference"))
    for rows in {shape[0], min(3, FEWER.get(name, 3))}:
        inputs = inputs_of(network, rows)
        assert_near(list(model.run(inputs).values()), expected(network, params, inputs))
