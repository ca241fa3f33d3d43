"""Rounding to a scheme on the CPU: every type, as by the codec, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_graph.harness import graphs
from volumetric.dtypes import DTYPES, Scheme, decode, encode
from volumetric.runtime.graph import GraphBuilder

SCHEMES = [str(Scheme.default(dtype)) for dtype in DTYPES]
OTHERS = [
    "int8:row:f16",
    "int4:g5",
    "uint4:g7",
    "int2:row:f16",
    "uint2:g3",
    "int8:g32:f32",
    "uint8:g48",
    "int4:g32:bf16",
]


def awkward(rows: int, width: int) -> np.ndarray:
    """Numbers of all sizes: zeros of both signs, equals of both signs, ties, subnormal and huge ones."""
    random = np.random.default_rng(rows + width)
    x = random.standard_normal((rows, width)) * 10.0 ** random.integers(-9, 9, (rows, 1))
    x[0] = 0
    x[1 % rows, ::2] = -0.0
    x[2 % rows] = np.where(np.arange(width) % 2, -1.5, 1.5)
    x[3 % rows] = np.arange(width) - width / 2
    x[4 % rows] = np.arange(width) / 16 - 1
    x[5 % rows] *= 1e-38 / np.abs(x[5 % rows]).max(initial=1e-30)
    x[6 % rows, -1] = 7e4
    x[7 % rows, 0] = -3e38
    return x.astype(np.float32)


@pytest.mark.parametrize("scheme", [*SCHEMES, *OTHERS])
@pytest.mark.parametrize("shape", [(40, 70), (9, 64), (11, 1), (8, 33)])
def test_rounding_to_a_scheme_is_that_of_the_codec(scheme: str, shape: tuple[int, int]) -> None:
    work = GraphBuilder()
    device = graphs(2)
    program = device.compile(work.finish([work.fake_quant(work.input("x", shape), scheme)]), device.store())
    x = awkward(*shape)
    got = program.run([x])[0]
    want = decode(encode(x, scheme))
    np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


@pytest.mark.parametrize("scheme", ["float16", "bfloat16"])
def test_what_is_not_finite_stays(scheme: str) -> None:
    work = GraphBuilder()
    device = graphs()
    program = device.compile(work.finish([work.fake_quant(work.input("x", (1, 4)), scheme)]), device.store())
    x = np.array([[np.inf, -np.inf, np.nan, 1]], np.float32)
    np.testing.assert_array_equal(program.run([x])[0], x)
