"""Low-rank overlays (LoRA): small trained matrices on top of frozen weights.

Hu et al. 2021 (arXiv 2106.09685): ``W' = W + (alpha / rank) · B A`` with A ``[rank, in]`` and B ``[out, rank]``. The
forward pass runs with W', merged once for each update, so that every layer and device computes as without overlays.
With G the gradient of W', those of the factors are ``s Bᵀ G`` and ``s G Aᵀ``, where ``s = alpha / rank``.

W is what its scheme holds, such as int4, and keeps that precision throughout training; merging encodes W' in it anew.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from volumetric.base import rng
from volumetric.base._typing import Array
from volumetric.base.atomic import atomic_file
from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.network.weight_store import Params, WeightStore
from volumetric.train.npz_arrays import read_npz
from volumetric.train.precision import matching_keys, trained_store

DOWN, UP = ":a", ":b"
"""Suffixes of the keys of the factors A and B, after the key of the weight."""
_ABOUT: Final = "about"


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """Selection and size of overlays.

    Attributes
    ----------
    rank : columns of B and rows of A
    alpha : the product is scaled by ``alpha / rank``, which makes its size independent of the rank
    targets : patterns of keys of matrices, as ``"*/q.weight"``
    seed : of the random start of A; B starts at zero, so that training starts from W
    """

    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ("*/q.weight", "*/v.weight")
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.rank < 1:
            raise SpecError(f"overlay: rank must be at least 1, got {self.rank}", hint="set rank = 8, a common value")
        if not (self.alpha > 0 and math.isfinite(self.alpha)):
            raise SpecError(f"overlay: alpha must be above 0, got {self.alpha}")
        if not self.targets:
            raise SpecError("overlay: targets is empty", hint='set targets, as targets = ["*/q.weight", "*/v.weight"]')

    @property
    def scale(self) -> float:
        """Factor on the product of the two matrices."""
        return self.alpha / self.rank

    def keys(self, params: Mapping[str, WeightStore]) -> list[str]:
        """Return the keys of weights with overlays, in the order of `params`; raise `SpecError` for a non-matrix."""
        matched = set().union(*(matching_keys(pattern, params) for pattern in self.targets))
        for key in matched:
            if len(params[key].shape) != 2:
                raise SpecError(
                    f"overlay: {key} of shape {params[key].shape} is not a matrix", hint="restrict targets to matrices"
                )
        return [key for key in params if key in matched]

    def begin(self, params: Mapping[str, WeightStore]) -> dict[str, Array]:
        """Return fresh factors, float32: A uniform in ±1/√in, B zero."""
        factors: dict[str, Array] = {}
        for key in self.keys(params):
            out, into = params[key].shape
            bound = 1 / math.sqrt(into)
            drawn = rng.generator(self.seed, *key.encode()).uniform(-bound, bound, (self.rank, into))
            factors[key + DOWN] = drawn.astype(np.float32)
            factors[key + UP] = np.zeros((out, self.rank), np.float32)
        return factors

    def delta(self, key: str, factors: Mapping[str, Array]) -> Array:
        """Return the product of the factors that is added to the weight `key`."""
        down, up = factors[key + DOWN], factors[key + UP]
        return (up @ down) * up.dtype.type(self.scale)

    def pull(self, gradients: Mapping[str, Array], factors: Mapping[str, Array]) -> dict[str, Array]:
        """Convert gradients of merged weights to gradients of the factors."""
        pulled: dict[str, Array] = {}
        for key, g in gradients.items():
            scaled = g * g.dtype.type(self.scale)
            pulled[key + DOWN] = factors[key + UP].T @ scaled
            pulled[key + UP] = scaled @ factors[key + DOWN].T
        return pulled

    def merge(self, params: Mapping[str, WeightStore], factors: Mapping[str, Array]) -> Params:
        """Return `params` with the factors added to their weights, each encoded in its original scheme.

        Raises
        ------
        ShapeError
            A factor does not fit its weight.
        """
        merged = dict(params)
        for key in trained_keys(factors):
            if key not in params:
                raise ShapeError(f"an overlay is for {key}, which the network does not have")
            delta = self.delta(key, factors)
            if delta.shape != params[key].shape:
                raise ShapeError(f"an overlay of shape {delta.shape} does not fit {key} of shape {params[key].shape}")
            merged[key] = trained_store(params[key].values() + delta, params[key].scheme)
        return Params(merged)


def trained_keys(masters: Iterable[str]) -> list[str]:
    """Return the keys of the weights that these trained arrays change: factor keys without their suffixes."""
    return list(dict.fromkeys(key.removesuffix(DOWN).removesuffix(UP) for key in masters))


def save_overlays(path: str | Path, overlay: LowRank, factors: Mapping[str, Array]) -> None:
    """Write factors and settings to an ``.npz`` file, atomically. Raises `CheckpointError` if that fails."""
    about = np.frombuffer(json.dumps(dataclasses.asdict(overlay)).encode(), np.uint8)
    with atomic_file(path) as handle:
        np.savez(handle, allow_pickle=False, **{_ABOUT: about}, **{k: np.asarray(v) for k, v in factors.items()})


def load_overlays(path: str | Path) -> tuple[LowRank, dict[str, Array]]:
    """Read a file of `save_overlays`. Raises `CheckpointError` if the file is damaged or has another format."""
    arrays = read_npz(path)
    try:
        about = json.loads(arrays.pop(_ABOUT).tobytes())
        overlay = LowRank(**{**about, "targets": tuple(about["targets"])})
        pairs = {key for key in arrays if key.endswith(DOWN) and key.removesuffix(DOWN) + UP in arrays}
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is not a file of overlays: {error}") from error
    if len(arrays) != 2 * len(pairs):
        raise CheckpointError(f"{path}: a weight has only one of its two factors")
    return overlay, arrays
