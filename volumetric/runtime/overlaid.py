"""Weights with their low-rank overlays added, for devices that read every weight as floats anyway."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from volumetric._typing import Array
from volumetric.network import Params
from volumetric.runtime.graph.low_rank import DOWN, UP, groups_of
from volumetric.runtime.graph.network import open_graph
from volumetric.runtime.plan import Plan


class Overlaid:
    """The weights of a plan with overlays, as they are and with what is added.

    Parameters
    ----------
    plan : its `low_rank` names the weights
    weights : of the plan without overlays
    params : with the factors
    """

    def __init__(self, plan: Plan, weights: Mapping[str, Array], params: Params) -> None:
        groups = groups_of(open_graph(dataclasses.replace(plan, low_rank={})))
        self._group = {key: [k for k in keys if k in plan.low_rank] for keys in groups for key in keys}
        self._plain = {key: weights[key] for key in plan.low_rank}
        self._factors: dict[str, Array] = {}
        self.update(params)

    def update(self, params: Params) -> None:
        """Take other factors."""
        for key, store in params.items():
            if key.endswith((DOWN, UP)):
                self._factors[key] = store.values()

    def weights(self) -> dict[str, Array]:
        """Return the weights that have overlays, with these added, by their keys."""
        found: dict[str, Array] = {}
        for key, plain in self._plain.items():
            down = np.concatenate([self._factors[other + DOWN] for other in self._group[key]])
            found[key] = plain + (self._factors[key + UP] @ down).astype(plain.dtype)
        return found
