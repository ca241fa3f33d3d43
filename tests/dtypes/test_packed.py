"""The word layout, against a slow packer of bits, and the views of packed tensors."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.dtypes.strategies import finite, matrices, normal, ordinary, parts, schemes
from volumetric.base.errors import DTypeError, ShapeError
from volumetric.dtypes import DTYPES, DType, Packed, Scheme, decode, decode_rows, encode, parse_dtype
from volumetric.dtypes.bits import pack_codes, unpack_codes


def slow_words(codes: list[int], bits: int) -> list[int]:
    """Pack unsigned codes by writing the whole row as one large integer."""
    row = 0
    for j, code in enumerate(codes):
        row |= code << (j * bits)
    count = (len(codes) * bits + 31) // 32
    return [(row >> (32 * w)) & 0xFFFFFFFF for w in range(count)]


@given(st.sampled_from([1, 2, 4, 8, 16, 32, 64]), st.integers(0, 3), st.integers(0, 70), st.data())
def test_packing_equals_the_slow_packer(bits: int, rows: int, k: int, data: st.DataObject) -> None:
    codes = data.draw(
        st.lists(st.lists(st.integers(0, 2**bits - 1), min_size=k, max_size=k), min_size=rows, max_size=rows)
    )
    array = np.array(codes, np.dtype(f"u{max(bits // 8, 1)}")).reshape(rows, k)
    words = (k * bits + 31) // 32
    packed = pack_codes(array, bits, words)
    assert packed.dtype == np.uint32
    assert packed.shape == (rows, words)
    assert packed.tolist() == [slow_words(row, bits) for row in codes]
    np.testing.assert_array_equal(unpack_codes(packed, bits, k), array)


def pattern(value: float, dtype: DType) -> int:
    """The bits that stand for a code, from the definitions in `packed`."""
    if dtype.kind == "ternary":
        return int(value) + 1
    if dtype.kind == "binary":
        return int(value > 0)
    if dtype.kind == "float":
        raw = np.array([value]).astype(dtype.host)
        return int.from_bytes(raw.tobytes(), "little") & ((1 << dtype.bits) - 1)
    return int(value) % (1 << dtype.bits)


def all_codes(dtype: DType) -> NDArray[Any]:
    """Codes of every kind that a type has, at most 256."""
    if dtype.kind == "ternary":
        return np.array([-1, 0, 1])
    if dtype.kind == "binary":
        return np.array([-1, 1])
    if dtype.kind == "float":
        step = max(1, 2 ** (dtype.bits - 8))
        patterns = [(i * step + i) % 2**dtype.bits for i in range(min(256, 2**dtype.bits))]
        unsigned = np.array(patterns, np.dtype(f"u{dtype.host.itemsize}"))
        values = unsigned.view(dtype.host).astype(np.float64)
        return values[np.isfinite(values)]
    low, high = (
        (0, 2**dtype.bits - 1) if dtype.kind == "uint" else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)
    )
    wide = {low, low + 1, 0, 1, high // 3, high - 1, high} if dtype.bits > 8 else set(range(low, high + 1))
    # numbers that float64 has, so that encode can be given them
    return np.array(sorted(v for v in wide if int(float(v)) == v and low <= int(float(v)) <= high), dtype=object)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_code_lands_where_the_layout_says(dtype: DType) -> None:
    values = all_codes(dtype)
    k = 7
    cells = np.resize(values, (len(values) // k + 3, k))
    packed = encode(cells.astype(np.float64), Scheme(dtype=dtype))
    expected = [slow_words([pattern(value, dtype) for value in row], dtype.bits) for row in cells]
    assert packed.payload.tolist() == expected
    codes = packed.codes()
    assert codes.tolist() == cells.tolist()
    np.testing.assert_array_equal(decode(packed, np.float64), cells.astype(np.float64))


@pytest.mark.thorough
@given(schemes(), matrices(ordinary()) | matrices(finite()), st.data())
@settings(max_examples=300)
def test_row_slice_and_gather_are_those_rows(scheme: Scheme, x: NDArray[np.float32], data: st.DataObject) -> None:
    packed = encode(x, scheme)
    whole = decode(packed)
    start = data.draw(st.integers(0, len(x)))
    stop = data.draw(st.integers(start, len(x)))
    part = packed.slice_rows(start, stop)
    assert part.shape == (stop - start, x.shape[1])
    assert decode(part).tobytes() == whole[start:stop].tobytes()
    assert parts(part) == parts(encode(x[start:stop], scheme))
    rows = np.array(data.draw(st.lists(st.integers(0, len(x) - 1), max_size=6)), np.int32)
    assert decode_rows(packed, rows).tobytes() == whole[rows].tobytes()


def test_repr_is_one_line() -> None:
    packed = encode(np.ones((2, 3, 64), np.float32), "q4_1")
    assert repr(packed) == "<Packed uint4:g32 (2, 3, 64), 5.00 bits per weight>"
    assert repr(packed.scheme) == "Scheme.parse('uint4:g32')"
    assert repr(packed.scheme.dtype) == "DType(uint4)"


def test_row_slice_shares_memory() -> None:
    packed = encode(normal(0, (6, 64)), "uint4:g32")
    part = packed.slice_rows(2, 5)
    for name in ("payload", "scales", "offsets"):
        assert np.shares_memory(getattr(part, name), getattr(packed, name))


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (2, 1), (0, 5)])
def test_row_slice_outside(start: int, stop: int) -> None:
    with pytest.raises(ShapeError, match="outside of 0:4"):
        encode(np.zeros((4, 8), np.float32), "int8").slice_rows(start, stop)


@pytest.mark.parametrize("row", [-1, 4, 2**40])
def test_decode_rows_outside(row: int) -> None:
    with pytest.raises(ShapeError, match=f"row {row} is outside of 0:4"):
        decode_rows(encode(np.zeros((4, 8), np.float32), "int8"), np.array([1, row]))


def test_decode_rows_of_many_axes() -> None:
    x = normal(1, (2, 3, 40))
    packed = encode(x, "int4")
    assert decode(packed).shape == x.shape
    np.testing.assert_array_equal(decode_rows(packed, np.array([5, 0])), decode(packed).reshape(6, 40)[[5, 0]])


HOSTS = [dtype.host for dtype in DTYPES if dtype.bits >= 8]


@pytest.mark.parametrize("host", HOSTS, ids=str)
@pytest.mark.parametrize("shape", [(3, 8), (8,), (2, 3, 4), (4, 5), (3,), (0, 8), (4, 0), ()])
def test_from_array_keeps_the_bits(host: np.dtype[Any], shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape)) * host.itemsize
    array = np.arange(count, dtype=np.uint8).view(host).reshape(shape)
    packed = Packed.from_array(array)
    assert packed.shape == shape
    assert packed.codes().tobytes() == array.tobytes()
    row_bytes = (shape[-1] if shape else 1) * host.itemsize
    if array.size and row_bytes % 4 == 0:
        assert np.shares_memory(packed.payload, array)


def test_from_array_copies_what_it_must() -> None:
    words = np.arange(64, dtype=np.uint8)
    unaligned = words[1:33].view(np.float16).reshape(2, 8)
    strided = np.arange(64, dtype=np.float32).reshape(8, 8)[:, ::2]
    swapped = np.arange(8, dtype=">f4").reshape(2, 4)
    transposed = np.arange(64, dtype=np.float32).reshape(8, 8).T
    for array in (unaligned, strided, swapped, transposed):
        packed = Packed.from_array(array)
        assert not np.shares_memory(packed.payload, array)
        np.testing.assert_array_equal(decode(packed, np.float64), array.astype(np.float64))


def test_from_array_reads_a_memory_map_in_place(tmp_path) -> None:
    path = tmp_path / "weights.bin"
    normal(0, (4, 16)).astype(ml_dtypes.bfloat16).tofile(path)
    mapped = np.memmap(path, ml_dtypes.bfloat16, mode="r", shape=(4, 16))
    packed = Packed.from_array(mapped)
    assert np.shares_memory(packed.payload, mapped)
    np.testing.assert_array_equal(decode(packed), mapped.astype(np.float32))


def test_from_array_refuses_what_has_no_bytes_of_its_own() -> None:
    with pytest.raises(DTypeError, match="int4 arrays"):
        Packed.from_array(np.zeros((2, 8), ml_dtypes.int4))
    with pytest.raises(DTypeError, match="unknown dtype"):
        Packed.from_array(np.zeros((2, 8), bool))


def test_parts_must_fit_together() -> None:
    good = encode(np.ones((2, 40), np.float32), "uint4:g32")

    def rebuilt(**changes: Any) -> Packed:
        fields = {name: getattr(good, name) for name in ("scheme", "shape", "payload", "scales", "offsets")}
        return Packed(**{**fields, **changes})

    assert parts(rebuilt()) == parts(good)
    assert good.scales is not None
    with pytest.raises(ShapeError, match=r"payload of uint4:g32 for shape \(2, 41\) must be \(2, 6\), got \(2, 5\)"):
        rebuilt(shape=(2, 41))
    with pytest.raises(ShapeError, match=r"scales .* must be \(2, 2\)"):
        rebuilt(scales=good.scales[:, :1])
    with pytest.raises(DTypeError, match="must be float16, got float32"):
        rebuilt(scales=good.scales.astype(np.float32))
    with pytest.raises(DTypeError, match="must be uint32, got int32"):
        rebuilt(payload=good.payload.astype(np.int32))
    with pytest.raises(DTypeError, match="uint4:g32 has its offsets"):
        rebuilt(offsets=None)
    with pytest.raises(DTypeError, match="int4:g32 has no offsets"):
        rebuilt(scheme=Scheme.parse("int4"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pickle(dtype: DType) -> None:
    packed = encode(normal(2, (3, 37)), Scheme.default(dtype))
    assert parts(pickle.loads(pickle.dumps(packed))) == parts(packed)


def test_codes_of_whole_bytes_are_a_view() -> None:
    packed = encode(normal(3, (4, 32)), "int8")
    assert np.shares_memory(packed.codes(), packed.payload)
    assert packed.codes().dtype == np.int8
    assert encode(normal(3, (4, 32)), "int4").codes().dtype == np.int8
    assert encode(normal(3, (4, 32)), "uint2").codes().dtype == np.uint8
    assert encode(normal(3, (4, 32)), "fp4").codes().dtype == parse_dtype("fp4").host
