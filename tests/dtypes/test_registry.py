"""Every spelling of the 21 types, and what is said about spellings that are none."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from volumetric.base.errors import DTypeError
from volumetric.dtypes import BLOCK_FORMATS, DTYPES, DType, parse_dtype, register_format

SPELLINGS = {
    "float64": ["f64", "fp64", "double", "F64", "torch.float64", "FLOAT64", "Float64"],
    "float32": ["f32", "fp32", "float", "F32", "FP32", "torch.float"],
    "float16": ["f16", "fp16", "half", "F16", "torch.half"],
    "bfloat16": ["bf16", "BF16", "BFLOAT16", "torch.bfloat16", " bf16 "],
    "float8_e4m3fn": ["fp8", "FP8E4M3", "fp8_e4m3", "F8_E4M3", "e4m3", "e4m3fn", "torch.float8_e4m3fn", "FP8-E4M3"],
    "float8_e5m2": ["fp8e5m2", "FP8E5M2", "F8_E5M2", "e5m2", "torch.float8_e5m2"],
    "float4_e2m1fn": ["fp4", "f4", "FP4", "F4", "e2m1", "float4", "torch.float4_e2m1fn_x2"],
    "int64": ["i64", "I64", "s64", "long", "torch.long"],
    "int32": ["i32", "I32", "s32", "torch.int"],
    "int16": ["i16", "I16", "short"],
    "int8": ["i8", "I8", "INT8", "s8", "Q8_0"],
    "int4": ["i4", "INT4", "s4", "q4_0", "Q4_0"],
    "int2": ["i2", "INT2", "s2"],
    "uint64": ["u64", "U64"],
    "uint32": ["u32", "U32"],
    "uint16": ["u16", "U16"],
    "uint8": ["u8", "U8", "byte", "torch.uint8"],
    "uint4": ["u4", "UINT4", "q4_1"],
    "uint2": ["u2", "UINT2"],
    "ternary": ["tern", "TERNARY", "trit", "b1.58"],
    "binary": ["bin", "BINARY", "bit"],
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_parse_to_one_instance(name: str) -> None:
    dtype = parse_dtype(name)
    assert dtype.name == str(dtype) == name
    for text in [name, name.upper(), dtype.short, *dtype.aliases, *SPELLINGS[name]]:
        assert parse_dtype(text) is dtype, text
    if dtype.safetensors:
        assert parse_dtype(dtype.safetensors) is dtype


def test_the_21_types() -> None:
    assert sorted(SPELLINGS) == sorted(dtype.name for dtype in DTYPES)
    assert len({dtype.short for dtype in DTYPES}) == len(DTYPES) == 21


def test_order_is_that_of_loom_ids() -> None:
    ids = "f64 f32 f16 bf16 fp8 fp8e5m2 i64 i32 i16 i8 u64 u32 u16 u8 i4 u4 fp4 i2 u2 tern bin"
    assert " ".join(dtype.short for dtype in DTYPES) == ids


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bits_agree_with_the_host_dtype(dtype: DType) -> None:
    assert dtype.bits == {"ternary": 2, "binary": 1}.get(dtype.name) or dtype.bits <= 8 * dtype.host.itemsize
    if dtype.kind == "float":
        assert ml_dtypes.finfo(dtype.host).bits == dtype.bits
    if dtype.kind in ("int", "uint"):
        info = ml_dtypes.iinfo(dtype.host)
        assert int(info.max) - int(info.min) + 1 == 2**dtype.bits


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (np.float32, "float32"),
        (np.dtype("uint16"), "uint16"),
        (np.dtype(">f4"), "float32"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype(ml_dtypes.int4), "int4"),
        (ml_dtypes.float8_e4m3fn, "float8_e4m3fn"),
    ],
)
def test_numpy_dtypes_parse(spec: type, name: str) -> None:
    assert parse_dtype(spec).name == name


@pytest.mark.parametrize(
    ("text", "close"), [("bflot16", "bfloat16"), ("int5", "int4"), ("fp8e4m4", "float8_e4m3fn"), ("turnary", "ternary")]
)
def test_unknown_spelling_suggests_close_names(text: str, close: str) -> None:
    with pytest.raises(DTypeError, match=f"unknown dtype '{text}'") as caught:
        parse_dtype(text)
    assert caught.value.hint is not None
    assert close in caught.value.hint


@pytest.mark.parametrize("spec", ["", "zzz", np.dtype(bool), np.complex64, ml_dtypes.float8_e4m3fnuz, np.dtype("S4")])
def test_nonsense_is_refused_with_a_hint(spec: str) -> None:
    with pytest.raises(DTypeError) as caught:
        parse_dtype(spec)
    assert caught.value.hint


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_identity_survives_copies(dtype: DType) -> None:
    assert copy.copy(dtype) is copy.deepcopy(dtype) is pickle.loads(pickle.dumps(dtype)) is dtype


def test_import_is_light() -> None:
    heavy = "numba wgpu gguf torch jinja2 rich tokenizers safetensors hypothesis"
    code = f"import sys, volumetric.dtypes; print([m for m in {heavy.split()} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_block_format_takes_no_name_that_is_there() -> None:
    form = BLOCK_FORMATS["q5_0"]
    for name, message in (("Q5-0", "already exists"), ("bf16", "is a spelling of bfloat16")):
        with pytest.raises(DTypeError, match=message):
            register_format(dataclasses.replace(form, name=name))
