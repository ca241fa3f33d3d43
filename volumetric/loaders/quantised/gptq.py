"""GPTQ (Frantar et al. 2022, arXiv 2210.17323), as AutoGPTQ and GPTQModel write it.

For a matrix ``[out, in]``: ``qweight`` int32 ``[in · bits / 32, out]``, codes of one output below each other, low bits
first; ``scales`` ``[groups, out]``; ``qzeros`` int32 ``[groups, out · bits / 32]``; ``g_idx`` int32 ``[in]``, the group
of each input. The first format (``checkpoint_format: "gptq"``) has 1 subtracted from each word's zero points; version 2
has them as they are. With ``desc_act`` inputs are in groups by activation and not by place: where that is so the matrix
is decoded to the type of its scales (`affine.ordered_matrix`), else it stays packed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.dtypes.bits import unpack_codes
from volumetric.errors import CheckpointError, UnsupportedError
from volumetric.loaders.hf_config import Config
from volumetric.loaders.quantised.affine import affine_matrix, ordered_matrix
from volumetric.loaders.quantised.base import (
    FLOATS,
    Matrix,
    Reading,
    array_of,
    decoded_note,
    expect_shape,
    groups_of,
    stems,
)
from volumetric.loaders.source import TensorSource

_WORDS = ("I32", "U32")


def matrices(config: Config, source: TensorSource) -> Reading:
    """Find the matrices of a GPTQ checkpoint; errors as for `quantised.opened`."""
    bits = config.integer("bits")
    if bits not in (2, 4, 8):
        raise UnsupportedError(
            f"{config.where}: GPTQ of {bits} bits is not supported",
            hint="2, 4 and 8 bits are; or open the original weights and give a dtype",
        )
    size = config.values.get("group_size", -1)
    if type(size) is not int or (size != -1 and size < 1):
        raise CheckpointError(
            f"{config.where}: group_size is {str(size)[:40]!r}, expected -1 or a whole number above 0"
        )
    config.require("checkpoint_format", "gptq", "gptq_v2")
    shift = 0 if config.values.get("checkpoint_format") == "gptq_v2" else 1
    found = {f"{stem}.weight": _matrix(source, stem, bits, max(size, 0), shift) for stem in stems(source, ".qweight")}
    plain = [name for name, matrix in found.items() if not matrix.scheme.has_scale]
    decoded_note("GPTQ", plain, "floats", "with desc_act a group is no run of neighbours")
    return Reading(matrices=found)


def _matrix(source: TensorSource, stem: str, bits: int, size: int, shift: int) -> Matrix:
    per = 32 // bits
    words = array_of(source, f"{stem}.qweight", types=_WORDS, axes=2)
    k, out = words.shape[0] * per, words.shape[1]
    size = 0 if size > k else size
    groups = groups_of(k, size)
    scales = array_of(source, f"{stem}.scales", types=FLOATS, axes=2)
    expect_shape(f"{stem}.scales", scales.shape, (groups, out))
    packed = array_of(source, f"{stem}.qzeros", types=_WORDS, axes=2)
    expect_shape(f"{stem}.qzeros", packed.shape, (groups, -(-out // per)))
    parts = tuple(f"{stem}.{name}" for name in ("qweight", "scales", "qzeros"))
    # Whole words are added to, as GPTQModel does: what it took from a zero of 0 came from the next code of the word.
    ones = np.uint32(sum(shift << (bits * i) for i in range(per)))
    zeros = unpack_codes(packed.view(np.uint32) + ones, bits, out).T

    def codes(start: int, stop: int) -> NDArray[np.uint8]:
        return unpack_codes(np.ascontiguousarray(words[:, start:stop].T).view(np.uint32), bits, k)

    index = _index(source, stem, k, groups)
    if index is not None:
        parts = (*parts, f"{stem}.g_idx")
        if not np.array_equal(index, np.arange(k) // (size or k)):
            return ordered_matrix((out, k), parts, codes, scales.T, zeros, index)
    return affine_matrix((out, k), bits, size, parts, codes, scales.T, zeros)


def _index(source: TensorSource, stem: str, k: int, groups: int) -> NDArray[Any] | None:
    """Group of each input, None where the checkpoint does not say."""
    name = f"{stem}.g_idx"
    if name not in source.entries:
        return None
    index = array_of(source, name, types=("I32", "I64"), axes=1)
    expect_shape(name, index.shape, (k,))
    if index.size and not (index.min() >= 0 and index.max() < groups):
        raise CheckpointError(f"tensor {name!r} names groups outside of 0 … {groups - 1}")
    return index
