"""Rounding to schemes gives the bits of the codecs, for ordinary numbers and for all others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import narrowed_graphs
from volumetric.base.errors import UnsupportedError
from volumetric.dtypes import DTYPES, Scheme, decode, encode
from volumetric.graph import Graph, GraphBuilder

SHAPE = (13, 83)


def schemes() -> list[str]:
    """Every type with its default scheme and without a scale, and each rule with other scales."""
    narrow = [dtype for dtype in DTYPES if dtype.bits < 64]
    found = [str(Scheme.default(dtype)) for dtype in narrow] + [str(Scheme(dtype=dtype)) for dtype in narrow]
    types = (
        "float8_e5m2",
        "float4",
        "int8",
        "int4",
        "uint4",
        "int16",
        "int32",
        "uint16",
        "uint32",
        "ternary",
        "binary",
    )
    scales = ("row:float16", "g16:bfloat16", "g32:float32")
    found += [f"{name}:{scale}" for i, name in enumerate(types) for scale in (scales[i % 3], scales[(i + 1) % 3])]
    return list(dict.fromkeys(str(Scheme.parse(name)) for name in found))


def samples() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    plain = rng.standard_normal(SHAPE)
    bits = rng.integers(0, 2**32, SHAPE, dtype=np.uint32).view(np.float32)
    found = {
        "normal": plain,
        "spread within groups": plain * np.exp2(rng.integers(-20, 20, SHAPE)),
        "rows of all sizes": plain * np.exp2(rng.integers(-148, 126, (SHAPE[0], 1))),
        "any bits": np.where(np.isfinite(bits), bits, 0),
        "ties and zeros": rng.integers(-3, 4, SHAPE) / 2 * np.linspace(0, 1, SHAPE[0])[:, None],
        "ternary": rng.integers(-1, 2, SHAPE) * 0.3,
        "subnormal": rng.integers(-9, 9, SHAPE) * 1e-45,
    }
    return {name: value.astype(np.float32) for name, value in found.items()}


def rounding(scheme: str) -> Graph:
    work = GraphBuilder()
    return work.finish(work.emit("fake_quant", (work.input("x", SHAPE),), scheme=scheme))


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", schemes())
def test_rounding_gives_the_bits_of_the_codec(scheme: str) -> None:
    graphs = narrowed_graphs("native")
    program = graphs.compile(rounding(scheme), graphs.store())
    for name, x in samples().items():
        [got] = program.run([x])
        want = decode(encode(x, scheme)).view(np.uint32)
        wrong = got.view(np.uint32) != want
        assert not wrong.any(), f"{name}: {x[wrong][0]!r} became {got[wrong][0]!r}"
    program.close()


@pytest.mark.parametrize("scheme", ["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float8_e5m2:none"])
def test_floats_keep_what_is_not_finite(scheme: str) -> None:
    graphs = narrowed_graphs("native")
    x = np.ones(SHAPE, np.float32)
    x[0, 0], x[2] = np.nan, np.nan
    if "e4m3" not in scheme:
        x[1, 1], x[1, 2], x[3], x[4, 3:] = np.inf, -np.inf, -np.inf, 0
        x[4, 0] = np.inf
    [got] = graphs.compile(rounding(scheme), graphs.store()).run([x])
    np.testing.assert_array_equal(got, decode(encode(x, scheme)))


@pytest.mark.parametrize("scheme", ["int64", "uint64:none", "float64"])
def test_64_bit_types_are_refused(scheme: str) -> None:
    graphs = narrowed_graphs("native")
    work = GraphBuilder()
    with work.at("1.0.0"):
        rounded = work.emit("fake_quant", (work.input("x", SHAPE),), scheme=scheme)
    with pytest.raises(UnsupportedError, match=r"64-bit numbers \(in 1\.0\.0\)") as caught:
        graphs.compile(work.finish(rounded), graphs.store())
    assert caught.value.hint == "use device='cpu'"
