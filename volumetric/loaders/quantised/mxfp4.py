"""MXFP4 as in gpt-oss: stacks of experts in the format of OCP Microscaling Formats 1.0.

For a stack ``[count, out, in]``: ``…_blocks`` uint8 ``[count, out, in / 32, 16]``, in which byte j of a block has
element 2j in its low bits and 2j + 1 in its high ones, and ``…_scales`` uint8 ``[count, out, in / 32]``, exponents plus
127. The blocks of GGUF files hold the same numbers, with elements j and j + 16 in byte j and the scale before them:
reading reorders them and keeps them packed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import CheckpointError
from volumetric.dtypes import Packed, Scheme, from_gguf
from volumetric.dtypes.bits import unpack_codes
from volumetric.dtypes.blocks.format import packed_planes
from volumetric.loaders.hf_config import Config
from volumetric.loaders.quantised.quantised_source import (
    QuantisedMatrix,
    QuantisedWeights,
    entry_of,
    expect_shape,
    stems,
)
from volumetric.loaders.tensor_source import TensorSource

_BYTES = 16
"""Bytes of the codes of a block."""


def matrices(config: Config, source: TensorSource) -> QuantisedWeights:
    """Find the stacks of an MXFP4 checkpoint; errors as for `quantised.opened`."""
    del config  # lists modules that are not quantised, which the tensors also show
    return QuantisedWeights(matrices={f"{stem}.weight": _stack(source, stem) for stem in stems(source, "_blocks")})


def from_planes(codes: NDArray[np.uint8], exponents: NDArray[np.uint8]) -> Packed:
    """Return rows of codes ``[rows, k]`` and of exponents ``[rows, k / 32]`` as blocks of GGUF."""
    raw = [exponents.reshape(-1, 1), packed_planes(codes.reshape(exponents.size, 2 * _BYTES), 4, _BYTES)]
    return from_gguf(np.concatenate(raw, axis=1), "MXFP4", codes.shape)


def _stack(source: TensorSource, stem: str) -> QuantisedMatrix:
    blocks, scales = f"{stem}_blocks", f"{stem}_scales"
    for name in (blocks, scales):
        entry = entry_of(source, name)
        if entry.type != "U8":
            raise CheckpointError(f"tensor {name!r} is {entry.type}, expected U8")
    shape = source.entries[blocks].shape
    if len(shape) < 3 or shape[-1] != _BYTES or 0 in shape:
        raise CheckpointError(f"tensor {blocks!r} has shape {list(shape)}, expected blocks of {_BYTES} bytes")
    expect_shape(scales, source.entries[scales].shape, shape[:-1])
    groups = shape[-2]

    def rows(start: int, stop: int) -> Packed:
        each = source.packed_rows(blocks, start * groups, stop * groups).codes()
        exponents = source.packed_rows(scales, start, stop).codes()
        codes = unpack_codes(np.ascontiguousarray(each).view(np.uint32), 4, 2 * _BYTES)
        return from_planes(codes.reshape(stop - start, 32 * groups), exponents.reshape(stop - start, groups))

    return QuantisedMatrix(
        shape=(*shape[:-2], 32 * groups), scheme=Scheme.parse("mxfp4"), parts=(blocks, scales), rows=rows
    )
