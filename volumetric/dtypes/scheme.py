"""Scheme: a numeric type plus the scaling of its codes, with a text form such as ``int4:g32``.

The text form is ``dtype[:group][:sym|:asym][:scale dtype]``, where ``group`` is ``gN`` (one scale for each N neighbours
of a row), ``row`` (one for each row) or ``none``. Omitted parts take the defaults of `Scheme.default`; `str`
omits default parts: ``bfloat16``, ``int4:g32``, ``float8_e4m3fn:row``, ``int8:row:float32``. A block
format (`volumetric.dtypes.blocks`) is a whole scheme under its own name: ``q4_k``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from volumetric.base.errors import DTypeError
from volumetric.dtypes.blocks import BlockFormat, find_format
from volumetric.dtypes.registry import DType, added_names, parse_dtype

_GGUF = {"Q8_0": "int8:g32", "Q4_0": "int4:g32", "Q4_1": "uint4:g32"}
SPELLINGS = (
    "known: float32, float16, bfloat16 (bf16), fp8, fp4, "
    "int8:g32 (q8_0), int4:g32 (q4_0), uint4:g32 (q4_1), q4_k, q5_k, q6_k, q3_nl, "
    "int8, int4, int2, uint8, uint4, uint2, ternary, binary, …"
)
"""Spellings shown in hints; the documentation has all."""
_GGUF_PLAIN = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How real numbers become codes: value = scale · code (symmetric) or scale · code + offset (affine).

    Attributes
    ----------
    dtype : type of the codes
    group : None: no scale, a code is the value; 0: one scale for each row; n: one for each n neighbours along the last
        axis, where the last group of a row may be shorter
    symmetric : False if each scale comes with an offset. Exactly the unsigned types that have scales are affine: a
        signed code with an offset is an unsigned code with another offset, so one of the two is enough
    scale_dtype : float16, bfloat16 or float32 for scales and offsets; None exactly if `group` is
    blocks : the block format, which determines everything else; `dtype` is the nearest type, `group` None

    Raises
    ------
    DTypeError
        The parts do not go together.
    """

    dtype: DType
    group: int | None = None
    symmetric: bool = True
    scale_dtype: DType | None = None
    blocks: BlockFormat | None = None

    def __post_init__(self) -> None:
        if self.blocks is not None and (self.dtype is not self.blocks.dtype or self.group is not None):
            raise DTypeError(f"{self.blocks} is a whole scheme and takes no other type or group")
        if self.group is None:
            if self.scale_dtype is not None or not self.symmetric:
                raise DTypeError(f"{self.dtype} without groups has neither scale nor offset")
            return
        if self.group < 0:
            raise DTypeError(
                f"group size {self.group} is negative", hint="use 0 for one scale per row, None for no scale"
            )
        if self.dtype.is_float and self.dtype.bits >= 16:
            raise DTypeError(f"{self.dtype} takes no scale", hint=f"write {self.dtype.name!r} alone")
        if self.symmetric == (self.dtype.kind == "uint"):
            raise DTypeError(
                f"{self.dtype} codes are {'affine' if self.symmetric else 'symmetric'} when they have scales",
                hint=f"use {_counterpart(self.dtype)} instead",
            )
        if self.scale_dtype is None or self.scale_dtype.name not in ("float16", "bfloat16", "float32"):
            raise DTypeError(f"scales cannot be {self.scale_dtype}", hint="use float16, bfloat16 or float32")

    @staticmethod
    def default(dtype: DType | str) -> Scheme:
        """Return the scheme for a bare type name.

        Floats of 16 bits and more have no scale. float4, int8/4/2, uint8/4/2 and tables of at most 8 bits have a
        float16 scale for each 32; float8, wider integers and tables, ternary and binary a float32 scale for each row.
        Unsigned types have an offset as well.
        """
        dtype = parse_dtype(dtype)
        if dtype.is_float and dtype.bits >= 16:
            return Scheme(dtype=dtype)
        group = 32 if _has_small_codes(dtype) else 0
        return Scheme(dtype=dtype, group=group, symmetric=dtype.kind != "uint", scale_dtype=_default_scale_dtype(dtype))

    @staticmethod
    def parse(spec: str | Scheme | DType | type[object]) -> Scheme:
        """Return the scheme that `spec` describes.

        Parameters
        ----------
        spec : str, Scheme, DType or a type of NumPy
            ``"int4:g32"``, ``"q4_0"``, ``"bf16"``, ``"fp8"``, ``"i8:row:f32"``, ``"int4:g64:asym"`` (= ``uint4:g64``),
            ``"q4_k"``

        Raises
        ------
        DTypeError
            The text names no type, or the parts are incompatible.

        Examples
        --------
        >>> str(Scheme.parse("Q4_0")), str(Scheme.parse("i4:g64:asym")), str(Scheme.parse("bf16"))
        ('int4:g32', 'uint4:g64', 'bfloat16')
        """
        if isinstance(spec, Scheme):
            return spec
        if isinstance(spec, DType):
            return Scheme.default(spec)
        if isinstance(spec, (type, np.dtype)):  # np.float16, ml_dtypes.bfloat16
            spec = np.dtype(spec).name
        if not isinstance(spec, str):
            raise DTypeError(f"a scheme must be text, got {type(spec).__name__}")
        return _parse(spec)

    @property
    def has_scale(self) -> bool:
        """Whether codes are multiplied by a scale."""
        return self.group is not None or self.blocks is not None

    @property
    def has_offset(self) -> bool:
        """Whether codes have offsets in `Packed.offsets`; block formats hold theirs in the blocks."""
        return not self.symmetric

    @property
    def gguf_type(self) -> str | None:
        """Name of the GGUF tensor type that holds the same numbers, or None."""
        if self.blocks is not None:
            return self.blocks.gguf_type if self.blocks.in_gguf else None
        if self.group is None:
            return self.dtype.safetensors if self.dtype.safetensors in _GGUF_PLAIN else None
        return next((name for name, text in _GGUF.items() if text == str(self)), None)

    def words_per_row(self, k: int) -> int:
        """32-bit words in a row of `k` codes."""
        if self.blocks is not None:
            return -(-self.blocks.row_bytes(k) // 4)
        return -(-k * self.dtype.bits // 32)

    def groups_per_row(self, k: int) -> int:
        """Scales of a row of `k` codes."""
        if self.group is None or k == 0:
            return 0
        return -(-k // (self.group or k))

    def nbytes(self, shape: Sequence[int]) -> int:
        """Bytes of a packed tensor of this logical shape: padded payload, scales and offsets."""
        k = shape[-1] if shape else 1
        scale_bytes = self.scale_dtype.bits // 8 if self.scale_dtype else 0
        row = 4 * self.words_per_row(k) + self.groups_per_row(k) * scale_bytes * (2 if self.has_offset else 1)
        return prod(shape[:-1]) * row

    def bits_per_weight(self, shape: Sequence[int]) -> float:
        """Stored bits per element of a tensor of this logical shape, including padding, scales and offsets."""
        elements = prod(shape)
        return 8 * self.nbytes(shape) / elements if elements else float(self.dtype.bits)

    def __str__(self) -> str:
        if self.blocks is not None:
            return self.blocks.name
        parts = [self.dtype.name]
        if self.group is None:
            parts += [] if self.dtype.is_float and self.dtype.bits >= 16 else ["none"]
        else:
            parts.append(f"g{self.group}" if self.group else "row")
        if self.scale_dtype not in (None, _default_scale_dtype(self.dtype)):
            parts.append(self.scale_dtype.name)
        return ":".join(parts)

    def __repr__(self) -> str:
        return f"Scheme.parse({str(self)!r})"


def _has_small_codes(dtype: DType) -> bool:
    return dtype.name == "float4_e2m1fn" or (dtype.kind in ("int", "uint", "table") and dtype.bits <= 8)


@lru_cache(64)
def _default_scale_dtype(dtype: DType) -> DType:
    return parse_dtype("float16" if _has_small_codes(dtype) else "float32")


def _counterpart(dtype: DType) -> str:
    """The integer type of the same width and the other signedness."""
    return f"int{dtype.bits}" if dtype.kind == "uint" else f"uint{dtype.bits}"


def _spellings() -> str:
    """Valid spellings for hints, those of packages first."""
    added = added_names()
    return SPELLINGS.replace("known: ", f"known: {', '.join(added)}, ") if added else SPELLINGS


@lru_cache(1024)
def _parse(spec: str) -> Scheme:
    head, *modifiers = spec.strip().split(":")
    blocks = find_format(head)
    if blocks is not None:
        if modifiers:
            what = f"{blocks} is a whole scheme and takes no {':'.join(modifiers)!r}"
            raise DTypeError(what, hint=f"use {blocks} alone, or {blocks.dtype}:gN")
        return Scheme(dtype=blocks.dtype, blocks=blocks)
    try:
        dtype = parse_dtype(head)
    except DTypeError as error:
        if find_format(head) is not None:  # a package declares it; its module is imported now
            return _parse(spec)
        from volumetric.dtypes.file_types import dtype_name_of  # for names of types in other programs

        close = f"{error.hint} " if error.hint and error.hint.endswith("?") else ""
        raise DTypeError(str(error), hint=dtype_name_of(head) or close + _spellings()) from None
    if modifiers and re.fullmatch(r"q\d[_.\- ]?\d", head.strip().lower()):
        raise DTypeError(f"{head} is a whole scheme and takes no {':'.join(modifiers)!r}", hint=f"use {dtype}:gN")
    return _build(dtype, modifiers, spec)


def _build(dtype: DType, modifiers: list[str], text: str) -> Scheme:
    """Apply the parts after the type name to its default scheme."""
    base = Scheme.default(dtype)
    group, scale_dtype = base.group, base.scale_dtype
    for part in (modifier.strip().lower() for modifier in modifiers):
        if part == "none":
            group = None
        elif part in ("row", "channel"):
            group = 0
        elif match := re.fullmatch(r"g(\d+)", part):
            group = int(match[1])
        elif part in ("sym", "asym", "affine"):
            dtype = _with_symmetry(dtype, text, symmetric=part == "sym")
        else:
            scale_dtype = _parse_scale_dtype(part, text)
    if group is None:
        return Scheme(dtype=dtype)
    return Scheme(dtype=dtype, group=group, symmetric=dtype.kind != "uint", scale_dtype=scale_dtype)


def _parse_scale_dtype(part: str, text: str) -> DType:
    try:
        return parse_dtype(part)
    except DTypeError as error:
        raise DTypeError(
            f"{text!r}: invalid part {part!r}", hint="parts are gN, row, none, sym, asym, or the dtype of scales"
        ) from error


def _with_symmetry(dtype: DType, text: str, *, symmetric: bool) -> DType:
    if symmetric == (dtype.kind != "uint"):
        return dtype
    if dtype.kind not in ("int", "uint"):
        raise DTypeError(f"{text!r}: {dtype} has no affine form", hint="only integers take an offset")
    return parse_dtype(_counterpart(dtype))
