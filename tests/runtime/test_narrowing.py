"""Weights in wide groups run as they are held, in groups of 32, on every device: same numbers, no decoding."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.devices import FAST, device
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.dtypes import Scheme, decode, encode
from volumetric.dtypes.scaled_rows import narrower_scheme, repeat_scales
from volumetric.layers import Dense
from volumetric.network import Network, Params
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import WeightStore
from volumetric.run.device import RunOptions
from volumetric.run.lower import lower
from volumetric.run.regroup import regroup_params

NATIVE = ("float32", "int8:g32", "int4:g32", "uint4:g32", "float8_e4m3fn:g32")
WIDE = ("int4:g64", "int4:row", "uint4:g128", "int8:row")
ON_CPU = (("cpu", "uint8:g64"), ("cpu", "int8:row:float32"))
FLOATS = ("float8_e4m3fn:row", "float8_e4m3fn:g128", "float8_e4m3fn:g64:bfloat16", "float8_e4m3fn:g32:float16")


@pytest.mark.parametrize("k", [1, 32, 63, 96, 160, 257])
@pytest.mark.parametrize("text", WIDE + FLOATS)
def test_narrow_groups_hold_the_same_numbers(text: str, k: int) -> None:
    wide = encode(np.random.default_rng(k).standard_normal((5, k)).astype(np.float32), text)
    scheme = narrower_scheme(wide.scheme, NATIVE)
    assert str(scheme) == text.split(":", maxsplit=1)[0] + ":g32"
    assert scheme is not None
    np.testing.assert_array_equal(decode(repeat_scales(wide, scheme)), decode(wide))


@pytest.mark.parametrize(
    "text",
    [
        "int4:g32",
        "int4:g16",
        "int4:g48",
        "int4:g64:float32",
        "float8_e4m3fn:g48",
        "float8_e5m2:row",
        "bfloat16",
        "uint8:g64",
    ],
)
def test_other_schemes_stay(text: str) -> None:
    assert narrower_scheme(Scheme.parse(text), NATIVE) is None


def compiled(name: str, text: str, k: int, options: RunOptions) -> tuple[Any, Any]:
    """The same weights on a device and on the reference device."""
    network = Network(
        grid=Grid(1),
        layers={Coord(0): Dense(in_features=k, out_features=37)},
        input_shape=(k,),
        input_dtype="float32",
    )
    rng = np.random.default_rng(3)
    params = Params(
        {
            "0.0.0.0/weight": WeightStore.from_packed(encode(rng.standard_normal((37, k)).astype(np.float32), text)),
            "0.0.0.0/bias": WeightStore.from_array(rng.standard_normal(37).astype(np.float32)),
        }
    )
    plan = lower(network)
    return device(name).compile(plan, params, options), ReferenceDevice().compile(plan, params, options)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "text"), [*product(FAST, (*WIDE, FLOATS[1], "float8_e5m2:row")), *ON_CPU])
def test_devices_run_wide_groups_without_decoding(name: str, text: str) -> None:
    k = 288
    fast, reference = compiled(name, text, k, RunOptions(compute="float32"))
    x = np.random.default_rng(1).standard_normal((7, k)).astype(np.float32)
    found, expected = (run.forward(run.new_state(), x, last_only=False) for run in (fast, reference))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    assert fast.memory.weights < 48 * k * 2, "decoded, it would take four bytes a weight"


def test_rows_of_a_store_go_through_the_change() -> None:
    wide = encode(np.random.default_rng(2).standard_normal((9, 64)).astype(np.float32), "int4:row")
    store = WeightStore(wide.shape, wide.scheme, lambda: wide, rows=wide.slice_rows)
    seen = regroup_params(Params({"w": store}), NATIVE)["w"]
    pieces = list(seen.row_blocks(4))
    assert [piece.rows for piece in pieces] == [4, 4, 1]
    assert {str(piece.scheme) for piece in pieces} == {"int4:g32"}
    np.testing.assert_array_equal(np.concatenate([decode(piece) for piece in pieces]), decode(wide))
