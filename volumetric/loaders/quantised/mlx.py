"""MLX (mlx-lm): ``weight`` of 32-bit words, ``scales`` and ``biases`` for groups: value = scale · code + bias.

That is our unsigned scheme with offsets, bit for bit: the words of the file are used directly. Widths of 2, 3, 5 and 6
bits are widened to the next codes that kernels support, with the same values. Single modules may have another mode,
group size and width.

Modes other than ``affine`` have floats for codes, no biases, and bytes for scales (OCP Microscaling Formats 1.0):
``mxfp4`` are the blocks of GGUF in another order, see `mxfp4`; ``nvfp4`` has groups of 16 with scales of
float8_e4m3fn, and ``mxfp8`` codes of float8_e4m3fn in groups of 32 with powers of two.
"""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np

from volumetric.base.errors import CheckpointError
from volumetric.dtypes import Packed, Scheme
from volumetric.loaders.hf_config import Config
from volumetric.loaders.quantised.mxfp4 import from_planes
from volumetric.loaders.quantised.quantised_source import (
    FLOATS,
    QuantisedMatrix,
    QuantisedWeights,
    array_of,
    code_dtype,
    common_float_scales,
    dense_codes,
    expect_shape,
    groups_of,
    pack,
    scheme_of,
    stems,
)
from volumetric.loaders.tensor_source import TensorSource

_WIDTHS = (2, 3, 4, 5, 6, 8)
_FLOATS: Final = {
    "mxfp4": Scheme.parse("mxfp4"),
    "nvfp4": Scheme.parse("float4_e2m1fn:g16:float16"),
    "mxfp8": Scheme.parse("float8_e4m3fn:g32:float32"),
}
"""Mode → scheme with exactly the same values."""
_BLOCK: Final = 32
"""Elements of a block of MXFP4."""


def matrices(config: Config, source: TensorSource) -> QuantisedWeights:
    """Find the matrices of an MLX checkpoint; errors as for `quantised.opened`."""
    weights: dict[str, QuantisedMatrix] = {}
    for stem in stems(source, ".scales"):
        own = config.values.get(stem)
        # A module with its own settings does not inherit the global mode.
        values = {**config.values, "mode": "affine", **own} if isinstance(own, dict) else config.values
        settings = Config(values, f"{config.where}: {stem}" if isinstance(own, dict) else config.where)
        settings.require("mode", "affine", *_FLOATS)
        mode = settings.values.get("mode") or "affine"
        bits, size = settings.integer("bits"), settings.integer("group_size")
        if mode != "affine":
            weights[f"{stem}.weight"] = _float_matrix(source, stem, settings, _FLOATS[mode], (bits, size))
            continue
        if bits not in _WIDTHS:
            raise CheckpointError(f"{settings.where}: bits is {bits}, expected one of {_WIDTHS}")
        weights[f"{stem}.weight"] = _matrix(source, stem, bits, size)
    return QuantisedWeights(matrices=weights)


def _float_matrix(
    source: TensorSource, stem: str, settings: Config, scheme: Scheme, bits_and_group: tuple[int, int]
) -> QuantisedMatrix:
    """Matrix of float codes with a one-byte scale for each group."""
    size, bits = scheme.group or _BLOCK, scheme.dtype.bits
    if bits_and_group != (bits, size):
        raise CheckpointError(
            f"{settings.where}: bits and group_size are {bits_and_group}, expected {(bits, size)} in this mode"
        )
    parts = (f"{stem}.weight", f"{stem}.scales")
    words, scales = (
        array_of(source, parts[0], types=("U32",), axes=2),
        array_of(source, parts[1], types=("U8",), axes=2),
    )
    out, k = words.shape[0], words.shape[1] * 32 // bits
    expect_shape(parts[1], scales.shape, (out, k // size))

    def rows(start: int, stop: int) -> Packed:
        own = scales[start:stop]
        if scheme.blocks is not None:
            return from_planes(dense_codes(words[start:stop], bits, k), own)
        values = (
            own.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
            if bits == 4
            else np.ldexp(np.float32(1), own.astype(np.int32) - 127)
        )
        codes = dense_codes(words[start:stop], bits, k)
        return pack(scheme, k, codes if bits == 4 else codes.view(ml_dtypes.float8_e4m3fn), values)

    return QuantisedMatrix(shape=(out, k), scheme=scheme, parts=parts, rows=rows)


def _matrix(source: TensorSource, stem: str, bits: int, size: int) -> QuantisedMatrix:
    """Return an affine matrix of MLX: codes of `bits` bits, a scale and a bias for each `size` of them."""
    parts = tuple(f"{stem}.{name}" for name in ("weight", "scales", "biases"))
    words = array_of(source, parts[0], types=("U32",), axes=2)
    scales, biases = (array_of(source, name, types=FLOATS, axes=2) for name in parts[1:])
    out, k = words.shape[0], words.shape[1] * 32 // bits
    for name, array in zip(parts[1:], (scales, biases), strict=True):
        expect_shape(name, array.shape, (out, groups_of(k, size)))
    if scales.dtype != biases.dtype:
        raise CheckpointError(f"{stem}: scales are {scales.dtype} and biases {biases.dtype}")
    scales, biases = common_float_scales(scales, biases), common_float_scales(biases, scales)
    scheme = scheme_of(code_dtype(bits), size, scales.dtype)

    def rows(start: int, stop: int) -> Packed:
        return pack(scheme, k, dense_codes(words[start:stop], bits, k), scales[start:stop], biases[start:stop])

    def view(start: int, stop: int) -> Packed:
        return Packed(
            scheme=scheme,
            shape=(stop - start, k),
            payload=words[start:stop],
            scales=scales[start:stop],
            offsets=biases[start:stop],
        )

    same = bits == scheme.dtype.bits
    return QuantisedMatrix(shape=(out, k), scheme=scheme, parts=parts, rows=view if same else rows)
