"""Arrays and schemes for the property tests of numeric types."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from volumetric.dtypes import DTYPES, DType, Packed, Scheme, parse_dtype

GGUF_SCHEMES = {"Q8_0": "int8:g32", "Q4_0": "int4:g32", "Q4_1": "uint4:g32"}


def dtypes() -> st.SearchStrategy[DType]:
    return st.sampled_from(DTYPES)


@st.composite
def schemes(draw: st.DrawFn) -> Scheme:
    """Any valid scheme: each type bare, by rows, or by groups of any size, with any dtype of scales."""
    dtype = draw(dtypes())
    group = draw(st.none() | st.integers(0, 40))
    if group is None or (dtype.is_float and dtype.bits >= 16):
        return Scheme(dtype=dtype)
    scale_dtype = parse_dtype(draw(st.sampled_from(["float16", "bfloat16", "float32"])))
    return Scheme(dtype=dtype, group=group, symmetric=dtype.kind != "uint", scale_dtype=scale_dtype)


def matrices(elements: st.SearchStrategy[float], max_k: int = 70) -> st.SearchStrategy[NDArray[np.float32]]:
    shapes = st.tuples(st.integers(1, 4), st.integers(1, max_k))
    return shapes.flatmap(lambda shape: hnp.arrays(np.float32, shape, elements=elements))


def ordinary() -> st.SearchStrategy[float]:
    """Numbers of the size that weights have: zero, or a magnitude between 1/128 and 1000."""
    size = st.floats(2**-7, 1000, width=32)
    return st.just(0.0) | size | size.map(lambda x: -x)


def finite() -> st.SearchStrategy[float]:
    """Every finite float32: subnormals, both zeros, the extremes."""
    return st.floats(allow_nan=False, allow_infinity=False, width=32)


def normal(seed: int, shape: tuple[int, ...], spread: float = 1.0) -> NDArray[np.float32]:
    return (spread * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def parts(packed: Packed) -> tuple[Any, ...]:
    """Everything that a packed tensor stores, comparable with ``==``."""
    arrays = (packed.payload, packed.scales, packed.offsets)
    return packed.scheme, packed.shape, *(None if a is None else a.tobytes() for a in arrays)


def per_element(packed: Packed, values: NDArray[Any] | None) -> NDArray[np.float64]:
    """Scales or offsets spread over the elements of their groups, float64 ``[rows, k]``."""
    if values is None:
        return np.zeros((packed.rows, packed.k))
    size = packed.scheme.group or packed.k
    return np.repeat(values.astype(np.float64), size, axis=1)[:, : packed.k]
