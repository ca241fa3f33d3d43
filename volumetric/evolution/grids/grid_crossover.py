"""Crossover of grids, aligned by markings, and the distance of grids."""

from __future__ import annotations

import dataclasses

import numpy as np

from volumetric.dtypes import encode
from volumetric.evolution.evolution_config import SpeciesConfig
from volumetric.evolution.grids.grid_genome import Allele, GridGenome
from volumetric.network import Params
from volumetric.network.grid import Coord
from volumetric.network.weight_store import WeightStore


def crossover(fitter: GridGenome, other: GridGenome, rng: np.random.Generator, *, disable: float = 0.75) -> GridGenome:
    """Return a child with the structure of `fitter` and, layer by layer, the weights of a random parent.

    Matching genes are layers with the same marking and spec, and regions and edges of programs with the same name; each
    comes from a random parent. Excess and disjoint genes come from the fitter parent (Stanley & Miikkulainen 2002). A
    layer that is disabled in only one parent is disabled in the child with probability `disable`. The child keeps the
    dtypes of `fitter`.
    """
    theirs = {marking: coord for coord, marking in other.markings.items()}
    stores = dict(fitter.params)
    disabled = set(fitter.network.disabled)
    for coord, marking in fitter.markings.items():
        match = theirs.get(marking)
        if match is None:
            continue
        spec, theirs_spec = fitter.network.layers[coord], other.network.layers[match]
        if spec.kind == theirs_spec.kind == "program":
            from volumetric.evolution.programs.program_crossover import with_program

            fitter, stores = with_program(fitter, coord, stores, other, match, rng)
        elif spec != theirs_spec:
            continue
        else:
            mine, keys = fitter.layer_keys(coord), other.layer_keys(match)
            if rng.random() < 0.5 and mine.keys() == keys.keys():
                for name, key in mine.items():
                    stores[key] = in_type_of(other.params[keys[name]], fitter.params[key])
        if (coord in fitter.network.disabled) != (match in other.network.disabled):
            disabled = disabled | {coord} if rng.random() < disable else disabled - {coord}
    child = dataclasses.replace(fitter, params=Params(stores))
    return _with_disabled(child, frozenset(disabled))


def in_type_of(store: WeightStore, like: WeightStore) -> WeightStore:
    """Return `store` in the dtype of `like`."""
    same = store.scheme == like.scheme
    return WeightStore.from_packed(store.packed() if same else encode(store.values(), like.scheme))


def _with_disabled(genome: GridGenome, disabled: frozenset[Coord]) -> GridGenome:
    from volumetric.evolution.grids.grid_mutation import toggle

    for coord in sorted(disabled ^ genome.network.disabled):
        genome = toggle(genome, coord) or genome  # a layer that changes the shape cannot be switched off here
    return genome


def distance(a: GridGenome, b: GridGenome, rules: SpeciesConfig) -> float:
    """Return the compatibility distance ``c₁·E/N + c₂·D/N + c₃·W̄``.

    E and D count excess and disjoint layers and links; N is their number in the larger genome (1 for small ones). W̄ is
    the mean over the matching layers: 1 if they differ in kind, shape or settings, else ``Σ|x - y| / Σ(|x| + |y|)``
    over their weights, and for two programs `programs.crossover.difference`; ½ is added if only one of the two is
    disabled.
    """
    alone = a.genes ^ b.genes
    reach = min(max(a.genes), max(b.genes))
    excess = sum(marking > reach for marking in alone)
    size = max(len(a.genes), len(b.genes))
    size = 1 if size < rules.small_genome else size
    theirs = b.alleles
    apart = [_difference(allele, theirs[m]) for m, allele in a.alleles.items() if m in theirs]
    mean = sum(apart) / len(apart) if apart else 0.0
    return (rules.excess * excess + rules.disjoint * (len(alone) - excess)) / size + rules.weight * mean


def _difference(a: Allele, b: Allele) -> float:
    if a is b:
        return 0.0
    if a.spec.kind == b.spec.kind == "program":
        from volumetric.evolution.programs.program_crossover import difference
        from volumetric.program.layer.program_layer import Program

        assert isinstance(a.spec, Program)
        assert isinstance(b.spec, Program)
        return 0.5 * (a.disabled != b.disabled) + difference(a.spec, b.spec, a.weights, b.weights)
    if a.spec != b.spec or len(a.weights) != len(b.weights):
        return 1.0
    whole = a.size + b.size
    apart = float(np.abs(a.weights - b.weights).sum(dtype=np.float64))
    return 0.5 * (a.disabled != b.disabled) + (apart / whole if whole > 0 else 0.0)
