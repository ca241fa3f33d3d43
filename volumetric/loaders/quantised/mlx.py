"""MLX (mlx-lm): ``weight`` of 32-bit words, ``scales`` and ``biases`` for groups: value = scale · code + bias.

That is our unsigned scheme with offsets, bit for bit: the words are handed on as they lie in the file. Widths of 2, 3,
5 and 6 bits take the next wider codes that kernels read, with the same values. Single modules may have a group size and
width of their own.
"""

from __future__ import annotations

from volumetric.dtypes import Packed
from volumetric.errors import CheckpointError
from volumetric.loaders.hf_config import Config
from volumetric.loaders.quantised.base import (
    FLOATS,
    Matrix,
    Reading,
    array_of,
    dense_codes,
    expect_shape,
    groups_of,
    held_scales,
    holder,
    pack,
    scheme_of,
    stems,
)
from volumetric.loaders.source import TensorSource

_WIDTHS = (2, 3, 4, 5, 6, 8)


def matrices(config: Config, source: TensorSource) -> Reading:
    """Find the matrices of an MLX checkpoint; errors as for `quantised.opened`."""
    found: dict[str, Matrix] = {}
    for stem in stems(source, ".scales"):
        own = config.values.get(stem)
        settings = Config({**config.values, **own}, f"{config.where}: {stem}") if isinstance(own, dict) else config
        settings.require("mode", "affine")
        bits, size = settings.integer("bits"), settings.integer("group_size")
        if bits not in _WIDTHS:
            raise CheckpointError(f"{settings.where}: bits is {bits}, expected one of {_WIDTHS}")
        found[f"{stem}.weight"] = _matrix(source, stem, bits, size)
    return Reading(matrices=found)


def _matrix(source: TensorSource, stem: str, bits: int, size: int) -> Matrix:
    parts = tuple(f"{stem}.{name}" for name in ("weight", "scales", "biases"))
    words = array_of(source, parts[0], types=("U32",), axes=2)
    scales, biases = (array_of(source, name, types=FLOATS, axes=2) for name in parts[1:])
    out, k = words.shape[0], words.shape[1] * 32 // bits
    for name, array in zip(parts[1:], (scales, biases), strict=True):
        expect_shape(name, array.shape, (out, groups_of(k, size)))
    if scales.dtype != biases.dtype:
        raise CheckpointError(f"{stem}: scales are {scales.dtype} and biases {biases.dtype}")
    scales, biases = held_scales(scales, biases), held_scales(biases, scales)
    scheme = scheme_of(holder(bits), size, scales.dtype)

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
    return Matrix(shape=(out, k), scheme=scheme, parts=parts, rows=view if same else rows)
