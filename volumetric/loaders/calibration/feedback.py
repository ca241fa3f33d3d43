"""Rounding a matrix column by column, the error of each made good by those that are still to come.

Frantar et al. 2022 (GPTQ, arXiv 2210.17323), after the optimal brain surgeon: for inputs X with H = Xᵀ X, rounding
column j by an error e is made good best by changing the later columns by ``−e / U_jj · U_j,later``; ``H⁻¹ = Uᵀ U``
with U upper triangular. Columns keep their places, so groups stay runs of neighbours; a group's scale is searched when
its first column is reached, on the numbers as they are then (`scales.search`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import F32Array
from volumetric.dtypes import Packed, Scheme
from volumetric.dtypes.bits import pack_codes
from volumetric.errors import DTypeError
from volumetric.loaders.calibration.scales import Rule, search

DAMPING = 0.01
"""Part of the mean of H's diagonal that is added to it: inputs that the text did not move must not be free."""
_BLOCK = 128


def can_feed_back(scheme: Scheme) -> bool:
    """Whether a scheme can be calibrated: integers of up to 8 bits with scales."""
    return scheme.group is not None and scheme.dtype.kind in ("int", "uint") and scheme.dtype.bits <= 8


def quantise(weight: F32Array, hessian: NDArray[np.floating], scheme: Scheme) -> Packed:
    """Return a matrix in a scheme of integers, rounded for the inputs that `hessian` describes.

    Parameters
    ----------
    weight : ``[n, k]``
    hessian : ``[k, k]``, ``Xᵀ X`` of the inputs, up to a factor
    scheme : see `can_feed_back`

    Raises
    ------
    DTypeError
        The scheme is of another kind, or a number is not finite.
    """
    if not can_feed_back(scheme):
        raise DTypeError(f"{scheme} cannot be calibrated", hint="integers of up to 8 bits with scales can: int4:g32")
    if not np.isfinite(weight).all():
        raise DTypeError("a weight is NaN or infinite", hint="a damaged checkpoint or a diverged training run")
    n, k = weight.shape
    size = scheme.group or k
    upper, importance = _factor(hessian)
    left = np.ascontiguousarray(weight.T, np.float32)  # [k, n]: columns of the matrix are rows here
    codes = np.empty((k, n), np.int16)
    rules: list[Rule] = []
    for first in range(0, k, _BLOCK):
        last = min(first + _BLOCK, k)
        errors = np.empty((last - first, n), np.float32)
        for j in range(first, last):
            if j % size == 0:
                stop = min(j + size, k)
                group = left[j:stop].T.copy()
                if stop > last:  # what the block has not yet told the columns beyond it
                    group[:, last - j :] -= (upper[first:j, last:stop].T @ errors[: j - first]).T
                rules.append(search(group, importance[j:stop], scheme))
            rule = rules[-1]
            code = rule.codes(left[j])
            codes[j] = code
            errors[j - first] = (left[j] - rule.values(code)) / upper[j, j]
            left[j + 1 : last] -= upper[j, j + 1 : last, None] * errors[j - first]
        left[last:] -= upper[first:last, last:].T @ errors
    return _packed(codes, rules, scheme, (n, k))


def _factor(hessian: NDArray[np.floating]) -> tuple[F32Array, F32Array]:
    """Return U of the damped H, and the mean squares of the inputs."""
    h = hessian.astype(np.float64)
    diagonal = h.diagonal().copy()
    mean = diagonal.mean() or 1.0
    h[np.diag_indices_from(h)] += DAMPING * mean
    lower = np.linalg.inv(np.linalg.cholesky(h))
    upper = np.linalg.cholesky(lower.T @ lower).T
    return upper.astype(np.float32), (diagonal + DAMPING * mean).astype(np.float32)


def _packed(codes: NDArray[np.int16], rules: list[Rule], scheme: Scheme, shape: tuple[int, int]) -> Packed:
    bits, host = scheme.dtype.bits, scheme.scale_dtype.host if scheme.scale_dtype else None
    raw = (codes.T & ((1 << bits) - 1)).astype(np.uint8)
    scales = np.stack([rule.scale for rule in rules], 1).astype(host)
    offsets = np.stack([rule.offset for rule in rules], 1).astype(host)
    return Packed(
        scheme=scheme,
        shape=shape,
        payload=np.ascontiguousarray(pack_codes(np.ascontiguousarray(raw), bits, scheme.words_per_row(shape[1]))),
        scales=np.ascontiguousarray(scales),
        offsets=np.ascontiguousarray(offsets) if scheme.has_offset else None,
    )
