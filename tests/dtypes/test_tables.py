"""Types by a table, which packages add: their codes are the nearest ones, of any width, and names find them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.devices import DEVICES, device
from volumetric.base.errors import DTypeError
from volumetric.builders import chain
from volumetric.dtypes import DType, Scheme, decode, encode, parse_dtype, register_dtype, registry
from volumetric.layers import Dense
from volumetric.loaders.native_checkpoint import read_native, save_native
from volumetric.network import initialise
from volumetric.run import lower

HOST = ml_dtypes.float6_e3m2fn
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True, scope="module")
def float6() -> Iterator[DType]:
    """A type of 6 bits, as ml_dtypes has it too; what is added is gone again behind this file."""
    numbers = np.arange(64, dtype=np.uint8).view(HOST).astype(np.float32)
    yield register_dtype("float6_e3m2", numbers, short="fp6", aliases=("e3m2",))
    for dtype in registry._ADDED:
        for text in {dtype.name, dtype.short, *dtype.aliases}:
            del registry._SPELLINGS[text]
    registry._ADDED.clear()


def test_names_find_it(float6: DType) -> None:
    for text in ("float6_e3m2", "FP6", "E3-M2", "float6 e3m2"):
        assert parse_dtype(text) is float6
    assert str(Scheme.parse("fp6")) == "float6_e3m2:g32"
    assert str(Scheme.parse("fp6:row:bf16")) == "float6_e3m2:row:bfloat16"
    assert copy.deepcopy(float6) is pickle.loads(pickle.dumps(float6)) is float6
    with pytest.raises(DTypeError, match="unknown dtype 'float6_e3m4'") as error:
        Scheme.parse("float6_e3m4")
    assert "did you mean float6_e3m2" in (error.value.hint or "")
    with pytest.raises(DTypeError, match="unknown dtype 'wild'") as error:
        parse_dtype("wild")
    assert "binary, float6_e3m2" in (error.value.hint or "")


def test_codes_are_the_nearest_ones_and_the_even_ones_of_two() -> None:
    x = np.concatenate([RNG.standard_normal(200) * 20, np.arange(-30, 30, 1 / 32)])
    for of in (x, x.astype(np.float32)):
        found = decode(encode(of[None], "fp6:none"), np.float64)[0]
        np.testing.assert_array_equal(found, np.clip(of, -28, 28).astype(HOST).astype(np.float64))


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 6, 7, 8, 9, 11, 16])
def test_codes_of_any_width(bits: int) -> None:
    register_dtype(f"even{bits}", np.linspace(-1, 1, 1 << bits))
    x = RNG.uniform(-1, 1, (5, 37)).astype(np.float32)
    packed = encode(x, f"even{bits}:none")
    assert packed.payload.shape == (5, -(-37 * bits // 32))
    assert np.abs(decode(packed) - x).max() <= 1.001 / ((1 << bits) - 1)
    np.testing.assert_array_equal(packed.codes(), decode(packed))
    np.testing.assert_array_equal(decode(packed.slice_rows(1, 3)), decode(packed)[1:3])
    for shape in ((0, 5), (3, 0)):
        assert decode(encode(np.zeros(shape, np.float32), f"even{bits}")).shape == shape


def test_the_largest_of_a_group_keeps_its_place() -> None:
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    x[:, 5] = [100, -100, 50]
    found = decode(encode(x, "fp6:row:f32"))
    np.testing.assert_allclose(found[:, 5], x[:, 5], rtol=1e-6)
    np.testing.assert_array_equal(decode(encode(np.zeros((2, 40), np.float32), "fp6")), 0)
    np.testing.assert_array_equal(decode(encode(found, "fp6:row:f32")), found)
    with pytest.raises(DTypeError, match="float6_e3m2 cannot hold the nan at index"):
        encode(np.full((1, 2), np.nan, np.float32), "fp6")


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("scheme", ["fp6", "fp6:none"])
def test_devices_compute_with_what_it_decodes_to(name: str, scheme: str) -> None:
    network = chain([Dense(in_features=64, out_features=8)], (64,))
    params = initialise(network)
    params["0.0.0.0/weight"].morph(Scheme.parse(scheme))
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    executable = device(name).compile(lower(network), params)
    found = executable.forward(executable.new_state(), x, last_only=False)
    expected = x @ params["0.0.0.0/weight"].values().T + params["0.0.0.0/bias"].values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_files_keep_it_by_its_name(tmp_path: Path) -> None:
    network = chain([Dense(in_features=45, out_features=3)], (45,))
    params = initialise(network)
    params["0.0.0.0/weight"].morph(Scheme.parse("fp6"))
    save_native(tmp_path / "m", network, params)
    _, again, _ = read_native(tmp_path / "m")
    found, expected = again["0.0.0.0/weight"], params["0.0.0.0/weight"]
    assert str(found.scheme) == "float6_e3m2:g32"
    np.testing.assert_array_equal(found.values(), expected.values())


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("three", [0, 1, 2], "finite numbers"),
        ("one", [1], "finite numbers"),
        ("square", np.eye(2), "finite numbers"),
        ("endless", [0, np.inf], "finite numbers"),
        ("nothing", [0, 0], "are 0"),
        ("bf16", [0, 1], "is a spelling of bfloat16"),
        ("Q4-K", [0, 1], "block format 'Q4-K' already exists"),
    ],
)
def test_what_is_no_type(name: str, values: object, message: str) -> None:
    with pytest.raises(DTypeError, match=message):
        register_dtype(name, values)  # pyright: ignore[reportArgumentType]  (some are no tables)
