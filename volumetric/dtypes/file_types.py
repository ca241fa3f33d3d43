"""Names of other programs for the numeric types of whole models, and what to write here instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_MIXTURES: Final[Mapping[str, tuple[str, float]]] = {
    "q2k": ("q2_k", 3.2),
    "q2ks": ("q2_k", 3.0),
    "q3ks": ("q3_k", 3.6),
    "q3km": ("q3_k", 4.0),
    "q3kl": ("q3_k", 4.3),
    "q4ks": ("q4_k", 4.7),
    "q4km": ("q4_k", 4.9),
    "q5ks": ("q5_k", 5.6),
    "q5km": ("q5_k", 5.7),
    "iq2xxs": ("q2_k", 2.4),
    "iq2xs": ("q2_k", 2.6),
    "iq2s": ("q2_k", 2.7),
    "iq2m": ("q2_k", 2.9),
    "iq3xxs": ("q3_k", 3.3),
    "iq3xs": ("q3_k", 3.5),
    "iq3s": ("q3_k", 3.7),
    "iq3m": ("q3_k", 3.8),
}
"""llama.cpp's file types, folded, that mix types by tensor → the type of most of their matrices, or the nearest one
here; and the bits a weight of an 8B model (llama.cpp, tools/quantize/README.md)."""

_BITS: Final = re.compile(r"(?:int|load[_-]?in[_-]?|bnb[_-]?|w)?[_-]?(16|[248])[_-]?(?:bits?)|bnb[_-]?([48])")
_OTHERS: Final[Mapping[str, str]] = {
    "auto": "weights stay as they are stored unless a type is given: leave it out",
    "none": "weights stay as they are stored unless a type is given: leave it out",
    "nf4": "such a checkpoint is read as it is; to round weights to 4 bits: fp4, int4 or q4_k",
    "awq": "such a checkpoint is read as it is, and needs no type; to round weights to 4 bits: int4 or q4_k",
    "gptq": "such a checkpoint is read as it is, and needs no type; to round weights to 4 bits: int4 or q4_k",
    **dict.fromkeys(
        ("iq1s", "iq1m"), "q2_k is the smallest type here for weights that were not trained as ternary ones"
    ),
    "w4a16": "weights of 4 bits: int4 or q4_k",
    "w8a8": "weights of 8 bits: int8; activations are rounded to 8 bits with --compute int8",
    "w8a16": "weights of 8 bits: int8",
    "nvfp4": "4-bit floats here: mxfp4, or fp4",
    "tf32": "weights are held as float32",
}


def dtype_name_of(text: str) -> str | None:
    """Return what to write instead of another program's name, None if it is none of these names.

    Examples
    --------
    >>> dtype_name_of("8bit")
    'weights of 8 bits: int8'
    """
    plain = text.strip().lower()
    folded = re.sub(r"[\s_.\-]", "", plain)
    if folded in _MIXTURES:
        nearest, bits = _MIXTURES[folded]
        return (
            f"{text.strip()} is a file type of llama.cpp, which mixes types by tensor: {nearest} for all of them, or "
            f"about its size with types chosen by what a text loses: convert --bits {bits} --calibrate TEXT"
        )
    bits = _BITS.fullmatch(plain)
    if bits is not None:
        number = bits[1] or bits[2]
        kinds = {"16": "bf16 or float16", "8": "int8", "4": "int4 or q4_k", "2": "q2_k or int2"}
        return f"weights of {number} bits: {kinds[number]}"
    return _OTHERS.get(folded)
