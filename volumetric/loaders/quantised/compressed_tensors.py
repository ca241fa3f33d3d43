"""compressed-tensors, the format of LLM Compressor and vLLM: packed or plain integers, and float8.

- ``pack-quantized``: ``weight_packed`` int32 ``[out, in · bits / 32]`` of codes + 2^(bits − 1), low bits first;
  ``weight_shape``; ``weight_scale`` ``[out, groups]``; if not symmetric ``weight_zero_point``, packed in the same way
  along the outputs; with ``actorder: group`` also ``weight_g_idx``, the group of each input.
- ``int-quantized`` and ``naive-quantized``: ``weight`` int8, ``weight_scale`` and, not symmetric, int8 zero points.
- ``float-quantized`` and ``naive-quantized``: ``weight`` float8, see `float8`.

The tensors of a module determine its format, so checkpoints that mix formats are supported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.loaders.hf_config import Config
from volumetric.loaders.quantised.affine import affine_matrix, matrix_with_order
from volumetric.loaders.quantised.float8 import TYPES, activation_scales, float8_matrix
from volumetric.loaders.quantised.quantised_source import (
    FLOATS,
    QuantisedMatrix,
    QuantisedWeights,
    array_of,
    dense_codes,
    entry_of,
    expect_shape,
    log_decoded,
    stems,
)
from volumetric.loaders.tensor_source import TensorSource

_FORMATS = ("pack-quantized", "int-quantized", "naive-quantized", "float-quantized", "mixed-precision", "dense")


def matrices(config: Config, source: TensorSource) -> QuantisedWeights:
    """Find the matrices of a compressed-tensors checkpoint; errors as for `quantised.opened`."""
    kinds = {"format of the checkpoint": config.values.get("format")}
    groups = config.section("config_groups")
    sections = [] if groups is None else [groups.section(name) for name in groups.values]
    kinds |= {section.where: section.values.get("format") for section in sections if section is not None}
    for where, kind in kinds.items():
        if kind is not None and kind not in _FORMATS:
            raise UnsupportedError(
                f"{config.where}: {where}: compressed-tensors in the format {str(kind)[:40]} is not supported",
                hint=f"supported: {', '.join(_FORMATS)}; or open the original weights with a dtype",
            )
    sparsity = config.section("sparsity_config")
    if sparsity is not None:
        sparsity.require("format", "dense")
    widths = {_bits(section) for section in sections if section is not None} - {None}
    weights: dict[str, QuantisedMatrix] = {}
    for stem in stems(source, ".weight_packed"):
        weights[f"{stem}.weight"] = _packed_matrix(source, stem, widths)
    for stem in stems(source, ".weight_scale"):
        name = f"{stem}.weight"
        if name not in weights:
            weights[name] = _plain_matrix(source, stem, _block(sections))
    ordered = [name for name, matrix in weights.items() if not matrix.scheme.has_scale]
    log_decoded("compressed-tensors", ordered, "floats", "with actorder a group is not contiguous")
    return QuantisedWeights(matrices=weights, ignored=activation_scales(source))


def _bits(section: Config) -> int | None:
    weights = section.section("weights")
    return None if weights is None else weights.integer("num_bits", 4, high=8)


def _block(sections: list[Config | None]) -> tuple[int, int] | None:
    """Rows and columns of a block, if some group of modules has block scales."""
    for section in sections:
        weights = None if section is None else section.section("weights")
        block = None if weights is None else weights.items("block_structure", 2)
        if block is not None:
            if not all(type(size) is int and size > 0 for size in block):
                raise CheckpointError(f"{weights.where if weights else ''}: block_structure is {str(block)[:40]}")
            return block[0], block[1]
    return None


def _packed_matrix(source: TensorSource, stem: str, widths: set[int | None]) -> QuantisedMatrix:
    """Return the matrix of a ``weight_packed`` tensor: codes of one of `widths` bits, packed in 32-bit words."""
    parts = [f"{stem}.{name}" for name in ("weight_packed", "weight_scale", "weight_shape")]
    words = array_of(source, parts[0], types=("I32", "U32"), axes=2)
    scales = array_of(source, parts[1], types=FLOATS, axes=2)
    shape = array_of(source, parts[2], types=("I64", "I32"), axes=1)
    out, width = words.shape
    if shape.size != 2 or shape[0] != out or shape[1] < 1:
        raise CheckpointError(
            f"tensor {parts[2]!r} has the shape {shape.tolist()[:4]}, but {parts[0]!r} is {list(words.shape)}"
        )
    k = int(shape[1])
    bits = [bits for bits in sorted(w for w in widths if w) if -(-k * bits // 32) == width]
    if not bits:
        raise CheckpointError(
            f"tensor {parts[0]!r} has {width} words in a row for {k} codes of {sorted(map(str, widths))} bits"
        )
    groups, zeros = scales.shape[1], None
    expect_shape(parts[1], scales.shape, (out, groups))
    if not groups or (groups > 1 and k % groups):
        raise CheckpointError(f"tensor {parts[1]!r} has {groups} scales for rows of {k}")
    name = f"{stem}.weight_zero_point"
    if name in source.entries:
        packed = array_of(source, name, types=("I32", "U32"), axes=2)
        expect_shape(name, packed.shape, (-(-out * bits[0] // 32), groups))
        zeros = dense_codes(packed.T, bits[0], out).T
        parts.append(name)

    def codes(start: int, stop: int) -> NDArray[np.uint8]:
        return dense_codes(words[start:stop], bits[0], k)

    size = k // groups if groups > 1 else 0
    index = f"{stem}.weight_g_idx"
    if index in source.entries:
        parts.append(index)
        order = array_of(source, index, types=("I32", "I64"), axes=1)
        expect_shape(index, order.shape, (k,))
        if not (order == -1).all() and not np.array_equal(order, np.arange(k) // (size or k)):
            if order.min() < 0 or order.max() >= groups:
                raise CheckpointError(f"tensor {index!r} has groups outside 0 … {groups - 1}")
            middle = np.full_like(scales, 1 << (bits[0] - 1)) if zeros is None else zeros
            return matrix_with_order((out, k), tuple(parts), codes, scales, middle, order)
    return affine_matrix((out, k), bits[0], size, tuple(parts), codes, scales, zeros)


def _plain_matrix(source: TensorSource, stem: str, block: tuple[int, int] | None) -> QuantisedMatrix:
    """Return the matrix of an int8 or float8 ``weight`` tensor with scales; a `block` shares one scale."""
    name, scale = f"{stem}.weight", f"{stem}.weight_scale"
    entry = entry_of(source, name)
    if entry.type in TYPES:
        return float8_matrix(
            source, name, scale, block=block if entry_of(source, scale).shape != (entry.shape[0], 1) else None
        )
    if entry.type != "I8" or len(entry.shape) != 2:
        raise UnsupportedError(
            f"tensor {name!r} is {entry.type} {list(entry.shape)} with scales, which is not supported",
            hint="supported: int8 and float8 matrices, and packed integers",
        )
    out, k = entry.shape
    scales = array_of(source, scale, types=FLOATS)
    scales = np.broadcast_to(scales.reshape(1, 1), (out, 1)) if scales.size == 1 else scales
    groups = scales.shape[-1] if scales.ndim == 2 else 0
    expect_shape(scale, scales.shape, (out, groups))
    if not groups or k % groups:
        raise CheckpointError(f"tensor {scale!r} has {groups} scales for rows of {k}")
    parts, zeros = [name, scale], None
    zero = f"{stem}.weight_zero_point"
    if zero in source.entries:
        zero_points: NDArray[Any] = array_of(source, zero, types=("I8",))
        zero_points = np.broadcast_to(zero_points.reshape(1, 1), (out, 1)) if zero_points.size == 1 else zero_points
        expect_shape(zero, zero_points.shape, (out, groups))
        zeros = zero_points.astype(np.int16) + 128
        parts.append(zero)

    def codes(start: int, stop: int) -> NDArray[np.uint8]:
        return source.packed_rows(name, start, stop).codes().view(np.uint8) ^ np.uint8(128)

    return affine_matrix((out, k), 8, k // groups if groups > 1 else 0, tuple(parts), codes, scales, zeros)
