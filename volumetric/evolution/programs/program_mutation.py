"""Mutation of the programs in a genome: changes are checked, and parameters are carried over by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from volumetric.base.errors import VolumetricError
from volumetric.evolution.grids.grid_config import GridMutationConfig
from volumetric.evolution.grids.grid_genome import GridGenome, GridInnovations
from volumetric.evolution.grids.grid_mutation import with_structure
from volumetric.evolution.grids.layer_factories import fresh_values
from volumetric.evolution.programs.edge_genes import add_edge, change_edge, drop_edge
from volumetric.evolution.programs.mask_genes import change_mask, fit_masks
from volumetric.evolution.programs.program_change import Mark, MutatedProgram, goes_by_rows
from volumetric.evolution.programs.region_genes import (
    add_region,
    change_carrier,
    change_clock,
    change_learning,
    change_region,
    change_slots,
    drop_region,
)
from volumetric.network.grid import Coord
from volumetric.network.weight_store import WeightStore
from volumetric.program.describe import problems
from volumetric.program.layer.program_declaration import Program as Declared
from volumetric.program.layer.program_layer import Program

Changing = Callable[[Declared, Mark, np.random.Generator], MutatedProgram | None]
CHANGES: Mapping[str, Changing] = {
    "add_region": add_region,
    "drop_region": drop_region,
    "change_region": change_region,
    "add_edge": add_edge,
    "drop_edge": drop_edge,
    "change_edge": change_edge,
    "change_clock": change_clock,
    "change_carrier": change_carrier,
    "change_slots": change_slots,
    "change_mask": change_mask,
    "change_learning": change_learning,
}
"""Field of `GridMutationConfig` → change, in the order of application."""


def mutate_program(
    genome: GridGenome,
    coord: Coord,
    rules: GridMutationConfig,
    innovations: GridInnovations,
    rng: np.random.Generator,
) -> GridGenome:
    """Return a genome with its program at `coord` mutated, each change with its probability.

    A change is skipped if the program could not run after it, see `volumetric program check`.
    """
    marking = genome.markings[coord]

    def mark(event: tuple[object, ...]) -> int:
        return innovations.mark((marking, *event))

    for name, change in CHANGES.items():
        chance: float = getattr(rules, name)
        if chance > 0 and rng.random() < chance:
            genome = apply_change(genome, coord, change, mark, rng) or genome
    return genome


def apply_change(
    genome: GridGenome, coord: Coord, change: Changing, mark: Mark, rng: np.random.Generator
) -> GridGenome | None:
    """Return a genome with a change of its program at `coord`; None without a change or a runnable program."""
    spec = genome.network.layers[coord]
    assert isinstance(spec, Program)
    try:
        outcome = change(spec.program, mark, rng)
        if outcome is None:
            return None
        outcome = dataclasses.replace(outcome, program=fit_masks(outcome.program))
        if problems(outcome.program):
            return None
        after = dataclasses.replace(spec, program=outcome.program)
    except VolumetricError:
        return None
    start = f"{coord}/"
    before = {key.removeprefix(start): store for key, store in genome.params.items() if key.startswith(start)}
    stores = {key: store for key, store in genome.params.items() if not key.startswith(start)}
    stores |= {start + name: store for name, store in carry_parameters(after, before, outcome, rng).items()}
    return with_structure(genome, layers={**genome.network.layers, coord: after}, params=stores)


def carry_parameters(
    spec: Program, before: Mapping[str, WeightStore], change: MutatedProgram, rng: np.random.Generator
) -> dict[str, WeightStore]:
    """Return the parameters of a changed program.

    Parameters with unchanged name and shape stay, and so do rows of remaining slots; others are copies, constants or
    fresh values, see `MutatedProgram`.
    """
    stores: dict[str, WeightStore] = {}
    for param in spec.tensors():
        old = before.get(change.source_of(param.name) or param.name)
        if old is not None and old.shape == param.shape:
            stores[param.name] = old
            continue
        begins = change.first_of(param.name)
        value = fresh_values(param, rng) if begins is None else np.full(param.shape, begins, np.float32)
        if begins is None and old is not None and goes_by_rows(param.name) and old.shape[1:] == param.shape[1:]:
            rows = min(old.shape[0], param.shape[0])
            value[:rows] = old.values()[:rows]
        stores[param.name] = WeightStore.from_array(value)
    return stores
