"""Learning recipes as genes: the losses that a region has of its own while it is trained, and their weights."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from volumetric.evolution.programs.change import Change, Mark, region_replaced
from volumetric.evolution.programs.edges import one_of
from volumetric.layers.program.declared import Program
from volumetric.layers.program.learning import Learning
from volumetric.layers.program.names import LOSSES
from volumetric.layers.program.recipes import CARRIERS, OF_MODE
from volumetric.layers.program.region import Region

_TASK = "task"
"""The network's own loss, which is no gene."""
_FIRST = 0.01
"""About what a loss of weight 0 weighs next."""


def change_learning(program: Program, mark: Mark, rng: np.random.Generator) -> Change | None:
    """Give a region a further loss, of weight 0; or let one weigh more or less, or take it away."""
    name = one_of([*program.canvas.regions], rng)
    region = program.canvas.regions[name]
    if region.carrier == "constant":
        return None
    changed = changed_learning(region, rng)
    return None if changed == region else Change(program=region_replaced(program, name, changed))


def changed_learning(region: Region, rng: np.random.Generator) -> Region:
    """Give a region a further loss that its carrier can have, take one away, or weigh one otherwise.

    A loss of weight 0 counts for nothing and has no parameters; its first weight is small.
    """
    losses = losses_of(region.learning)
    own = [name for name in losses if name != _TASK]
    able = [name for name in LOSSES if name != _TASK and name not in losses and _fits(name, region.carrier)]
    choice = rng.random()
    if able and (not own or choice < 0.3):
        losses[one_of(able, rng)] = 0.0
    elif own and choice < 0.5:
        del losses[one_of(own, rng)]
    elif own:
        name = one_of(own, rng)
        losses[name] = round(float((losses[name] or _FIRST) * np.exp(rng.normal(0, 0.5))), 6)
    return replace(region, learning=_learning(region.learning, losses))


def learning_with(region: Region, carrier: str) -> Learning | None:
    """Return the learning of a region that gets another carrier: without losses that this one has nothing for."""
    losses = losses_of(region.learning)
    left = {name: weight for name, weight in losses.items() if _fits(name, carrier)}
    return region.learning if left == losses else _learning(region.learning, left)


def losses_of(learning: Learning | None) -> dict[str, float]:
    """Return all losses that a region says, and their weights."""
    if learning is None:
        return {}
    return dict.fromkeys(OF_MODE[learning.mode], 1.0) if learning.losses is None else dict(learning.losses)


def _learning(before: Learning | None, losses: dict[str, float]) -> Learning | None:
    if before is None and not losses:
        return None
    return replace(before or Learning("none"), losses=losses)


def _fits(loss: str, carrier: str) -> bool:
    return loss == _TASK or carrier in CARRIERS.get(loss, (carrier,))
