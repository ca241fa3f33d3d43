"""Rounding a matrix column by column, the error of each made good by those that are still to come.

Frantar et al. 2022 (GPTQ, arXiv 2210.17323), after the optimal brain surgeon: for inputs X with H = Xᵀ X, rounding
column j by an error e is made good best by changing the later columns by ``−e / U_jj · U_j,later``; ``H⁻¹ = Uᵀ U``
with U upper triangular. Columns that meet the largest inputs come first ("act-order"), while all others can still make
their errors good. Scales are fixed before (`levels`), so groups stay runs of neighbours whatever the order.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import F32Array
from volumetric.base.errors import DTypeError, UnsupportedError
from volumetric.dtypes import Packed, Scheme
from volumetric.loaders.calibration.levels import fit

DAMPING = 0.01
"""Part of the mean of H's diagonal that is added to it: inputs that the text did not move must not be free."""
SHRINKAGE = 0.5
"""Part of H beside its diagonal that is taken off: correlations in a short text are in part those of that text alone,
and making errors good by them costs on others (shrinkage towards a diagonal target, as of Schäfer & Strimmer 2005)."""
_BLOCK = 128
_CHUNK = 1 << 22
"""Numbers of a matrix that are rounded at a time: its rows do not depend on each other."""


def can_feed_back(scheme: Scheme) -> bool:
    """Whether a scheme can be calibrated: block formats, and integers of up to 8 bits with scales."""
    return scheme.blocks is not None or (
        scheme.group is not None and scheme.dtype.kind in ("int", "uint") and scheme.dtype.bits <= 8
    )


def is_calibrated(scheme: Scheme) -> bool:
    """Whether calibration does anything to a scheme: it has fewer than 8 bits a weight and `can_feed_back`."""
    return scheme.bits_per_weight((1, 4096)) < 8 and can_feed_back(scheme)


class Inputs:
    """What is known about the inputs of a matrix.

    Parameters
    ----------
    hessian : ``[k, k]``, ``Xᵀ X`` of the inputs, up to a factor
    """

    def __init__(self, hessian: NDArray[np.floating]) -> None:
        self._hessian = hessian

    @cached_property
    def importance(self) -> F32Array:
        """Mean squares of the inputs, ``[k]``: none 0, 1 in the mean."""
        squares = self._damped.diagonal()
        return (squares / squares.mean()).astype(np.float32)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Columns, those with the largest inputs first."""
        return np.argsort(-self.importance, kind="stable")

    @cached_property
    def upper(self) -> F32Array:
        """U of the inverse, columns in `order`."""
        last_first = self.order[::-1]
        lower = np.linalg.cholesky(self._damped[np.ix_(last_first, last_first)])
        # With both axes turned round it is upper, H = R Rᵀ, and so H⁻¹ = Uᵀ U for U = R⁻¹.
        return np.triu(np.linalg.inv(lower[::-1, ::-1])).astype(np.float32)

    @cached_property
    def _damped(self) -> NDArray[np.float64]:
        h = self._hessian.astype(np.float64)
        if not np.isfinite(h).all():
            raise UnsupportedError(
                "what the model computes for this text is not finite", hint="check its weights for NaN and overflow"
            )
        diagonal = h.diagonal().copy()
        h *= 1 - SHRINKAGE
        h[np.diag_indices_from(h)] = diagonal + DAMPING * (diagonal.mean() or 1.0)
        return h


def quantise(weight: F32Array, inputs: Inputs, scheme: Scheme) -> Packed:
    """Return a matrix ``[n, k]`` in a scheme that `can_feed_back`, rounded for its inputs.

    Raises
    ------
    DTypeError
        The scheme is of another kind, or a number is not finite.
    UnsupportedError
        The inputs are not finite.
    """
    if not can_feed_back(scheme):
        raise DTypeError(
            f"{scheme} cannot be calibrated",
            hint="block formats and integers of up to 8 bits with scales can: int4:g32",
        )
    if not np.isfinite(weight).all():
        raise DTypeError("a weight is NaN or infinite", hint="a damaged checkpoint or a diverged training run")
    step = max(1, _CHUNK // max(weight.shape[1], 1))
    parts = [_rounded(weight[at : at + step], inputs, scheme) for at in range(0, len(weight), step)]
    return parts[0] if len(parts) == 1 else _joined(parts)


def _rounded(weight: F32Array, inputs: Inputs, scheme: Scheme) -> Packed:
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
    return levels.packed(np.ascontiguousarray(codes.T))


def _joined(parts: list[Packed]) -> Packed:
    """Tensors whose rows stand one behind the other."""

    def whole(name: str) -> NDArray[Any] | None:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else np.concatenate(arrays)

    shape = (sum(part.rows for part in parts), parts[0].k)
    payload = np.concatenate([part.payload for part in parts])
    return Packed(
        scheme=parts[0].scheme, shape=shape, payload=payload, scales=whole("scales"), offsets=whole("offsets")
    )
