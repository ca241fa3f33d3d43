"""Our three GGUF schemes against the `gguf` package, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from tests.dtypes.strategies import GGUF_SCHEMES, normal, parts
from volumetric.base.errors import DTypeError, ShapeError
from volumetric.dtypes import Scheme, decode, encode, from_gguf, to_gguf

TYPES = list(GGUF_SCHEMES)
each_type = pytest.mark.parametrize("name", TYPES)


def reference(x: NDArray[np.float32], name: str) -> bytes:
    with np.errstate(all="ignore"):
        return gguf.quants.quantize(x, gguf.GGMLQuantizationType[name]).tobytes()


def numbers() -> st.SearchStrategy[float]:
    """Zeros of both signs, few distinct values (so that ties are common), halves, and all sizes down to 1e-30.

    Up to 2e5, where no float16 scale overflows: there ggml stores infinity, and we saturate.
    """
    size = st.floats(2**-100, 2**17, width=32) | st.sampled_from([1.0, 2.0, 7.0, 8.0, 127.0, 0.5, 3.5, 63.5, 1e-7])
    return st.just(0.0) | st.just(-0.0) | size | size.map(lambda x: -x)


def blocks(elements: st.SearchStrategy[float]) -> st.SearchStrategy[NDArray[np.float32]]:
    return st.tuples(st.integers(1, 3), st.integers(1, 3)).flatmap(
        lambda shape: hnp.arrays(np.float32, (shape[0], 32 * shape[1]), elements=elements)
    )


@pytest.mark.thorough
@each_type
@given(x=blocks(numbers()) | blocks(st.sampled_from([0.0, -0.0, 1.0, -1.0])))
@settings(max_examples=120)
def test_adversarial_blocks(name: str, x: NDArray[np.float32]) -> None:
    if name == "Q4_1":
        x = np.clip(x, -65504, 65504)  # offsets are as limited as scales
    packed = encode(x, name)
    assert str(packed.scheme) == GGUF_SCHEMES[name]
    assert to_gguf(packed) == reference(x, name)


@pytest.mark.thorough
@each_type
@given(seed=st.integers(0, 2**32 - 1), spread=st.sampled_from([1e-9, 1e-6, 1e-4, 0.02, 1.0, 300.0, 1e4]))
def test_random_blocks(name: str, seed: int, spread: float) -> None:
    x = normal(seed, (5, 96), spread)
    packed = encode(x, name)
    raw = np.frombuffer(reference(x, name), np.uint8)
    assert to_gguf(packed) == raw.tobytes()
    expected = gguf.quants.dequantize(raw.reshape(5, -1), gguf.GGMLQuantizationType[name])
    assert decode(packed).tobytes() == expected.tobytes()


@each_type
def test_a_large_matrix(name: str) -> None:
    x = normal(1, (1000, 576), 0.05)
    assert to_gguf(encode(x, name)) == reference(x, name)


@pytest.mark.thorough
@each_type
@given(data=st.data(), rows=st.integers(0, 4), groups=st.integers(0, 3))
def test_any_bytes_survive_the_round_trip(name: str, data: st.DataObject, rows: int, groups: int) -> None:
    """Also those that no quantiser writes: the conversion moves bits and judges nothing."""
    size = rows * groups * {"Q8_0": 34, "Q4_0": 18, "Q4_1": 20}[name]
    raw = data.draw(hnp.arrays(np.uint8, size))
    packed = from_gguf(raw, name, (rows, 32 * groups))
    assert to_gguf(packed) == raw.tobytes()
    assert str(packed.scheme) == GGUF_SCHEMES[name]


@each_type
def test_decodes_to_what_gguf_says(name: str) -> None:
    x = normal(2, (3, 4, 64))
    raw = np.frombuffer(reference(x, name), np.uint8)
    packed = from_gguf(raw, name, (3, 4, 64))
    assert packed.shape == (3, 4, 64)
    expected = gguf.quants.dequantize(raw.reshape(12, -1), gguf.GGMLQuantizationType[name]).reshape(3, 4, 64)
    assert decode(packed).tobytes() == expected.tobytes()
    assert parts(packed) == parts(encode(x, name))


@each_type
def test_many_blocks_and_read_only_bytes(name: str) -> None:
    x = normal(3, (2048, 1024))
    raw = np.frombuffer(reference(x, name), np.uint8)
    packed = from_gguf(raw, name, x.shape)
    assert parts(packed) == parts(encode(x, name))
    assert to_gguf(packed) == raw.tobytes()
    assert to_gguf(packed.slice_rows(100, 200)) == raw.reshape(2048, -1)[100:200].tobytes()


def test_codes_are_in_reading_order() -> None:
    raw = np.zeros(18, np.uint8)
    raw[:2] = np.array([1], np.float16).view(np.uint8)
    raw[2:] = [(j % 16) | (15 - j) << 4 for j in range(16)]
    codes = from_gguf(raw, "Q4_0", (1, 32)).codes()[0].tolist()
    assert codes == [*range(-8, 8), *range(7, -9, -1)]


@each_type
def test_what_does_not_fit_is_refused(name: str) -> None:
    raw = np.frombuffer(reference(normal(4, (2, 64)), name), np.uint8)
    with pytest.raises(ShapeError, match="multiple of 32"):
        from_gguf(raw, name, (2, 60))
    with pytest.raises(ShapeError, match=f"takes {raw.size * 3 // 2} bytes, got {raw.size}"):
        from_gguf(raw, name, (3, 64))
    with pytest.raises(ShapeError, match="multiple of 32"):
        to_gguf(encode(np.zeros((2, 40), np.float32), name))


def test_other_formats_are_refused() -> None:
    with pytest.raises(DTypeError, match="IQ2_S"):
        from_gguf(np.zeros(82, np.uint8), "IQ2_S", (1, 256))
    for text in ("int4:g64", "int8:g32:f32", "bf16", "uint8"):
        with pytest.raises(DTypeError, match="no GGUF block form"):
            to_gguf(encode(np.zeros((2, 64), np.float32), Scheme.parse(text)))
