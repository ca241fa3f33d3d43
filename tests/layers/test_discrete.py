"""Discrete layers: the numbers that cross, and the surrogates of the derivative."""

from __future__ import annotations

import numpy as np
import pytest

from tests.layers.graphed import graphed
from tests.parity.run import agree, data, expected, on_device
from volumetric.base.errors import SpecError
from volumetric.layers import Discrete

ODD = np.array([[-np.inf, -1.5, -1.0, -0.5, -0.2, -0.0, 0.0, 0.2, 0.5, 1.0, 1.5, np.inf, np.nan]], np.float32)


@pytest.mark.parametrize(
    ("function", "want"),
    [
        ("step", [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, np.nan]),
        ("sign", [-1, -1, -1, -1, -1, 0, 0, 1, 1, 1, 1, 1, np.nan]),
        ("ternary", [-1, -1, -1, 0, 0, 0, 0, 0, 0, 1, 1, 1, np.nan]),
    ],
)
def test_what_crosses(function: str, want: list[float]) -> None:
    spec = Discrete(function=function)  # pyright: ignore[reportArgumentType]
    np.testing.assert_array_equal(graphed(spec).forward({}, ODD)[0][0], want)
    of = data((spec, ODD.shape), seed=1)
    np.copyto(of.x, ODD)
    for name in ("cpu", "gpu"):
        np.testing.assert_array_equal(on_device(name, (spec, ODD.shape), of)["forward"][0], want)


@pytest.mark.parametrize("surrogate", ["clip", "triangle"])
def test_surrogates_pass_gradients_where_they_say(surrogate: str) -> None:
    spec = Discrete(surrogate=surrogate)  # pyright: ignore[reportArgumentType]
    y, saved = graphed(spec).forward({}, ODD[:, :-1])
    (g,) = graphed(spec).vjp({}, saved, np.full_like(y, 2)).inputs
    assert g is not None
    far = np.abs(ODD[0, :-1])
    slope = (far <= 1) if surrogate == "clip" else np.where(far <= 1, 1 - far, 0)
    np.testing.assert_array_max_ulp(g, np.array([2 * slope], g.dtype), 1)  # the triangle is a sum of two parts
    example = (spec, (3, 7))
    of = data(example, seed=2)
    for name in ("cpu", "gpu"):
        agree(on_device(name, example, of), expected(example, of), name)


def test_fields_are_checked() -> None:
    for fields in ({"function": "round"}, {"surrogate": "tanh"}, {"threshold": -1.0}, {"threshold": float("nan")}):
        with pytest.raises(SpecError):
            Discrete(**fields)  # pyright: ignore[reportArgumentType]
