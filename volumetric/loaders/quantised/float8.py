"""float8 weights with scales: for the whole tensor, for each row, or for each block of rows and columns.

``weight`` is F8_E4M3 or F8_E5M2 ``[out, in]``; its scales are called ``weight_scale_inv`` (quant_method ``fp8``,
DeepSeek's; despite its name a factor) or ``weight_scale`` (``fbgemm_fp8``, and compressed-tensors). All of them are
kept exactly: a scale for each row, or for each group of columns; scales of a block or tensor are repeated for each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import CheckpointError
from volumetric.dtypes import Packed
from volumetric.dtypes.registry import parse_dtype
from volumetric.loaders.hf_config import Config
from volumetric.loaders.quantised.quantised_source import (
    FLOATS,
    QuantisedMatrix,
    QuantisedWeights,
    array_of,
    entry_of,
    expect_shape,
    groups_of,
    pack,
    scheme_of,
)
from volumetric.loaders.tensor_source import TensorSource

TYPES = ("F8_E4M3", "F8_E5M2")
_SCALES = ("_scale_inv", "_scale")
ACTIVATIONS = (
    ".input_scale",
    ".activation_scale",
    ".input_scale_ub",
    "_scale_ub",
    ".output_scale",
    ".k_scale",
    ".v_scale",
)
"""Suffixes of the scales of activations and KV caches: activations are not rounded to float8 here."""


def matrices(config: Config, source: TensorSource) -> QuantisedWeights:
    """Find the matrices of a float8 checkpoint; errors as for `quantised.opened`."""
    block = config.items("weight_block_size", 2)
    if block is not None and not all(type(size) is int and size > 0 for size in block):
        raise CheckpointError(f"{config.where}: weight_block_size is {str(block)[:40]}, expected two sizes above 0")
    weights = {
        name: float8_matrix(source, name, name + ending, block=None if block is None else (block[0], block[1]))
        for name, entry in source.entries.items()
        for ending in _SCALES
        if entry.type in TYPES and name + ending in source.entries
    }
    return QuantisedWeights(matrices=weights, ignored=activation_scales(source))


def activation_scales(source: TensorSource) -> tuple[str, ...]:
    """Names of tensors that scale activations."""
    return tuple(name for name in source.entries if name.endswith(ACTIVATIONS))


def float8_matrix(source: TensorSource, name: str, scale: str, *, block: tuple[int, int] | None) -> QuantisedMatrix:
    """Return a float8 matrix with its scales.

    Parameters
    ----------
    name, scale : the tensors
    block : rows and columns that share a scale, if scales form a grid; None: derived from their shape, one scale for
        the tensor, for each row, or for each of equal groups of columns
    """
    entry = entry_of(source, name)
    if len(entry.shape) != 2:
        raise CheckpointError(f"tensor {name!r} of shape {list(entry.shape)} is not a matrix")
    out, k = entry.shape
    scales = array_of(source, scale, types=FLOATS)
    spread, group = _spread_scales(scale, scales, (out, k), block)
    scheme = scheme_of(parse_dtype(entry.type).name, group, scales.dtype)

    def rows(start: int, stop: int) -> Packed:
        codes = source.packed_rows(name, start, stop).codes()
        return pack(scheme, k, codes, spread(start, stop))

    return QuantisedMatrix(shape=(out, k), scheme=scheme, parts=(name, scale), rows=rows)


def _spread_scales(name: str, scales: NDArray[Any], shape: tuple[int, int], block: tuple[int, int] | None) -> Any:
    """Reader of the scales of rows ``start:stop``, ``[rows, groups]``; and columns of a group, 0 for all."""
    out, k = shape
    if scales.size == 1:
        return (lambda start, stop: np.full((stop - start, 1), scales.reshape(())[()])), 0
    if scales.shape in ((out,), (out, 1)):
        return (lambda start, stop: scales.reshape(out, 1)[start:stop]), 0
    if block is None:
        groups = scales.shape[-1]
        expect_shape(name, scales.shape, (out, groups))
        if not groups or k % groups:
            raise CheckpointError(f"tensor {name!r} has {groups} scales for rows of {k}")
        return (lambda start, stop: scales[start:stop]), k // groups
    high, wide = block
    expect_shape(name, scales.shape, (groups_of(out, high), groups_of(k, wide)))
    return (lambda start, stop: scales[np.arange(start, stop) // high]), wide
