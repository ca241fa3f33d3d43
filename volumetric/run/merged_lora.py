"""Merges adapters into weights, for devices that read all weights as floats."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from volumetric.base._typing import Array
from volumetric.network import Params
from volumetric.run.call_batch import CheckedRows
from volumetric.run.graph.low_rank import ADAPTERS, overlays_of
from volumetric.run.graph.network_graph import open_graph
from volumetric.run.plan import Plan

_CACHED = 8
"""Number of mixtures of adapters whose merged weights are cached."""


class MergedLora:
    """The merged weights of a plan with adapters, for weights of the adapters.

    Parameters
    ----------
    plan : its `low_rank` names the weights with adapters
    weights : weights of the plan without adapters
    params : has the factors
    """

    def __init__(self, plan: Plan, weights: Mapping[str, Array], params: Params) -> None:
        self._overlays = overlays_of(open_graph(dataclasses.replace(plan, low_rank={})), plan.low_rank)
        self._plain = {key: weights[key] for overlay in self._overlays for key in overlay.keys}
        self._factors = {
            key: params[key].values()
            for overlay in self._overlays
            for adapter in range(overlay.count)
            for key in overlay.factor_keys(adapter)
        }
        self._cached: dict[bytes, dict[str, Array]] = {}

    def weights(self, scales: Array) -> dict[str, Array]:
        """Return the merged weights by key, for `scales`, the weight of each adapter."""
        name = scales.tobytes()
        if name not in self._cached:
            while len(self._cached) >= _CACHED:
                del self._cached[next(iter(self._cached))]
            self._cached[name] = dict(self._merge(scales))
        return self._cached[name]

    def _merge(self, scales: Array) -> Iterator[tuple[str, Array]]:
        for overlay in self._overlays:
            added = np.zeros((sum(overlay.widths), overlay.inputs), np.float32)
            for adapter in np.flatnonzero(scales):
                down, up = (self._factors[key] for key in overlay.factor_keys(int(adapter)))
                added += scales[adapter] * (up @ down)
            row = 0
            for key, width in zip(overlay.keys, overlay.widths, strict=True):
                plain = self._plain[key]
                yield key, plain + added[row : row + width].astype(plain.dtype)
                row += width


def runs_of_equal_scales(part: CheckedRows) -> Iterator[tuple[Array, CheckedRows]]:
    """Yield runs of consecutive rows with the same weights of adapters, and these weights."""
    scales = part.inputs[ADAPTERS]
    cuts = [0, *(np.flatnonzero((scales[1:] != scales[:-1]).any(1)) + 1).tolist(), len(scales)]
    for start, stop in pairwise(cuts):
        inputs = {name: rows[start:stop] for name, rows in part.inputs.items()}
        yield scales[start], dataclasses.replace(part, inputs=inputs)
