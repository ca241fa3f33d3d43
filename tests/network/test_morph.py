"""Converting the weights of whole networks, or of some coordinates, and the figures that it gives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.networks import tiny_llama
from volumetric.base.errors import CheckpointError, DTypeError, SpecError, VolumetricError
from volumetric.dtypes import DTYPES, DType, Scheme, decode, encode
from volumetric.layers import Dense, RMSNorm
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_difference import MorphReport
from volumetric.network.weight_store import Params, WeightStore

NETWORK = Network(
    grid=Grid(3, slots=2),
    layers={
        Coord(0): Dense(in_features=40, out_features=6),
        Coord(1, slot=1): RMSNorm(num_features=6),
        Coord(2): Dense(in_features=6, out_features=3),
    },
    input_shape=(40,),
    input_dtype="float32",
)


def values(params: Params) -> dict[str, np.ndarray]:
    return {key: store.values().copy() for key, store in params.items()}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_every_type_converts_really_and_back(dtype: DType) -> None:
    params = initialise(NETWORK, seed=4)
    before = values(params)
    report = NETWORK.morph(params, dtype)
    assert [layer.coord for layer in report.layers] == [Coord(0), Coord(2)]
    for layer in report.layers:
        (key,) = layer.keys
        after = decode(encode(before[key], Scheme.default(dtype)))
        assert params[key].scheme == layer.scheme == Scheme.default(dtype)
        assert np.array_equal(params[key].values(), after)
        assert layer.error == MorphReport.between(before[key], after)
        assert layer.bits_per_weight == params[key].scheme.bits_per_weight(params[key].shape)
    assert report.elements == 40 * 6 + 6 * 3
    assert report.error.max_abs == max(layer.error.max_abs for layer in report.layers)
    back = NETWORK.morph(params, "float32")
    assert (back.error.nmse, back.error.max_abs) == (0.0, 0.0)
    assert all(np.array_equal(params[key].values(), value) for key, value in before.items())


def test_coordinates_take_types_of_their_own_and_the_rest_stays() -> None:
    params = initialise(NETWORK)
    report = NETWORK.morph(params, {Coord(2): "int8", "0.0.0.0": "i4"}, "row")
    assert [str(layer.scheme) for layer in report.layers] == ["int4:row", "int8:row"]
    assert [str(store.scheme) for store in params.values()] == ["int4:row", "float32", "float32", "int8:row", "float32"]
    again = NETWORK.morph(params, {"0.0.0.0": "bf16"})
    assert [layer.coord for layer in again.layers] == [Coord(0)]
    assert str(params["2.0.0.0/weight"].scheme) == "int8:row"


def test_a_shared_tensor_is_converted_once() -> None:
    network = tiny_llama(blocks=1)
    params = initialise(network)
    head, table = Coord(2, slot=1), Coord(0)
    report = network.morph(params, "int4")
    assert head not in [layer.coord for layer in report.layers]
    assert sum(layer.elements for layer in report.layers) == report.elements
    assert network.morph(params, {head: "int8"}).layers[0].keys == ("0.0.0.0/weight",)
    with pytest.raises(SpecError, match=r"0\.0\.0\.0/weight is shared by 0\.0\.0\.0 and 2\.0\.0\.1"):
        network.morph(params, {head: "int8", table: "int4"})


def test_without_masters_a_conversion_is_final() -> None:
    params = initialise(NETWORK)
    before = values(params)["0.0.0.0/weight"]
    NETWORK.morph(params, "int4", keep_masters=False)
    assert not params["0.0.0.0/weight"].has_master
    NETWORK.morph(params, "float32")
    assert np.array_equal(params["0.0.0.0/weight"].values(), decode(encode(before, "int4")))


@pytest.mark.parametrize(
    ("dtype", "scheme", "error", "message"),
    [
        ({"9.0.0.0": "int4"}, None, SpecError, r"9\.0\.0\.0 is outside of the grid 3×1×1×2"),
        ({"1.0.0.0": "int4"}, None, SpecError, r"no layer at 1\.0\.0\.0"),
        ({"1.0.0.1": "int4"}, None, SpecError, r"rms_norm at 1\.0\.0\.1 has no weights to convert"),
        ({"first": "int4"}, None, SpecError, "is not a coordinate"),
        ({"0.0.0.0": "int5"}, None, DTypeError, "int5"),
        ("float33", None, DTypeError, "float33"),
        ("int4", "g-1", DTypeError, "invalid part 'g-1'"),
        ("int4:g32", "g64", DTypeError, "int4:g32"),
        (Scheme.parse("int4"), "g64", DTypeError, "already a scheme"),
    ],
)
def test_what_cannot_be_asked_for_is_named_and_changes_nothing(
    dtype: object, scheme: str | None, error: type[VolumetricError], message: str
) -> None:
    params = initialise(NETWORK)
    before = params.schemes()
    with pytest.raises(error, match=message):
        NETWORK.morph(params, dtype, scheme)  # pyright: ignore[reportArgumentType]
    assert params.schemes() == before
    assert not any(store.has_master for store in params.values())


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_numbers_that_a_type_cannot_hold_are_named_and_change_nothing(odd: float) -> None:
    params = initialise(NETWORK)
    damaged = params["2.0.0.0/weight"].values().copy()
    damaged[1, 4] = odd
    damaged_params = Params({**params, "2.0.0.0/weight": WeightStore.from_array(damaged)})
    with pytest.raises(DTypeError, match=r"2\.0\.0\.0/weight: int4 cannot hold the -?(nan|inf) at index \(1, 4\)"):
        NETWORK.morph(damaged_params, "int4")
    assert all(str(store.scheme) == "float32" for store in damaged_params.values())
    NETWORK.morph(damaged_params, "bf16")
    assert np.array_equal(damaged_params["2.0.0.0/weight"].values()[1, 4], np.float32(odd), equal_nan=True)


def test_missing_parameters_are_named() -> None:
    with pytest.raises(CheckpointError, match=r"missing 0\.0\.0\.0/weight, 2\.0\.0\.0/weight"):
        NETWORK.morph(Params({}), "int4")


def test_the_report_prints_a_line_for_each_layer() -> None:
    lines = str(NETWORK.morph(initialise(NETWORK), "int8")).splitlines()
    assert lines[1].split()[:4] == ["0.0.0.0", "dense", "int8:g32", "8.800"]
    assert [line.split()[0] for line in lines] == ["layer", "0.0.0.0", "2.0.0.0", "all"]
