"""Layers against PyTorch's numbers, which ``tests/fixtures/torch/make.py`` wrote: forward and all gradients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.layers.graphed import graphed
from tests.layers.test_vjp import a_pass
from volumetric import layers

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "torch" / "layers.json").read_text(encoding="utf-8")
)["cases"]


def made(case: dict[str, Any]) -> layers.LayerSpec:
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in case["fields"].items()}
    return getattr(layers, case["layer"])(**fields)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['layer']}-{case['shape']}")
def test_a_layer_computes_what_torch_does(case: dict[str, Any]) -> None:
    spec = made(case)
    p = {key: np.array(value, np.float64) for key, value in case["params"].items()}
    assert {s.name: s.shape for s in spec.params()} == {key: value.shape for key, value in p.items()}
    first, x = (np.array(case[name], np.float64).reshape(case["shape"]) for name in ("first", "x"))
    buffers = {s.name: np.full(s.shape, float(s.init == "ones")) for s in spec.buffers()}
    training = a_pass(spec)
    graphed(spec).train_forward(p | buffers, first, training=training)
    own = p | training.changes
    y, saved = graphed(spec).train_forward(own, x, training=training)
    grads = graphed(spec).vjp(own, saved, np.array(case["gy"], np.float64).reshape(y.shape))
    assert grads.inputs[0] is not None
    close(y, case["y"])
    close(grads.inputs[0], case["gx"])
    assert grads.params.keys() == case["grads"].keys()
    for key, want in case["grads"].items():
        close(grads.params[key], want)
    for key in buffers:
        close(training.changes[key], np.atleast_1d(case["buffers"][key]).tolist())
    close(graphed(spec).forward(p | training.changes, x)[0], case["evaluated"])


def close(got: np.ndarray, want: list[float]) -> None:
    np.testing.assert_allclose(got.ravel(), want, rtol=1e-8, atol=1e-8)
