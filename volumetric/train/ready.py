"""Batches as graphs of training take them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from volumetric._typing import Array
from volumetric.runtime.graph.training import ForwardPass
from volumetric.train.by_output import Losses
from volumetric.train.objective import Posed


@dataclass(frozen=True, slots=True)
class Ready:
    """A batch as graphs take it."""

    of: ForwardPass
    arrays: list[Array]
    posed: Posed


def sharing(losses: Losses, ready: Sequence[Ready]) -> tuple[list[Ready], float]:
    """Return the batches of one update with the shares of their losses, and the factor on all gradients."""
    counts: dict[str, float] = {}
    for one in ready:
        for name, count in one.posed.counts.items():
            counts[name] = counts.get(name, 0) + count
    scale, shares = losses.shares(counts)
    if len(counts) == 1:
        return [*ready], scale
    found: list[Ready] = []
    for one in ready:
        own = np.array([shares[name] for name in one.posed.counts], np.float32)
        of = dataclasses.replace(one.of, shared=True)
        found.append(dataclasses.replace(one, of=of, arrays=[*one.arrays, own]))
    return found, scale
