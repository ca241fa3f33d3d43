"""Crossover of programs, aligned by the names of regions and edges, and the distance of programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from volumetric.base._typing import F32Array
from volumetric.base.errors import VolumetricError
from volumetric.evolution.grids.grid_crossover import in_type_of
from volumetric.evolution.grids.grid_genome import GridGenome
from volumetric.evolution.grids.grid_mutation import with_structure
from volumetric.evolution.grids.layer_factories import fresh_values
from volumetric.evolution.programs.mask_genes import fit_masks
from volumetric.evolution.programs.program_change import genes_of, parts_of
from volumetric.evolution.programs.region_genes import losses_of
from volumetric.network.grid import Coord
from volumetric.network.weight_store import WeightStore
from volumetric.program.describe import problems
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.edge_masks import Tile
from volumetric.program.layer.ports import Port
from volumetric.program.layer.program_declaration import Program as Declared
from volumetric.program.layer.program_facts import Wire, facts_of
from volumetric.program.layer.program_layer import Program
from volumetric.program.layer.recipes import recipe_params
from volumetric.program.layer.region import Region


class ProgramChild(NamedTuple):
    """A child of two programs, and the names of its parameters from the other parent."""

    spec: Program
    inherited: frozenset[str]


def cross_programs(
    mine: Program,
    theirs: Program,
    shapes: Mapping[str, tuple[int, ...]],
    rng: np.random.Generator,
) -> ProgramChild:
    """Return a child with the regions, edges and ports of the fitter parent.

    Each region and edge that both have, by name, comes from a random parent, with its parameters; a region keeps its
    position. If that program could not run, only parameters are exchanged. Parameters are exchanged part by part
    (`parts_of`) if they have the shapes of the child.

    Parameters
    ----------
    shapes : of the other parent's parameters, by name
    """
    genes = dict.fromkeys((*genes_of(mine.program), *parts_of(mine)))
    other = {gene for gene in genes if rng.random() < 0.5}
    spec = _structure(mine, theirs.program, other) or mine
    child = {param.name: param.shape for param in spec.tensors()}
    inherited = {name for part, names in parts_of(spec).items() if part in other for name in names}
    return ProgramChild(spec, frozenset(name for name in inherited if shapes.get(name) == child[name]))


def _structure(spec: Program, theirs: Declared, other: set[str]) -> Program | None:
    """Return `spec` with the genes named in `other` taken from `theirs`; None if that program cannot run."""
    program = spec.program
    edges = {edge.name: edge for edge in theirs.edges}
    regions = {
        name: replace(theirs.canvas.regions[name], box=region.box)
        if f"regions.{name}" in other and name in theirs.canvas.regions
        else region
        for name, region in program.canvas.regions.items()
    }
    exchanged = [
        counterpart
        if f"edges.{edge.name}" in other
        and (counterpart := edges.get(edge.name)) is not None
        and {counterpart.reads, counterpart.writes} <= regions.keys()
        else edge
        for edge in program.edges
    ]
    watched = {meter.region for meter in program.meters}
    meters = [meter for meter in theirs.meters if meter.region in regions and meter.region not in watched]
    try:
        child = replace(
            program,
            canvas=replace(program.canvas, regions=regions),
            edges=tuple(exchanged),
            meters=(*program.meters, *meters),
        )
        child = fit_masks(child)
        return None if problems(child) else dataclasses.replace(spec, program=child)
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
    """Return the fitter parent with regions and edges of both, and the weights of the child.

    Parameters
    ----------
    coord, match : coordinates of the programs
    stores : weights of the child so far
    """
    mine, theirs = fitter.network.layers[coord], other.network.layers[match]
    assert isinstance(mine, Program)
    assert isinstance(theirs, Program)
    other_stores = {name: other.params[key] for name, key in other.layer_keys(match).items()}
    spec, inherited = cross_programs(mine, theirs, {name: store.shape for name, store in other_stores.items()}, rng)
    own, start = fitter.layer_keys(coord), f"{coord}/"
    child_stores = {key: store for key, store in stores.items() if key not in own.values()}
    for param in spec.tensors():
        have = stores[own[param.name]] if param.name in own else None
        if param.name in inherited:
            store = other_stores[param.name] if have is None else in_type_of(other_stores[param.name], have)
        elif have is not None and have.shape == param.shape:
            store = have
        else:
            store = WeightStore.from_array(fresh_values(param, rng))
        child_stores[start + param.name] = store
    child = with_structure(fitter, layers={**fitter.network.layers, coord: spec}, params=child_stores)
    return (fitter, stores) if child is None else (child, dict(child.params))


def difference(a: Program, b: Program, mine: F32Array, theirs: F32Array) -> float:
    """Return the distance of two programs, 0 … 1.

    It counts 1 for each region, edge and port, by name, that only one program has or that is declared differently. For
    the rest it counts the larger of ``Σ|x - y| / Σ(|x| + |y|)`` over their parameters and the distance of their masks
    of blocks or pairs (the share of pairs) or weights of losses (by the same formula). So a mask that hides nothing and
    a loss of weight 0 add no distance, and parameters used only by losses do not count. Edges with several tiles are
    declared differently. The result is the mean.

    Parameters
    ----------
    mine, theirs : concatenated parameters, in the order of the layers
    """
    one, other = genes_of(a.program), genes_of(b.program)
    both = one.keys() & other.keys()
    alone = (len(one) + len(other) - 2 * len(both)) / (len(one) + len(other) - len(both))
    values, wires = (_values(a, mine), _values(b, theirs)), (_wires(a), _wires(b))
    apart = [
        max(
            _declared(one[gene], other[gene], *(of.get(gene) for of in wires)),
            _weights(*(of.get(gene) for of in values)),
        )
        for gene in sorted(both)
    ]
    return alone + (1 - alone) * (sum(apart) / len(apart) if apart else 0.0)


def _declared(one: Region | Edge | Port, other: Region | Edge | Port, mine: Wire | None, theirs: Wire | None) -> float:
    if one == other:
        return 0.0
    if isinstance(one, Region) and isinstance(other, Region):
        return 1.0 if replace(one, learning=None) != replace(other, learning=None) else _losses(one, other)
    if mine is None or theirs is None or not isinstance(one, Edge) or not isinstance(other, Edge):
        return 1.0
    tiled = isinstance(one.mask, Tile) or isinstance(other.mask, Tile)
    return 1.0 if tiled or replace(one, mask=None) != replace(other, mask=None) else _pairs(mine, theirs)


def _losses(one: Region, other: Region) -> float:
    x, y = losses_of(one.learning), losses_of(other.learning)
    whole, names = sum(x.values()) + sum(y.values()), sorted(x.keys() | y.keys())
    return sum(abs(x.get(name, 0.0) - y.get(name, 0.0)) for name in names) / whole if whole else 0.0


def _pairs(one: Wire, other: Wire) -> float:
    """Return the share of pairs that only one of two edges reads; 1 for masks of regions of different sizes."""
    if one.shape != other.shape:
        return 1.0
    masks = [np.ones(wire.shape, np.bool_) if wire.mask is None else wire.mask for wire in (one, other)]
    return float((masks[0] != masks[1]).mean())


def _wires(spec: Program) -> dict[str, Wire]:
    return {f"edges.{wire.name}": wire for wire in facts_of(spec.program).wires}


def _values(spec: Program, flat: F32Array) -> dict[str, F32Array]:
    """Return the concatenated parameters of each part; none if another layer owns some of them."""
    sizes = [int(np.prod(param.shape)) for param in spec.tensors()]
    if sum(sizes) != len(flat):
        return {}
    by_name = dict(zip((p.name for p in spec.tensors()), np.split(flat, np.cumsum(sizes)[:-1]), strict=True))
    aside = {param.name for param in recipe_params(facts_of(spec.program))}
    names_by_part = {part: [name for name in names if name not in aside] for part, names in parts_of(spec).items()}
    return {part: np.concatenate([by_name[name] for name in names]) for part, names in names_by_part.items() if names}


def _weights(x: F32Array | None, y: F32Array | None) -> float:
    if x is None or y is None or len(x) != len(y):
        return float((x is None) != (y is None) or (x is not None and y is not None))
    whole = float(np.abs(x).sum(dtype=np.float64) + np.abs(y).sum(dtype=np.float64))
    return float(np.abs(x - y).sum(dtype=np.float64)) / whole if whole > 0 else 0.0
