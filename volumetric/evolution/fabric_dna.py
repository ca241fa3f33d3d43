"""What DNA reads of a fabric: the parameters of its nodes, each at its place in the fabric with all of them.

So fabrics that differ in their nodes alone can be compared, and one with nodes masked counts as one without these. In
the place of nodes that are not there, or masked, are zeros.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from volumetric.evolution.leaves import Leaf
from volumetric.layers import Fabric, ParamSpec
from volumetric.layers.fabric.nodes import param_entries
from volumetric.weights import WeightStore


def whole_params(leaf: Leaf) -> tuple[ParamSpec, ...]:
    """Return the parameters that a fabric would have with all nodes of its graph."""
    assert isinstance(leaf.spec, Fabric)
    return dataclasses.replace(leaf.spec, without=()).params()


def lacks_nodes(leaf: Leaf, params: Mapping[str, WeightStore]) -> bool:
    """Whether a layer is a fabric with nodes that are not there, or masked."""
    spec = leaf.spec
    if not isinstance(spec, Fabric):
        return False
    return bool(spec.without) or (spec.dynamic and not params[leaf.keys["living"]].values().all())


def living_values(
    leaf: Leaf, params: Mapping[str, WeightStore]
) -> Iterator[tuple[ParamSpec, NDArray[np.float32], NDArray[np.bool_]]]:
    """Yield each parameter with zeros for nodes that do not live, and which of its elements do."""
    spec = leaf.spec
    assert isinstance(spec, Fabric)
    whole = dataclasses.replace(spec, without=())
    facts = spec.facts
    there = params[leaf.keys["living"]].values() != 0 if spec.dynamic else np.ones(len(facts.order), bool)
    gone = np.setdiff1d(whole.facts.order, facts.order[there])
    before, after = param_entries(spec), param_entries(whole)
    for of in whole.params():
        values = params[leaf.keys[of.name]].values()
        lives = np.ones(of.shape, bool)
        if of.name in after:
            entries = after[of.name]
            values = entries.followed(values, before[of.name], np.zeros(of.shape, np.float32))
            lives &= ~entries.mask(entries.only(gone), values)
        yield of, np.where(lives, values, np.float32(0)), lives
