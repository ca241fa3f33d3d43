"""AWQ (Lin et al. 2023, arXiv 2306.00978) in the layout of its GEMM kernel, which AutoAWQ writes.

For a matrix ``[out, in]``: ``qweight`` int32 ``[in, out / 8]``, ``qzeros`` int32 ``[groups, out / 8]`` and ``scales``
``[groups, out]``. The eight codes of a word belong to outputs 0, 2, 4, 6, 1, 3, 5, 7 of its eight, low bits first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.dtypes.bits import unpack_codes
from volumetric.loaders.hf_config import Config
from volumetric.loaders.quantised.affine import affine_matrix
from volumetric.loaders.quantised.quantised_source import (
    FLOATS,
    QuantisedMatrix,
    QuantisedWeights,
    array_of,
    expect_shape,
    groups_of,
    stems,
)
from volumetric.loaders.tensor_source import TensorSource

_PLACE = np.array([0, 4, 1, 5, 2, 6, 3, 7])
"""Position in a word of the code of output 0 … 7."""
_WORDS = ("I32", "U32")


def matrices(config: Config, source: TensorSource) -> QuantisedWeights:
    """Find the matrices of an AWQ checkpoint; errors as for `quantised.opened`."""
    config.require("bits", 4)
    config.require("version", "gemm", "GEMM")
    size = config.integer("group_size", 128)
    return QuantisedWeights(
        matrices={f"{stem}.weight": _matrix(source, stem, size) for stem in stems(source, ".qweight")}
    )


def _matrix(source: TensorSource, stem: str, size: int) -> QuantisedMatrix:
    words = array_of(source, f"{stem}.qweight", types=_WORDS, axes=2)
    k, out = words.shape[0], 8 * words.shape[1]
    groups = groups_of(k, size)
    scales = array_of(source, f"{stem}.scales", types=FLOATS, axes=2)
    expect_shape(f"{stem}.scales", scales.shape, (groups, out))
    zeros = array_of(source, f"{stem}.qzeros", types=_WORDS, axes=2)
    expect_shape(f"{stem}.qzeros", zeros.shape, (groups, out // 8))

    def codes(start: int, stop: int) -> NDArray[np.uint8]:
        first = start // 8
        return _outputs(words[:, first : -(-stop // 8)])[:, start - 8 * first : stop - 8 * first].T

    parts = tuple(f"{stem}.{name}" for name in ("qweight", "qzeros", "scales"))
    return affine_matrix((out, k), 4, size, parts, codes, scales.T, _outputs(zeros).T)


def _outputs(words: NDArray[Any]) -> NDArray[np.uint8]:
    """Codes ``[rows, 8 · words]`` in the order of the outputs."""
    raw = unpack_codes(np.ascontiguousarray(words).view(np.uint32), 4, 8 * words.shape[1])
    return raw.reshape(len(raw), -1, 8)[:, :, _PLACE].reshape(len(raw), -1)
