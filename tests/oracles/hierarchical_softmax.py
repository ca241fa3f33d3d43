"""In NumPy: choice by choice down a tree: the probability of a leaf is the product along its path."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Saved, oracle_of
from tests.oracles.softmax import AxisSoftmaxOracle
from volumetric.base._typing import Array
from volumetric.graph.numeric.softmax import softmax, softmax_vjp
from volumetric.layers.hierarchical_softmax import HierarchicalSoftmax


@oracle_of(HierarchicalSoftmax)
class HierarchicalSoftmaxOracle(AxisSoftmaxOracle):
    def probabilities(self, z: Array) -> tuple[Array, Saved]:
        path = np.ones_like(z[..., :1])
        choices, paths = [], []
        for level, branches in zip(np.split(z, np.cumsum(self.nodes)[:-1], axis=-1), self.levels, strict=True):
            choice = softmax(level.reshape(*path.shape, branches))  # [..., parents, branches]
            choices.append(choice)
            paths.append(path)
            path = (path[..., None] * choice).reshape(level.shape)
        return path, {"choices": choices, "paths": paths}

    def logits_vjp(self, saved: Saved, gy: Array) -> Array:
        grads: list[Array] = []
        for choice, path in zip(reversed(saved["choices"]), reversed(saved["paths"]), strict=True):
            below = gy.reshape(choice.shape)
            grads.append(softmax_vjp(choice, below * path[..., None]).reshape(gy.shape))
            gy = (below * choice).sum(axis=-1)
        return np.concatenate(grads[::-1], axis=-1)
