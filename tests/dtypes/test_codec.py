"""What encoding loses, keeps and refuses, for every type."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from tests.dtypes.strategies import finite, matrices, normal, ordinary, parts, per_element, schemes
from volumetric.base.errors import DTypeError
from volumetric.dtypes import DTYPES, DType, Packed, Scheme, decode, encode, recode

F32_MAX = float(np.finfo(np.float32).max)
SCALED = [Scheme.default(dtype) for dtype in DTYPES if Scheme.default(dtype).has_scale]
MORE = ["int8:row:f32", "int4:g64", "int4:g1", "int8:g7", "uint4:row", "uint8:g5:bf16", "fp8:g128", "fp4:g16:f32"]
MORE += ["ternary:g32:f16", "binary:g8", "int16:g32", "uint16:g9", "e5m2:g32:bf16", "int2:g16:f32", "int64:g4"]
ALL = [*map(Scheme.default, DTYPES), *map(Scheme.parse, MORE)]


def largest_step(packed: Packed, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bound of |x - decoded| for each element, from the definitions of the types, for groups of ordinary size."""
    scheme, dtype = packed.scheme, packed.scheme.dtype
    size = np.abs(x)
    if not scheme.has_scale:
        return size * 2.0 ** -(ml_dtypes.finfo(dtype.host).nmant + 1) + 2.0**-25
    s = np.abs(per_element(packed, packed.scales))
    assert scheme.scale_dtype is not None
    eps = 2.0 ** -(ml_dtypes.finfo(scheme.scale_dtype.host).nmant + 1)  # relative rounding of a stored scale
    top = 2.0 ** (dtype.bits - 1)
    match dtype.kind:
        case "float":
            info = ml_dtypes.finfo(dtype.host)
            limit = float(info.max) * s
            return np.maximum(size * 2.0 ** -(info.nmant + 1), s * float(info.smallest_subnormal) / 2) + 2 * eps * limit
        case "ternary" | "binary":
            return np.maximum(size, s)
        case "int" if dtype.bits < 8:
            return s * (1 + 2 * eps * top)  # the peak of the other sign is one step beyond the codes
        case "int":
            return s * (0.5 + 2 * eps * top)
        case _:
            offset = np.abs(per_element(packed, packed.offsets))
            return s * (0.5 + 4 * eps * top) + 2 * eps * offset + eps * 2.0**-14


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ALL, ids=str)
@given(x=matrices(ordinary()))
@settings(max_examples=16)
def test_error_is_bounded(scheme: Scheme, x: NDArray[np.float32]) -> None:
    packed = encode(x, scheme)
    wide = x.astype(np.float64)
    error = np.abs(wide - decode(packed, np.float64))
    assert (error <= largest_step(packed, wide)).all()
    np.testing.assert_array_equal(decode(packed), decode(packed, np.float64).astype(np.float32))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["fp8", "e5m2", "fp4", "ternary", "int16", "uint16", "fp4:g7:f32", "ternary:g5"])
@given(x=matrices(ordinary(), max_k=40))
@settings(max_examples=40)
def test_each_code_is_the_nearest_for_its_scale(name: str, x: NDArray[np.float32]) -> None:
    packed = encode(x, name)
    dtype = packed.scheme.dtype
    count = 2 ** min(dtype.bits, 16)
    raw = np.arange(count).astype(np.uint16 if dtype.bits == 16 else np.uint8)
    values = np.array([-1, 0, 1]) if dtype.name == "ternary" else raw.view(dtype.host)
    grid = values.astype(np.float64)
    grid = np.unique(grid[np.isfinite(grid)])
    s, o = per_element(packed, packed.scales), per_element(packed, packed.offsets)
    target = np.divide(x - o, s, out=np.zeros_like(s), where=s != 0)
    right = np.clip(np.searchsorted(grid, target), 1, len(grid) - 1)
    best = np.minimum(np.abs(grid[right] - target), np.abs(grid[right - 1] - target))
    got = np.abs(packed.codes().astype(np.float64) - target)
    if dtype.name == "ternary":
        got, best = np.where(s == 0, 0, got), np.where(s == 0, 0, best)
    np.testing.assert_allclose(got, best, rtol=0, atol=1e-6 * np.abs(target).max())


BYTE_EXACT = [s for s in ALL if s.dtype.kind != "uint" and not (s.dtype.bits == 32 and s.dtype.kind == "int")]


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", BYTE_EXACT, ids=str)
@given(x=matrices(ordinary()))
@settings(max_examples=16)
def test_encoding_again_gives_the_same_bytes(scheme: Scheme, x: NDArray[np.float32]) -> None:
    once = encode(x, scheme)
    again = encode(decode(once, np.float64), scheme)
    assert again.payload.tolist() == once.payload.tolist()
    assert once.scales is None or again.scales is not None
    if once.scales is not None and again.scales is not None:
        # a group without a positive number has no say in the sign of its zero scale
        np.testing.assert_array_equal(again.scales.astype(np.float64), once.scales.astype(np.float64))


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", [s for s in ALL if s not in BYTE_EXACT], ids=str)
@given(seed=st.integers(0, 2**32 - 1), spread=st.floats(0.01, 100))
@settings(max_examples=40)
def test_encoding_again_gives_the_same_values(scheme: Scheme, seed: int, spread: float) -> None:
    once = decode(encode(normal(seed, (3, 67), spread), scheme), np.float64)
    again = decode(encode(once, scheme), np.float64)
    scale = np.finfo(np.float32).eps if scheme.dtype.bits >= 16 else 0
    np.testing.assert_allclose(again, once, rtol=0, atol=scale * np.abs(once).max())


@pytest.mark.thorough
@given(scheme=schemes(), x=matrices(finite()))
@settings(max_examples=400)
def test_any_finite_numbers_decode_to_finite_numbers(scheme: Scheme, x: NDArray[np.float32]) -> None:
    y = decode(encode(x, scheme))
    assert y.shape == x.shape
    assert y.dtype == np.float32
    assert np.isfinite(y).all()
    if not scheme.has_offset and scheme.dtype.kind != "binary" and scheme.dtype.kind != "uint":
        assert (x * np.sign(y) >= 0).all()  # no number changes its sign
        assert (y[x == 0] == 0).all()


@pytest.mark.parametrize("scheme", ALL, ids=str)
def test_extremes_saturate_sanely(scheme: Scheme) -> None:
    """A group beyond its float16 scale keeps its signs and the largest magnitudes that the scheme has."""
    x = np.tile(np.array([3e38, -3e38, 1e30, -1e10, 1e6, 0, 1e-45, -1e-45], np.float32), 5)[None]
    y = decode(encode(x, scheme))
    assert np.isfinite(y).all()
    assert y[0, 0] == y.max() > 0
    assert y[0, 1] == y.min() < 0
    if scheme.scale_dtype is not None and scheme.scale_dtype.name != "float16" and scheme.dtype.bits >= 8:
        x = np.clip(x, -F32_MAX / 2, F32_MAX / 2) if scheme.dtype.name == "uint8" else x
        np.testing.assert_allclose(y[0, :2], x[0, :2], rtol=0.01)


@pytest.mark.parametrize("name", ["q8_0", "q4_0", "q4_1", "uint8", "fp4", "int2"])
def test_float16_scales_saturate_at_their_largest(name: str) -> None:
    x = np.full((1, 32), 1e20, np.float32)
    x[0, 1:3] = -1e20, 1e5
    packed = encode(x, name)
    assert abs(decode(packed)[0, 2] - 1e5) < 0.51 * 65504  # codes are against the scale as stored
    assert packed.scales is not None
    assert abs(float(packed.scales[0, 0])) == 65504
    if packed.offsets is not None:
        assert float(packed.offsets[0, 0]) == -65504
    assert encode(-np.abs(x) - 1e20, "uint4").payload.max() == 0  # all below any offset: the lowest code everywhere


def test_a_scale_that_rounds_up_does_not_decode_to_infinity() -> None:
    x = np.array([[F32_MAX, 0, -1e38]], np.float32)
    assert decode(encode(x, "int4:row:bf16"))[0, 0] == F32_MAX


@pytest.mark.parametrize("name", ["int16", "int32", "int64", "fp8", "e5m2", "ternary", "binary", "uint16", "uint64"])
@pytest.mark.parametrize("size", [1e-45, 1e-40, 1e-30])
def test_tiny_rows_do_not_vanish(name: str, size: float) -> None:
    x = np.array([[size, -size, 0, size]], np.float32)
    y = decode(encode(x, name))
    np.testing.assert_allclose(y[0, [0, 1, 3]], x[0, [0, 1, 3]], rtol=0.5)


@pytest.mark.parametrize("scheme", ALL, ids=str)
@pytest.mark.parametrize("k", [1, 31, 32, 33, 64, 100])
def test_zeros_stay_zeros(scheme: Scheme, k: int) -> None:
    packed = encode(np.zeros((3, k), np.float32), scheme)
    assert packed.scales is None or not packed.scales.any()
    assert not decode(packed).any()


@pytest.mark.parametrize("scheme", ALL, ids=str)
@pytest.mark.parametrize("shape", [(0, 8), (4, 0), (0,), (0, 0), (2, 0, 3), ()])
def test_empty_and_scalar(scheme: Scheme, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    packed = encode(x, scheme)
    assert packed.shape == shape
    y = decode(packed)
    assert y.shape == shape
    np.testing.assert_allclose(y, x, rtol=2**-8)


@pytest.mark.parametrize("scheme", ALL, ids=str)
@pytest.mark.parametrize("k", [1, 5, 33, 300])
def test_rows_are_independent(scheme: Scheme, k: int) -> None:
    """Long tensors go by chunks; where those begin must not show."""
    x = normal(7, (70_000 // k + 3, k))
    whole = encode(x, scheme)
    for rows in (slice(0, 3), slice(len(x) // 2, len(x) // 2 + 2), slice(-2, None)):
        alone = encode(x[rows], scheme)
        start = range(len(x))[rows].start
        assert parts(whole.slice_rows(start, start + alone.rows)) == parts(alone)
    np.testing.assert_array_equal(decode(whole)[-2:], decode(encode(x[-2:], scheme)))


@given(schemes(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 50))
def test_axes_before_the_last_are_rows(scheme: Scheme, a: int, b: int, k: int) -> None:
    x = normal(a * b * k, (a, b, k))
    cube, matrix = encode(x, scheme), encode(x.reshape(a * b, k), scheme)
    assert parts(cube)[2:] == parts(matrix)[2:]
    assert decode(cube).shape == x.shape
    transposed = np.asfortranarray(x)
    assert parts(encode(transposed, scheme)) == parts(cube)


HOLDS_BOTH = {"float64", "float32", "float16", "bfloat16", "float8_e5m2"}


@pytest.mark.parametrize("scheme", ALL, ids=str)
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("source", [np.float32, np.float64, np.float16])
def test_nan_and_infinity(scheme: Scheme, odd: float, source: type) -> None:
    x = normal(5, (40, 41)).astype(source)
    x[17, 33] = odd
    x[20, 2] = odd
    if scheme.dtype.name in HOLDS_BOTH or (scheme.dtype.name == "float8_e4m3fn" and np.isnan(odd)):
        y = decode(encode(x, scheme))
        assert y[17, 33] == odd or np.isnan(odd)
        assert np.isnan(y[17, 33]) == np.isnan(odd)
        assert np.isfinite(y).sum() == x.size - 2
        np.testing.assert_allclose(y[np.isfinite(x)], x[np.isfinite(x)].astype(np.float32), atol=0.5)
    else:
        with pytest.raises(DTypeError, match=rf"{scheme.dtype} cannot hold the {odd} at index \(17, 33\)") as caught:
            encode(x, scheme)
        assert caught.value.hint


def test_the_offender_is_named_in_the_tensors_own_axes() -> None:
    x = np.zeros((3, 50, 2000), np.float32)
    x[2, 41, 7] = np.inf
    with pytest.raises(DTypeError, match=r"inf at index \(2, 41, 7\) of shape \(3, 50, 2000\)"):
        encode(x, "int4")
    with pytest.raises(DTypeError, match=r"nan at index \(\)"):
        encode(np.array(np.nan, np.float32), "int4")


def test_infinity_among_zeros() -> None:
    x = np.array([[0, np.inf, -np.inf, 0]], np.float32)
    np.testing.assert_array_equal(decode(encode(x, "e5m2")), x)


@pytest.mark.parametrize("bad", [np.zeros((2, 4), np.int32), np.zeros((2, 4), bool), np.zeros((2, 4), complex)])
def test_only_floats_are_encoded(bad: NDArray[np.generic]) -> None:
    with pytest.raises(DTypeError):
        encode(bad, "int4")


def test_only_floats_are_decoded_to() -> None:
    with pytest.raises(DTypeError, match="cannot decode to int32"):
        decode(encode(np.zeros((2, 4), np.float32), "int4"), np.int32)


@pytest.mark.parametrize("host", [np.float16, ml_dtypes.bfloat16, np.float64, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("scheme", ALL, ids=str)
def test_sources_of_other_types_encode_as_their_float32(scheme: Scheme, host: type) -> None:
    x = normal(11, (3, 45)).astype(ml_dtypes.float8_e4m3fn)
    assert parts(encode(x.astype(host), scheme)) == parts(encode(x.astype(np.float32), scheme))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["int32", "int64", "uint32", "uint64"])
@given(x=hnp.arrays(np.float32, (2, 20), elements=st.floats(-1, 1, width=32)))
def test_wide_integers_lose_nothing_of_float32(name: str, x: NDArray[np.float32]) -> None:
    x = (np.sign(x) * np.maximum(np.abs(x), np.float32(2**-7 * (name[-2:] == "32")))).astype(np.float32)
    y = decode(encode(x, name))
    tolerance = 2.0**-32 if name[-2:] == "32" else 2.0**-53
    np.testing.assert_allclose(y, x, rtol=0, atol=tolerance * 2)
    if name == "int32":
        big = np.abs(x) >= np.abs(x).max(axis=1, keepdims=True) * 2**-7
        np.testing.assert_array_equal(y[big], x[big])


@pytest.mark.parametrize("name", ["ternary", "ternary:g8", "binary"])
def test_trained_ternary_weights_are_kept_exactly(name: str) -> None:
    scale = np.float32(0.0137)
    values = [-scale, scale] if name == "binary" else [-scale, 0, scale]
    x = np.random.default_rng(0).choice(np.array(values, np.float32), (6, 40))
    np.testing.assert_array_equal(decode(encode(x, name)), x)


def test_ternary_is_bitnets() -> None:
    x = np.array([[0.9, -0.4, 0.1, -0.21, 0.05, 0.0, -1.2, 0.35]], np.float32)
    gamma = np.abs(x).mean()
    packed = encode(x, "ternary")
    assert packed.scales is not None
    np.testing.assert_allclose(packed.scales, [[gamma]], rtol=1e-7)
    np.testing.assert_array_equal(packed.codes(), np.clip(np.round(x / gamma), -1, 1))


def test_binary_is_xnors() -> None:
    x = np.array([[0.5, -0.25, 0.0, -1.25]], np.float32)
    np.testing.assert_array_equal(decode(encode(x, "binary")), [[0.5, -0.5, 0.5, -0.5]])


def test_codes_without_scale_are_the_rounded_values() -> None:
    x = np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 300, -300, 0.2]], np.float32)
    assert decode(encode(x, "int8:none")).tolist() == [[0, 2, 2, 0, -2, 127, -128, 0]]
    assert decode(encode(x, "uint8:none")).tolist() == [[0, 2, 2, 0, 0, 255, 0, 0]]
    assert decode(encode(x, "int4:none")).tolist() == [[0, 2, 2, 0, -2, 7, -8, 0]]
    assert decode(encode(x, "uint2:none")).tolist() == [[0, 2, 2, 0, 0, 3, 0, 0]]
    assert decode(encode(x, "ternary:none")).tolist() == [[0, 1, 1, 0, -1, 1, -1, 0]]
    assert decode(encode(x, "fp4:none")).tolist() == [[0.5, 1.5, 2, -0.5, -1.5, 6, -6, 0]]
    assert decode(encode(1e30 * x, "int64:none"), np.float64).max() == 2**63 - 1024


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_temporaries_are_small_beside_the_tensor(dtype: DType) -> None:
    x = normal(3, (8192, 512))  # 16 MB

    def peak_beyond(run) -> int:
        tracemalloc.start()
        try:
            kept = run()
            return tracemalloc.get_traced_memory()[1] - kept.nbytes
        finally:
            tracemalloc.stop()

    packed = encode(x, dtype.name)
    assert peak_beyond(lambda: encode(x, dtype.name)) < 4_000_000
    assert peak_beyond(lambda: decode(packed)) < 4_000_000


def test_encode_never_shares_memory_with_its_source() -> None:
    x = normal(4, (4, 8))
    packed = encode(x, "float32")
    assert not np.shares_memory(packed.payload, x)
    assert not np.shares_memory(decode(packed), packed.payload)


@pytest.mark.parametrize("before", ["bfloat16", "int8:g32", "float64", "q4_k"])
@pytest.mark.parametrize("after", ["int4:g32", "uint4:row", "fp8:g128", "bf16", "q6_k", "q3_k"])
def test_recoding_in_pieces_is_decoding_and_encoding(before: str, after: str) -> None:
    packed = encode(np.random.default_rng(3).normal(size=(3, 301, 256)).astype(np.float32), before)
    whole, pieces = encode(decode(packed), after), recode(packed, after)
    assert (whole.scheme, whole.shape) == (pieces.scheme, pieces.shape)
    for part in ("payload", "scales", "offsets"):
        np.testing.assert_array_equal(getattr(whole, part), getattr(pieces, part))
