"""Pseudo-inverses of dense layers for target propagation, recomputed periodically from the weights."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.graph_device import TensorStore
from volumetric.network import Network
from volumetric.run.graph.inverses import Inverse


class PseudoInverses:
    """Pseudo-inverses in the store of a learner; initially zeros.

    Parameters
    ----------
    damping : see `pseudo_inverse`
    """

    def __init__(self, inverses: Iterable[Inverse], network: Network, store: TensorStore, damping: float) -> None:
        weights = {of.key("pinv"): network.resolve(f"{of.where}/weight") for of in inverses if of.kind == "pinv"}
        self._weights, self._store, self._damping = weights, store, damping
        for key, weight in weights.items():
            store.write(key, np.zeros(store.get(weight).shape[::-1], np.float32))

    def refresh(self) -> None:
        """Recompute them from the current weights."""
        for key, weight in self._weights.items():
            self._store.write(key, pseudo_inverse(self._store.get(weight), self._damping))

    @property
    def values(self) -> dict[str, Array]:
        """Key → pseudo-inverse, copied from the device."""
        return {key: self._store.get(key) for key in self._weights}


def pseudo_inverse(w: Array, damping: float) -> Array:
    """Return ``(WᵀW + λI)⁻¹ Wᵀ``, computed in float64; λ is `damping` in means of the diagonal of WᵀW."""
    w = w.astype(np.float64)
    square = w.T @ w
    damped = square + damping * np.trace(square) / len(square) * np.eye(len(square))
    return np.linalg.solve(damped, w.T).astype(np.float32)
