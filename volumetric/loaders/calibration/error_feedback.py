"""Round a matrix column by column; later columns compensate the error of each.

Frantar et al. 2022 (GPTQ, arXiv 2210.17323), after the optimal brain surgeon: for inputs X with H = Xᵀ X, rounding
column j by an error e is compensated best by changing the later columns by ``−e / U_jj · U_j,later``; ``H⁻¹ = Uᵀ U``
with U upper triangular. Columns with the largest inputs come first ("act-order"), while all others can still compensate
their errors. Scales are fixed before (`levels`), so groups stay contiguous in any order.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import F32Array
from volumetric.base.errors import DTypeError, UnsupportedError
from volumetric.dtypes import Packed, Scheme
from volumetric.loaders.calibration.code_levels import fit

DAMPING = 0.01
"""Fraction of the mean of H's diagonal that is added to it: inputs that are 0 in the text must not be free."""
SHRINKAGE = 0.5
"""Fraction by which H's off-diagonal elements shrink: correlations in a short text are partly specific to it, and using
them costs on other texts (shrinkage towards a diagonal target, Schäfer & Strimmer 2005)."""
_BLOCK = 128
_CHUNK = 1 << 22
"""Number of elements that are rounded at a time: the rows of a matrix are independent."""


def can_feed_back(scheme: Scheme) -> bool:
    """Whether a scheme can be calibrated: block formats, and integers of up to 8 bits with scales."""
    return scheme.blocks is not None or (
        scheme.group is not None and scheme.dtype.kind in ("int", "uint") and scheme.dtype.bits <= 8
    )


def is_calibrated(scheme: Scheme) -> bool:
    """Whether calibration has an effect on a scheme: it has fewer than 8 bits per weight and `can_feed_back`."""
    return scheme.bits_per_weight((1, 4096)) < 8 and can_feed_back(scheme)


class InputStatistics:
    """Statistics of the inputs of a matrix.

    Parameters
    ----------
    hessian : ``[k, k]``, ``Xᵀ X`` of the inputs, up to a factor
    """

    def __init__(self, hessian: NDArray[np.floating]) -> None:
        self._hessian = hessian

    @cached_property
    def importance(self) -> F32Array:
        """Mean squares of the inputs, ``[k]``: above 0, with mean 1."""
        squares = self._damped_hessian.diagonal()
        return (squares / squares.mean()).astype(np.float32)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Column indices, largest inputs first."""
        return np.argsort(-self.importance, kind="stable")

    @cached_property
    def upper(self) -> F32Array:
        """U of the inverse, with columns in `order`."""
        last_first = self.order[::-1]
        lower = np.linalg.cholesky(self._damped_hessian[np.ix_(last_first, last_first)])
        # With both axes reversed it is upper, H = R Rᵀ, and so H⁻¹ = Uᵀ U for U = R⁻¹.
        return np.triu(np.linalg.inv(lower[::-1, ::-1])).astype(np.float32)

    @cached_property
    def _damped_hessian(self) -> NDArray[np.float64]:
        h = self._hessian.astype(np.float64)
        if not np.isfinite(h).all():
            raise UnsupportedError(
                "the values that the model computes for this text are not finite",
                hint="check the weights for NaN and overflow",
            )
        diagonal = h.diagonal().copy()
        h *= 1 - SHRINKAGE
        h[np.diag_indices_from(h)] = diagonal + DAMPING * (diagonal.mean() or 1.0)
        return h


def quantise(weight: F32Array, inputs: InputStatistics, scheme: Scheme) -> Packed:
    """Return a matrix ``[n, k]`` in a scheme that `can_feed_back`, rounded for its inputs.

    Raises
    ------
    DTypeError
        The scheme cannot be calibrated, or a weight is not finite.
    UnsupportedError
        The inputs are not finite.
    """
    if not can_feed_back(scheme):
        raise DTypeError(
            f"{scheme} cannot be calibrated",
            hint="use a block format, or integers of up to 8 bits with scales: int4:g32",
        )
    if not np.isfinite(weight).all():
        raise DTypeError("a weight is NaN or infinite", hint="the checkpoint is damaged, or its training diverged")
    step = max(1, _CHUNK // max(weight.shape[1], 1))
    parts = [_round_plainly(weight[at : at + step], inputs, scheme) for at in range(0, len(weight), step)]
    return parts[0] if len(parts) == 1 else _concatenate_packed(parts)


def _round_plainly(weight: F32Array, inputs: InputStatistics, scheme: Scheme) -> Packed:
    n, k = weight.shape
    upper, order = inputs.upper, inputs.order
    levels = fit(weight, inputs.importance, scheme)
    left = np.ascontiguousarray(weight.T[order], np.float32)  # [k, n]: columns of the matrix are rows here
    codes = np.empty((k, n), np.uint8)
    for first in range(0, k, _BLOCK):
        last = min(first + _BLOCK, k)
        errors = np.empty((last - first, n), np.float32)
        for j in range(first, last):
            codes[order[j]], values = levels.nearest(int(order[j]), left[j])
            errors[j - first] = (left[j] - values) / upper[j, j]
            left[j + 1 : last] -= upper[j, j + 1 : last, None] * errors[j - first]
        left[last:] -= upper[first:last, last:].T @ errors
    return levels.pack_codes(np.ascontiguousarray(codes.T))


def _concatenate_packed(parts: list[Packed]) -> Packed:
    """Concatenate tensors along their rows."""

    def whole(name: str) -> NDArray[Any] | None:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else np.concatenate(arrays)

    shape = (sum(part.rows for part in parts), parts[0].k)
    payload = np.concatenate([part.payload for part in parts])
    return Packed(
        scheme=parts[0].scheme, shape=shape, payload=payload, scales=whole("scales"), offsets=whole("offsets")
    )
