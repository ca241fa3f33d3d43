"""GPTQ (Frantar et al. 2022, arXiv 2210.17323), as AutoGPTQ and GPTQModel write it.

For a matrix ``[out, in]``: ``qweight`` int32 ``[in · bits / 32, out]``, codes of one output below each other, low bits
first; ``scales`` ``[groups, out]``; ``qzeros`` int32 ``[groups, out · bits / 32]``; ``g_idx`` int32 ``[in]``, the group
of each input. The first format (``checkpoint_format: "gptq"``) has 1 subtracted from each word's zero points; version 2
stores them unchanged. With ``desc_act`` inputs are grouped by activation and not by position: these matrices are
decoded to the type of their scales (`affine.matrix_with_order`), others stay packed.

GPTQModel's ``dynamic`` sets bits and group size of modules whose names match a pattern. The shapes of the tensors of a
module determine its bits (from the packed zero points) and group size (from the number of groups).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.dtypes.bits import unpack_codes
from volumetric.loaders.hf_config import Config
from volumetric.loaders.quantised.affine import affine_matrix, matrix_with_order
from volumetric.loaders.quantised.quantised_source import (
    FLOATS,
    QuantisedMatrix,
    QuantisedWeights,
    array_of,
    expect_shape,
    groups_of,
    log_decoded,
    stems,
)
from volumetric.loaders.tensor_source import TensorSource

_WORDS = ("I32", "U32")
_PARTS = ("qweight", "qzeros", "scales")


def matrices(config: Config, source: TensorSource) -> QuantisedWeights:
    """Find the matrices of a GPTQ checkpoint; errors as for `quantised.opened`."""
    choices = _choices(config)
    config.require("checkpoint_format", "gptq", "gptq_v2")
    shift = 0 if config.values.get("checkpoint_format") == "gptq_v2" else 1
    weights = {f"{stem}.weight": _matrix(source, stem, choices, shift) for stem in stems(source, ".qweight")}
    plain = [name for name, matrix in weights.items() if not matrix.scheme.has_scale]
    log_decoded("GPTQ", plain, "floats", "with desc_act a group is not contiguous")
    return QuantisedWeights(matrices=weights)


def _choices(config: Config) -> list[tuple[int, int]]:
    """Possible bits and group sizes of modules, 0 for whole rows; the default ones first."""
    usual = (_width(config, None), _size(config, None))
    dynamic = config.section("dynamic") or Config({}, config.where)
    patterns = (name for name in dynamic.values if not name.startswith("-:"))  # those modules are not quantised
    sections = (dynamic.section(name) for name in patterns)
    own = [(_width(section, usual[0]), _size(section, usual[1])) for section in sections if section is not None]
    return list(dict.fromkeys([usual, *own]))


def _width(config: Config, usual: int | None) -> int:
    bits = config.integer("bits", usual)
    if bits not in (2, 4, 8):
        raise UnsupportedError(
            f"{config.where}: GPTQ of {bits} bits is not supported",
            hint="supported: 2, 4 and 8 bits; or open the original weights with a dtype",
        )
    return bits


def _size(config: Config, usual: int | None) -> int:
    size = config.values.get("group_size", -1 if usual is None else usual or -1)
    if type(size) is not int or (size != -1 and size < 1):
        raise CheckpointError(
            f"{config.where}: group_size is {str(size)[:40]!r}, expected -1 or a whole number above 0"
        )
    return max(size, 0)


def _choice_of_module(source: TensorSource, stem: str, choices: list[tuple[int, int]]) -> tuple[int, int]:
    """Bits and group size of a module: the first choice that fits its tensors, else the default."""
    for bits, size in choices:
        shapes = [source.entries[name].shape for n in _PARTS if (name := f"{stem}.{n}") in source.entries]
        if len(shapes) != len(_PARTS) or any(len(shape) != 2 for shape in shapes):
            break  # the reader of the tensors reports the mismatch
        (rows, out), (_, zeros), (groups, _) = shapes
        k, index = rows * 32 // bits, source.entries.get(f"{stem}.g_idx")
        fits = zeros == -(-out * bits // 32) and groups == groups_of(k, size)
        if fits and (index is None or index.shape == (k,)):
            return bits, size
    return choices[0]


def _matrix(source: TensorSource, stem: str, choices: list[tuple[int, int]], shift: int) -> QuantisedMatrix:
    bits, size = _choice_of_module(source, stem, choices)
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
    # Addition on whole words, as in GPTQModel: its subtraction from a zero of 0 borrowed from the next code.
    ones = np.uint32(sum(shift << (bits * i) for i in range(per)))
    zeros = unpack_codes(packed.view(np.uint32) + ones, bits, out).T

    def codes(start: int, stop: int) -> NDArray[np.uint8]:
        return unpack_codes(np.ascontiguousarray(words[:, start:stop].T).view(np.uint32), bits, k)

    index = _index(source, stem, k, groups)
    if index is not None:
        parts = (*parts, f"{stem}.g_idx")
        if not np.array_equal(index, np.arange(k) // (size or k)):
            return matrix_with_order((out, k), parts, codes, scales.T, zeros, index)
    return affine_matrix((out, k), bits, size, parts, codes, scales.T, zeros)


def _index(source: TensorSource, stem: str, k: int, groups: int) -> NDArray[Any] | None:
    """Group of each input, None if the checkpoint does not contain it."""
    name = f"{stem}.g_idx"
    if name not in source.entries:
        return None
    index = array_of(source, name, types=("I32", "I64"), axes=1)
    expect_shape(name, index.shape, (k,))
    if index.size and not (index.min() >= 0 and index.max() < groups):
        raise CheckpointError(f"tensor {name!r} has groups outside 0 … {groups - 1}")
    return index
