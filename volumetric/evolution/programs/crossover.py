"""Crossover of programs, aligned by the names of regions and edges."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from volumetric.errors import VolumetricError
from volumetric.evolution.grids.crossover import in_type_of
from volumetric.evolution.grids.genome import GridGenome
from volumetric.evolution.grids.initial import fresh
from volumetric.evolution.grids.structure import restructured
from volumetric.evolution.programs.masks import fitted
from volumetric.evolution.programs.parts import genes_of, parts_of
from volumetric.grid import Coord
from volumetric.layers.program.declared import Program as Declared
from volumetric.layers.program.spec import Program
from volumetric.program.describe import problems
from volumetric.weights import WeightStore


class Crossed(NamedTuple):
    """A child of two programs, and which of its parameters are the other parent's."""

    spec: Program
    taken: frozenset[str]


def crossed(
    mine: Program,
    theirs: Program,
    shapes: Mapping[str, tuple[int, ...]],
    rng: np.random.Generator,
) -> Crossed:
    """Return a child with the regions, edges and ports of the fitter parent.

    Each region and edge that both have, by its name, is that of either by chance, with its parameters; a region stays
    where it is. Where such a program could not be run, only parameters are exchanged. Parameters go over part by part
    (`parts_of`) where they have the shapes of the child's.

    Parameters
    ----------
    shapes : of the other parent's parameters, by name
    """
    genes = dict.fromkeys((*genes_of(mine.program), *parts_of(mine)))
    other = {gene for gene in genes if rng.random() < 0.5}
    spec = _structure(mine, theirs.program, other) or mine
    child = {param.name: param.shape for param in spec.tensors()}
    taken = {name for part, names in parts_of(spec).items() if part in other for name in names}
    return Crossed(spec, frozenset(name for name in taken if shapes.get(name) == child[name]))


def _structure(spec: Program, theirs: Declared, other: set[str]) -> Program | None:
    program = spec.program
    edges = {edge.name: edge for edge in theirs.edges}
    regions = {
        name: replace(theirs.canvas.regions[name], box=region.box)
        if f"regions.{name}" in other and name in theirs.canvas.regions
        else region
        for name, region in program.canvas.regions.items()
    }
    exchanged = [
        found
        if f"edges.{edge.name}" in other
        and (found := edges.get(edge.name)) is not None
        and {found.reads, found.writes} <= regions.keys()
        else edge
        for edge in program.edges
    ]
    watched = {meter.region for meter in program.meters}
    meters = [meter for meter in theirs.meters if meter.region in regions and meter.region not in watched]
    try:
        made = replace(
            program,
            canvas=replace(program.canvas, regions=regions),
            edges=tuple(exchanged),
            meters=(*program.meters, *meters),
        )
        made = fitted(made)
        return None if problems(made) else dataclasses.replace(spec, program=made)
    except VolumetricError:
        return None


def with_program(
    fitter: GridGenome,
    coord: Coord,
    stores: dict[str, WeightStore],
    other: GridGenome,
    match: Coord,
    rng: np.random.Generator,
) -> tuple[GridGenome, dict[str, WeightStore]]:
    """Return the fitter parent with regions and edges of both, and the weights that its child has then.

    Parameters
    ----------
    coord, match : where the programs are
    stores : weights of the child so far
    """
    mine, theirs = fitter.network.layers[coord], other.network.layers[match]
    assert isinstance(mine, Program)
    assert isinstance(theirs, Program)
    given = {name: other.params[key] for name, key in other.layer_keys(match).items()}
    spec, taken = crossed(mine, theirs, {name: store.shape for name, store in given.items()}, rng)
    own, start = fitter.layer_keys(coord), f"{coord}/"
    made = {key: store for key, store in stores.items() if key not in own.values()}
    for param in spec.tensors():
        have = stores[own[param.name]] if param.name in own else None
        if param.name in taken:
            store = given[param.name] if have is None else in_type_of(given[param.name], have)
        elif have is not None and have.shape == param.shape:
            store = have
        else:
            store = WeightStore.from_array(fresh(param, rng))
        made[start + param.name] = store
    child = restructured(fitter, layers={**fitter.network.layers, coord: spec}, params=made)
    return (fitter, stores) if child is None else (child, dict(child.params))
