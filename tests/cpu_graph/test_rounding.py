"""Rounding to a scheme on the CPU: every type, as by the codec, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_graph.harness import graphs
from volumetric.dtypes import DTYPES, Scheme, decode, encode
from volumetric.graph import GraphBuilder

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


@pytest.mark.parametrize("scheme", ["int8:g32", "int4:g32", "int2:g32", "uint8:g32", "uint4:g32", "uint2:g32"])
def test_halves_of_a_step_round_as_in_the_codec(scheme: str) -> None:
    """Groups whose step is exactly 1, as a number at the end of the codes sees to, and all halves between the codes."""
    dtype = Scheme.parse(scheme).dtype
    signed, most = dtype.kind == "int", 2 ** (dtype.bits - 1)
    first, last = (-127.0 if dtype.bits == 8 else -most, most - 1.0) if signed else (0.0, 2.0 * most - 1)
    halves = np.arange(first, last) + 0.5
    rows = np.resize(halves, (-(-len(halves) // 30), 30)).astype(np.float32)
    x = np.concatenate([np.full((len(rows), 1), first), rows, np.full((len(rows), 1), last)], axis=1, dtype=np.float32)
    x = np.concatenate([x, -x]) if signed and dtype.bits == 8 else x
    work = GraphBuilder()
    device = graphs()
    program = device.compile(work.finish([work.fake_quant(work.input("x", x.shape), scheme)]), device.store())
    [got] = program.run([x])
    np.testing.assert_array_equal(got, decode(encode(x, scheme)))
    # GGUF's rules: int8 away from zero, the others up.
    up = np.sign(x) * np.floor(np.abs(x) + 0.5) if scheme == "int8:g32" else np.floor(x + 0.5)
    np.testing.assert_array_equal(got, np.clip(up, *((-127, 127) if scheme == "int8:g32" else (first, last))))


@pytest.mark.parametrize("scheme", ["float16", "bfloat16"])
def test_halves_between_floats_round_to_even(scheme: str) -> None:
    """Every number halfway between two neighbours of the type, in the order of their bits."""
    host = Scheme.parse(scheme).dtype.host
    found = np.arange(0x7F80 if scheme == "bfloat16" else 0x7C00, dtype=np.uint16).view(host).astype(np.float64)
    middle = ((found[:-1] + found[1:]) / 2).astype(np.float32)[None]
    work = GraphBuilder()
    device = graphs()
    program = device.compile(work.finish([work.fake_quant(work.input("x", middle.shape), scheme)]), device.store())
    even = np.where(np.arange(len(found) - 1) % 2 == 0, found[:-1], found[1:])
    np.testing.assert_array_equal(program.run([middle])[0][0], even)
    np.testing.assert_array_equal(program.run([-middle])[0][0], -even)
