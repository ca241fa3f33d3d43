"""Text form, defaults and sizes of schemes."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dtypes.strategies import schemes
from volumetric.base.errors import DTypeError
from volumetric.dtypes import DTYPES, Scheme, encode, parse_dtype
from volumetric.dtypes.scheme import SPELLINGS

DEFAULTS = {
    "float64": ("float64", None),
    "float32": ("float32", None),
    "float16": ("float16", None),
    "bfloat16": ("bfloat16", None),
    "float8_e4m3fn": ("float8_e4m3fn:row", "float32"),
    "float8_e5m2": ("float8_e5m2:row", "float32"),
    "float4_e2m1fn": ("float4_e2m1fn:g32", "float16"),
    **{f"{u}int{bits}": (f"{u}int{bits}:row", "float32") for u in ("", "u") for bits in (64, 32, 16)},
    **{f"{u}int{bits}": (f"{u}int{bits}:g32", "float16") for u in ("", "u") for bits in (8, 4, 2)},
    "ternary": ("ternary:row", "float32"),
    "binary": ("binary:row", "float32"),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_defaults(dtype) -> None:
    text, scale_dtype = DEFAULTS[dtype.name]
    scheme = Scheme.default(dtype)
    assert str(scheme) == text
    assert scheme.scale_dtype is (parse_dtype(scale_dtype) if scale_dtype else None)
    assert scheme.has_scale == (scale_dtype is not None)
    assert scheme.has_offset == (dtype.kind == "uint")
    assert Scheme.parse(dtype) == Scheme.parse(dtype.name) == Scheme.parse(dtype.short) == Scheme.parse(text) == scheme


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("bf16", "bfloat16"),
        ("fp8", "float8_e4m3fn:row"),
        ("fp8:g128", "float8_e4m3fn:g128"),
        ("Q8_0", "int8:g32"),
        ("q4_0", "int4:g32"),
        ("Q4_1", "uint4:g32"),
        ("INT4:G64", "int4:g64"),
        ("int4:g64:asym", "uint4:g64"),
        ("uint4:sym", "int4:g32"),
        ("i8:row", "int8:row"),
        ("i8:g0", "int8:row"),
        ("i8:channel:f32", "int8:row:float32"),
        ("int8:g32:f16", "int8:g32"),
        ("int8:none", "int8:none"),
        ("fp8:none", "float8_e4m3fn:none"),
        ("f32:none", "float32"),
        ("ternary:g128:f16", "ternary:g128:float16"),
        ("u16:g8:bf16", "uint16:g8:bfloat16"),
    ],
)
def test_text_forms(text: str, canonical: str) -> None:
    assert str(Scheme.parse(text)) == canonical


@given(schemes())
def test_text_round_trip(scheme: Scheme) -> None:
    assert Scheme.parse(str(scheme)) == scheme
    assert hash(Scheme.parse(str(scheme))) == hash(scheme)
    assert pickle.loads(pickle.dumps(scheme)) == scheme
    assert Scheme.parse(scheme) is scheme


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int9", "unknown dtype 'int9'"),
        ("q9_k", "unknown dtype 'q9_k'"),
        ("q4_k:g32", "is a whole scheme"),
        ("int4:q32", "invalid part 'q32'"),
        ("int4:g32:g", "invalid part 'g'"),
        ("q4_0:g64", "is a whole scheme"),
        ("bf16:g32", "takes no scale"),
        ("f32:row", "takes no scale"),
        ("fp4:asym", "no affine form"),
        ("ternary:asym", "no affine form"),
        ("int8:g32:int8", "scales cannot be int8"),
        ("int8:g32:f64", "scales cannot be float64"),
    ],
)
def test_impossible_texts(text: str, message: str) -> None:
    with pytest.raises(DTypeError, match=message) as caught:
        Scheme.parse(text)
    assert caught.value.hint
    if "unknown" in message:
        assert "int4:g32 (q4_0)" in caught.value.hint


def test_every_spelling_that_the_hint_names_parses() -> None:
    names = re.findall(r"[\w:]+", SPELLINGS.partition(" ")[2])
    assert {str(Scheme.parse(name)) for name in names} >= {
        "float32",
        "bfloat16",
        "int4:g32",
        "uint4:g32",
        "ternary:row",
    }


def test_impossible_parts() -> None:
    f16, int4, uint4 = parse_dtype("f16"), parse_dtype("int4"), parse_dtype("uint4")
    with pytest.raises(DTypeError, match="int4 codes are symmetric"):
        Scheme(dtype=int4, group=32, symmetric=False, scale_dtype=f16)
    with pytest.raises(DTypeError, match="uint4 codes are affine"):
        Scheme(dtype=uint4, group=32, symmetric=True, scale_dtype=f16)
    with pytest.raises(DTypeError, match="neither scale nor offset"):
        Scheme(dtype=int4, scale_dtype=f16)
    with pytest.raises(DTypeError, match="scales cannot be None"):
        Scheme(dtype=int4, group=32)
    with pytest.raises(DTypeError, match="negative"):
        Scheme(dtype=int4, group=-1, scale_dtype=f16)


@pytest.mark.parametrize(
    ("text", "k", "bits"),
    [
        ("f32", 7, 32),
        ("bf16", 64, 16),
        ("bf16", 3, 64 / 3),
        ("q8_0", 576, 8.5),
        ("q4_0", 576, 4.5),
        ("q4_1", 576, 5.0),
        ("int2", 64, 2.5),
        ("int4:g64", 128, 4.25),
        ("fp8", 64, 8.5),
        ("ternary", 320, 2.1),
        ("binary", 320, 1.1),
        ("uint16", 64, 17),
        ("int4", 33, (5 * 32 + 2 * 16) / 33),
    ],
)
def test_bits_per_weight(text: str, k: int, bits: float) -> None:
    assert Scheme.parse(text).bits_per_weight((5, k)) == pytest.approx(bits)


@given(schemes(), st.integers(0, 5), st.integers(0, 80))
def test_sizes_are_those_of_packed_tensors(scheme: Scheme, rows: int, k: int) -> None:
    import numpy as np

    packed = encode(np.zeros((rows, k), np.float32), scheme)
    assert packed.nbytes == scheme.nbytes((rows, k))
    assert packed.bits_per_weight == scheme.bits_per_weight((rows, k))


def test_gguf_names() -> None:
    names = {str(s): s.gguf_type for s in map(Scheme.default, DTYPES) if s.gguf_type}
    assert names == {
        "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
        "int8:g32": "Q8_0", "int4:g32": "Q4_0", "uint4:g32": "Q4_1",
    }  # fmt: skip
    assert Scheme.parse("int8:none").gguf_type == "I8"
    assert Scheme.parse("int8:g32:f32").gguf_type is None
    assert Scheme.parse("uint8:none").gguf_type is None
