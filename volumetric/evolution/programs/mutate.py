"""Mutation of the programs in a genome: what changed is checked, and parameters follow by their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from volumetric.errors import VolumetricError
from volumetric.evolution.grids.config import GridMutationConfig
from volumetric.evolution.grids.genome import GridGenome, GridInnovations
from volumetric.evolution.grids.initial import fresh
from volumetric.evolution.grids.structure import restructured
from volumetric.evolution.programs.change import Change, Mark
from volumetric.evolution.programs.edges import add_edge, change_edge, drop_edge
from volumetric.evolution.programs.regions import add_region, change_clock, change_region, drop_region
from volumetric.grid import Coord
from volumetric.layers.program.declared import Program as Declared
from volumetric.layers.program.spec import Program
from volumetric.program.describe import problems
from volumetric.weights import WeightStore

Changing = Callable[[Declared, Mark, np.random.Generator], Change | None]
CHANGES: Mapping[str, Changing] = {
    "add_region": add_region,
    "drop_region": drop_region,
    "change_region": change_region,
    "add_edge": add_edge,
    "drop_edge": drop_edge,
    "change_edge": change_edge,
    "change_clock": change_clock,
}
"""Chance in `GridMutationConfig` → the change; they come in this order."""


def mutate_program(
    genome: GridGenome,
    coord: Coord,
    rules: GridMutationConfig,
    innovations: GridInnovations,
    rng: np.random.Generator,
) -> GridGenome:
    """Return a genome whose program at `coord` has changed, each change by its chance.

    A change after which something would keep the program from being run, as `volumetric program check` tells it, does
    not happen.
    """
    marking = genome.markings[coord]

    def mark(event: tuple[object, ...]) -> int:
        return innovations.mark((marking, *event))

    for name, change in CHANGES.items():
        if rng.random() < getattr(rules, name):
            genome = changed(genome, coord, change, mark, rng) or genome
    return genome


def changed(
    genome: GridGenome, coord: Coord, change: Changing, mark: Mark, rng: np.random.Generator
) -> GridGenome | None:
    """Return a genome with a change of its program at `coord`; None where there is none, or it could not be run."""
    spec = genome.network.layers[coord]
    assert isinstance(spec, Program)
    try:
        made = change(spec.program, mark, rng)
        if made is None or problems(made.program):
            return None
        after = dataclasses.replace(spec, program=made.program)
    except VolumetricError:
        return None
    start = f"{coord}/"
    before = {key.removeprefix(start): store for key, store in genome.params.items() if key.startswith(start)}
    stores = {key: store for key, store in genome.params.items() if not key.startswith(start)}
    stores |= {start + name: store for name, store in carried(after, before, made, rng).items()}
    return restructured(genome, layers={**genome.network.layers, coord: after}, params=stores)


def carried(
    spec: Program, before: Mapping[str, WeightStore], change: Change, rng: np.random.Generator
) -> dict[str, WeightStore]:
    """Return the parameters of a changed program: those of one name and shape, copies, zeros, and fresh ones."""
    found: dict[str, WeightStore] = {}
    for param in spec.tensors():
        source = change.source_of(param.name) or param.name
        if source in before and before[source].shape == param.shape:
            found[param.name] = before[source]
        else:
            zeros = change.begins_closed(param.name)
            found[param.name] = WeightStore.from_array(
                np.zeros(param.shape, np.float32) if zeros else fresh(param, rng)
            )
    return found
