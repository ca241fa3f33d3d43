"""float32 to block formats: codes are the nearest, scales no worse than simple rules, edges are sane."""

from __future__ import annotations

import numpy as np
import pytest

from volumetric.base._typing import F32Array
from volumetric.base.errors import DTypeError
from volumetric.dtypes import BLOCK_FORMATS, OWN_FORMATS, BlockFormat, Scheme, decode, encode
from volumetric.dtypes.blocks.format import packed_planes, planes

each_format = pytest.mark.parametrize("blocks", [*BLOCK_FORMATS.values(), *OWN_FORMATS.values()], ids=str)


def weights(rows: int = 24, k: int = 512, seed: int = 5) -> F32Array:
    """Like a layer's: near normal, rows of different size, a few large numbers."""
    rng = np.random.default_rng(seed)
    x = 0.05 * rng.standard_normal((rows, k)) * np.exp(0.5 * rng.standard_normal((rows, 1)))
    x[rng.random((rows, k)) < 0.002] *= 8
    return x.astype(np.float32)


def error(x: F32Array, y: F32Array, count: np.ndarray | float = 1.0) -> float:
    return float((count * np.square((x - y).astype(np.float64))).sum())


@each_format
def test_every_code_is_the_nearest_for_the_scales_that_are_stored(blocks: BlockFormat) -> None:
    x = weights()
    packed = encode(x, blocks.name)
    fields = blocks.split(packed.raw_blocks())
    every = np.arange(fields.codes.max() + 1, dtype=np.uint8)
    levels = blocks.numbers(every).astype(np.float64)
    scale = fields.step.astype(np.float64)[:, None]
    scale = scale if fields.scales is None else scale * fields.scales
    floor = np.zeros(1) if fields.floor is None else fields.floor.astype(np.float64)[:, None]
    floor = floor if fields.mins is None else floor * fields.mins
    grouped = x.reshape(len(scale), scale.shape[1], -1, 1)
    distance = np.abs(scale[..., None, None] * levels + np.broadcast_to(floor, scale.shape)[..., None, None] - grouped)
    found = np.abs(decode(packed) - x).reshape(grouped.shape[:-1])
    slack = 1e-6 * np.abs(x).max() + (0 if blocks.table is None else 2.0**-9 * np.abs(scale[..., None]))
    assert (found <= distance.min(axis=-1) + slack).all()


@pytest.mark.parametrize("name", ["q5_0", "q5_1", "mxfp4", "tq1_0", "tq2_0"])
def test_no_worse_than_the_reference_package(name: str) -> None:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    x, kind = weights(), GGMLQuantizationType[name.upper()]
    if name.startswith("tq"):  # trained to be ternary: kept exactly by both
        x = np.float32(0.25) * np.sign(np.where(np.abs(x) < 0.02, np.float32(0), x))
    theirs = quantize(x, kind)
    packed = encode(x, name)
    if name.startswith("tq"):
        np.testing.assert_array_equal(decode(packed), x)
        assert packed.raw_blocks().tobytes() == theirs.tobytes()
    assert error(x, decode(packed)) <= error(x, dequantize(theirs, kind)) * 1.0001


@pytest.mark.parametrize(("finer", "coarser"), [("q4_k", "uint4:g32"), ("q5_k", "q4_k"), ("q6_k", "q5_k")])
def test_more_bits_or_better_scales_err_less(finer: str, coarser: str) -> None:
    x = weights()
    assert error(x, decode(encode(x, finer))) < error(x, decode(encode(x, coarser)))
    assert error(x, decode(encode(x, "q3_k"))) < error(x, decode(encode(x, "q2_k")))
    assert error(x, decode(encode(x, "q3_nl"))) < error(x, decode(encode(x, "uint2:g32")))
    assert error(x, decode(encode(x, "iq4_xs"))) < error(x, decode(encode(x, "int4:g32")))


@pytest.mark.parametrize("name", ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q5_0", "q5_1", "iq4_nl", "iq4_xs", "q3_nl"])
def test_importance_moves_the_error_to_what_does_not_matter(name: str) -> None:
    x = weights()
    count = np.random.default_rng(1).gamma(0.3, 1.0, x.shape[1])
    plain, guided = decode(encode(x, name)), decode(encode(x, name, importance=count))
    assert error(x, guided, count) < error(x, plain, count)


@each_format
def test_rows_do_not_depend_on_each_other(blocks: BlockFormat) -> None:
    x = weights(rows=5)
    whole, count = encode(x, blocks.name), np.arange(512.0)
    np.testing.assert_array_equal(whole.payload[2:4], encode(x[2:4], blocks.name).payload)
    some = encode(x, blocks.name, importance=count)
    np.testing.assert_array_equal(some.payload[:1], encode(x[:1], blocks.name, importance=7 * count).payload)


@each_format
@pytest.mark.parametrize("size", [0.0, 1e-42, 1e-12, 1e4, 3e38])
def test_extremes_stay_finite(blocks: BlockFormat, size: float) -> None:
    x = np.float32(size) * np.sign(weights(rows=2)).astype(np.float32)
    values = decode(encode(x, blocks.name))
    assert np.isfinite(values).all()
    if size == 0:
        assert not values.any()
    if size == 1e4 and blocks.name not in ("tq1_0", "tq2_0"):
        np.testing.assert_allclose(values[x != 0], x[x != 0], rtol=0.4)


@each_format
def test_odd_shapes_and_odd_numbers(blocks: BlockFormat) -> None:
    for shape in ((), (3,), (0, 256), (2, 0), (2, 3, 300)):
        packed = encode(np.resize(weights(), shape), blocks.name)
        assert decode(packed).shape == shape
        assert packed.nbytes == Scheme.parse(blocks.name).nbytes(shape)
    for odd in (np.nan, np.inf):
        with pytest.raises(DTypeError, match="cannot hold the"):
            encode(np.array([[1.0, odd]], np.float32), blocks.name)


def test_importance_is_checked() -> None:
    x = weights(rows=1)
    for bad in (np.ones(3), np.full(512, -1.0), np.full(512, np.nan)):
        with pytest.raises(DTypeError, match="importance must be 512 finite numbers"):
            encode(x, "q4_k", importance=bad)
    nothing = encode(x, "q4_k", importance=np.zeros(512))
    np.testing.assert_array_equal(nothing.payload, encode(x, "q4_k").payload)
    np.testing.assert_array_equal(encode(x, "int4:g32", importance=np.ones(512)).payload, encode(x, "int4:g32").payload)


@pytest.mark.parametrize(("bits", "run"), [(4, 32), (4, 16), (2, 32), (1, 32), (2, 1), (4, 1)])
def test_planes_come_back(bits: int, run: int) -> None:
    raw = np.random.default_rng(0).integers(0, 256, (7, 64), np.uint8)
    np.testing.assert_array_equal(packed_planes(planes(raw, bits, run), bits, run), raw)
