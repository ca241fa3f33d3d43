"""The engine's 21 numeric types for weights, types added by packages, and the parser for all spellings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import ml_dtypes
import numpy as np

from volumetric.base.errors import DTypeError
from volumetric.base.notebook_html import ShowsFields
from volumetric.base.registry import Registry, caller_module

Kind = Literal["float", "int", "uint", "ternary", "binary", "table"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DType(ShowsFields):
    """One numeric type. There is exactly one instance of each, so ``is`` and ``==`` are equivalent.

    Attributes
    ----------
    name : canonical spelling, that of numpy, ml_dtypes and torch: ``"bfloat16"``
    short : spelling for tables and command lines: ``"bf16"``
    bits : stored bits for each element, 64 … 1
    kind : ``"float"``, ``"int"``, ``"uint"``, ``"ternary"`` (−1, 0, +1), ``"binary"`` (−1, +1) or ``"table"``
    host : NumPy dtype of unpacked elements; int8 stands in for ternary and binary, unsigned codes for a table
    aliases : further spellings; case, ``_``, ``-`` and ``.`` do not matter when parsing
    safetensors : tag in a safetensors header, or None if the format has none
    values : the number of each code, for a table
    """

    name: str
    short: str
    bits: int
    kind: Kind
    host: np.dtype[Any]
    aliases: tuple[str, ...]
    safetensors: str | None = None
    values: tuple[float, ...] | None = None

    @property
    def is_float(self) -> bool:
        """Whether codes are floating-point numbers."""
        return self.kind == "float"

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"DType({self.name})"

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        # Equality is identity, so copying and unpickling must return the single instance.
        return parse_dtype, (self.name,)


def _row(
    name: str, short: str, bits: int, kind: Kind, host: Any, *aliases: str, safetensors: str | None = None
) -> DType:
    return DType(
        name=name, short=short, bits=bits, kind=kind, host=np.dtype(host), aliases=aliases, safetensors=safetensors
    )


# fmt: off
DTYPES: tuple[DType, ...] = (
    _row("float64", "f64", 64, "float", np.float64, "fp64", "double", safetensors="F64"),
    _row("float32", "f32", 32, "float", np.float32, "fp32", "float", "single", safetensors="F32"),
    _row("float16", "f16", 16, "float", np.float16, "fp16", "half", safetensors="F16"),
    _row("bfloat16", "bf16", 16, "float", ml_dtypes.bfloat16, "brain", safetensors="BF16"),
    _row("float8_e4m3fn", "fp8", 8, "float", ml_dtypes.float8_e4m3fn,
         "fp8_e4m3", "fp8_e4m3fn", "f8", "f8_e4m3fn", "float8", "float8_e4m3", "e4m3", "e4m3fn", safetensors="F8_E4M3"),
    _row("float8_e5m2", "fp8e5m2", 8, "float", ml_dtypes.float8_e5m2, "f8_e5m2", "e5m2", safetensors="F8_E5M2"),
    _row("int64", "i64", 64, "int", np.int64, "s64", "long", safetensors="I64"),
    _row("int32", "i32", 32, "int", np.int32, "s32", "int", safetensors="I32"),
    _row("int16", "i16", 16, "int", np.int16, "s16", "short", safetensors="I16"),
    _row("int8", "i8", 8, "int", np.int8, "s8", "Q8_0", safetensors="I8"),
    _row("uint64", "u64", 64, "uint", np.uint64, "ulong", safetensors="U64"),
    _row("uint32", "u32", 32, "uint", np.uint32, "uint", safetensors="U32"),
    _row("uint16", "u16", 16, "uint", np.uint16, "ushort", safetensors="U16"),
    _row("uint8", "u8", 8, "uint", np.uint8, "byte", safetensors="U8"),
    _row("int4", "i4", 4, "int", ml_dtypes.int4, "s4", "Q4_0"),
    _row("uint4", "u4", 4, "uint", ml_dtypes.uint4, "Q4_1"),
    _row("float4_e2m1fn", "fp4", 4, "float", ml_dtypes.float4_e2m1fn,
         "f4", "float4", "fp4_e2m1", "fp4_e2m1fn", "f4_e2m1", "float4_e2m1", "float4_e2m1fn_x2", "e2m1", "e2m1fn",
         safetensors="F4"),
    _row("int2", "i2", 2, "int", ml_dtypes.int2, "s2"),
    _row("uint2", "u2", 2, "uint", ml_dtypes.uint2),
    _row("ternary", "tern", 2, "ternary", np.int8, "trit", "b1.58"),
    _row("binary", "bin", 1, "binary", np.int8, "bit", "int1"),
)
"""The types of the engine, in the order of the numeric ids of the loom file formats (0 = float64 … 20 = binary)."""
# fmt: on


def _fold(text: str) -> str:
    return re.sub(r"[\s_.\-]", "", text.strip().lower().removeprefix("torch."))


def _spellings() -> dict[str, DType]:
    table: dict[str, DType] = {}
    for dtype in DTYPES:
        for text in (dtype.name, dtype.short, dtype.safetensors or dtype.name, *dtype.aliases):
            if table.setdefault(_fold(text), dtype) is not dtype:
                raise DTypeError(f"spelling {text!r} belongs to both {table[_fold(text)]} and {dtype}")
    return table


_SPELLINGS: Registry[DType] = Registry(group="volumetric.dtypes", own=_spellings(), spelled=_fold)
_ADDED: list[DType] = []


def add_dtype(dtype: DType) -> DType:
    """Add a type to those known to `parse_dtype`; see `tables.register_dtype`.

    Raises
    ------
    DTypeError : another type has one of its spellings
    """
    spellings, module = (dtype.name, dtype.short, *dtype.aliases), caller_module()
    for text in spellings:
        known = declared_dtype(text)
        again = known in _ADDED and known.name == dtype.name and _SPELLINGS.module_of(text) == module
        if known is not None and not again:
            raise DTypeError(f"{text!r} is a spelling of {known}", hint="choose another name")
    _ADDED[:] = [each for each in _ADDED if each.name != dtype.name]  # a notebook's cell may run again
    for text in spellings:
        _SPELLINGS.declare(text, dtype, module)
    _ADDED.append(dtype)
    return dtype


def declared_dtype(spelling: str) -> DType | None:
    """Return the type with that spelling, if it is known without importing packages."""
    return _SPELLINGS[spelling] if _SPELLINGS.is_declared(spelling) else None


def added_names() -> tuple[str, ...]:
    """Return the names added by packages: types, and others in the entry-point group of types."""
    declared = {name for name in _SPELLINGS.names() if name not in _SPELLINGS.own and not _SPELLINGS.is_declared(name)}
    return tuple(dict.fromkeys((*(dtype.name for dtype in _ADDED), *sorted(declared))))


def parse_dtype(spec: str | DType | np.dtype[Any] | type[Any]) -> DType:
    """Return the type that `spec` names.

    Parameters
    ----------
    spec : str, DType, numpy.dtype or scalar class
        ``"bf16"``, ``"FP8E4M3"``, ``"torch.float16"``, a safetensors tag such as ``"F8_E4M3"``, a GGUF type that is
        also a type here (``"Q4_0"``), ``np.float32``, ``np.dtype("int8")``, ``ml_dtypes.int4``, …

    Raises
    ------
    DTypeError
        No type has that name; the hint lists similar names.

    Examples
    --------
    >>> parse_dtype("FP8E4M3").name
    'float8_e4m3fn'
    >>> parse_dtype("i4") is parse_dtype("int4")
    True
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str):
        dtype = _SPELLINGS.get(spec)
    else:
        dtype = _from_numpy(spec)
    if dtype is None:
        raise DTypeError(f"unknown dtype {spec!r}", hint=_close_names(str(spec)))
    return dtype


def _from_numpy(spec: Any) -> DType | None:
    if isinstance(spec, np.dtype):
        return _dtype_by_name(spec)
    try:
        return _dtype_by_name(np.dtype(spec))
    except TypeError:
        return declared_dtype(str(spec))  # a torch.dtype prints as "torch.bfloat16"


@lru_cache(64)  # NumPy builds the name anew each time, and a model needs it for each of its tensors
def _dtype_by_name(spec: np.dtype[Any]) -> DType | None:
    name = spec.name
    return next((dtype for dtype in DTYPES if dtype.name == name), None)


def _close_names(text: str) -> str:
    """Return a hint with the types spelled most like `text`, or all types if none is similar."""
    known = {name: _SPELLINGS[name].name if _SPELLINGS.is_declared(name) else name for name in _SPELLINGS.names()}
    close = difflib.get_close_matches(_fold(text), known, n=4, cutoff=0.6)
    names = dict.fromkeys(known[spelling] for spelling in close)
    if names:
        return f"did you mean {' or '.join(names)}?"
    return f"the types are {', '.join((*(dtype.name for dtype in DTYPES), *added_names()))}"
