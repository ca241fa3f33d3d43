"""Block formats: those of GGUF except Q8_0, Q4_0 and Q4_1, stored byte for byte, and Q3_NL. Each is a scheme."""

from __future__ import annotations

from types import MappingProxyType

from volumetric.base.errors import DTypeError
from volumetric.dtypes.blocks.five_bit import Q5_0, Q5_1
from volumetric.dtypes.blocks.format import BlockFormat, Fields
from volumetric.dtypes.blocks.four_bit import IQ4_NL, IQ4_XS, MXFP4
from volumetric.dtypes.blocks.k_quants import Q2_K, Q3_K, Q4_K, Q5_K, Q6_K
from volumetric.dtypes.blocks.ternaries import TQ1_0, TQ2_0
from volumetric.dtypes.blocks.three_bit import Q3_NL
from volumetric.dtypes.registry import declared_dtype

BLOCK_FORMATS = MappingProxyType(
    {each.name: each for each in (Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q5_0, Q5_1, IQ4_NL, IQ4_XS, MXFP4, TQ1_0, TQ2_0)}
)
"""Name → format, for those in GGUF."""

OWN_FORMATS = MappingProxyType({Q3_NL.name: Q3_NL})
"""Name → format, for those not in GGUF."""


def find_format(name: str) -> BlockFormat | None:
    """Return the block format of that name, or None; case and ``_ - .`` do not matter."""
    folded = name.strip().lower().translate(_DROPPED)
    return _FOLDED.get(folded)


def named_format(name: str) -> BlockFormat:
    """Return the block format of exactly that name."""
    return _ALL[name]


def register_format(form: BlockFormat) -> BlockFormat:
    """Register a block format as a scheme under its name; devices without a kernel for it compute with decoded values.

    Raises
    ------
    DTypeError : a format or a numeric type already has the name
    """
    folded = form.name.strip().lower().translate(_DROPPED)
    if folded in _FOLDED:
        raise DTypeError(f"block format {form.name!r} already exists", hint="choose another name")
    dtype = declared_dtype(form.name)
    if dtype is not None:
        raise DTypeError(f"{form.name!r} is a spelling of {dtype}", hint="choose another name")
    _ALL[form.name] = _FOLDED[folded] = form
    return form


_DROPPED = str.maketrans("", "", "_-. ")
_ALL = {**BLOCK_FORMATS, **OWN_FORMATS}
_FOLDED = {name.translate(_DROPPED): each for name, each in _ALL.items()}

__all__ = ["BLOCK_FORMATS", "OWN_FORMATS", "BlockFormat", "Fields", "find_format", "named_format", "register_format"]
