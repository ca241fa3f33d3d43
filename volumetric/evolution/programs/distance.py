"""How far two programs are apart: by what they are made of, how it is declared, and its parameters."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from volumetric._typing import F32Array
from volumetric.evolution.programs.learned import losses_of
from volumetric.evolution.programs.parts import genes_of, parts_of
from volumetric.layers.program.edge import Edge
from volumetric.layers.program.facts import Wire, facts_of
from volumetric.layers.program.masks import Tile
from volumetric.layers.program.ports import Port
from volumetric.layers.program.recipes import recipe_params
from volumetric.layers.program.region import Region
from volumetric.layers.program.spec import Program


def difference(a: Program, b: Program, mine: F32Array, theirs: F32Array) -> float:
    """Return how far two programs are apart, 0 … 1.

    That is the share of regions, edges and ports, by name, that one has and the other has not, and for the rest the
    mean of: 1 where they are declared otherwise, else the larger of ``Σ|x - y| / Σ(|x| + |y|)`` over their parameters
    and how far their masks of blocks or pairs (the share of pairs) or weights of losses (by the same formula) are
    apart. So a mask that hides nothing and a loss of weight 0 are no distance, and parameters that only losses have
    count for none. Edges with several tiles are declared otherwise.

    Parameters
    ----------
    mine, theirs : parameters side by side, in the order of the layers'
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
    """Return the share of pairs at which only one of two edges looks; masks of regions of several sizes are 1 apart."""
    if one.shape != other.shape:
        return 1.0
    masks = [np.ones(wire.shape, np.bool_) if wire.mask is None else wire.mask for wire in (one, other)]
    return float((masks[0] != masks[1]).mean())


def _wires(spec: Program) -> dict[str, Wire]:
    return {f"edges.{wire.name}": wire for wire in facts_of(spec.program).wires}


def _values(spec: Program, flat: F32Array) -> dict[str, F32Array]:
    """Parameters of each part, side by side; none where some of them are another layer's."""
    sizes = [int(np.prod(param.shape)) for param in spec.tensors()]
    if sum(sizes) != len(flat):
        return {}
    by_name = dict(zip((p.name for p in spec.tensors()), np.split(flat, np.cumsum(sizes)[:-1]), strict=True))
    aside = {param.name for param in recipe_params(facts_of(spec.program))}
    kept = {part: [name for name in names if name not in aside] for part, names in parts_of(spec).items()}
    return {part: np.concatenate([by_name[name] for name in names]) for part, names in kept.items() if names}


def _weights(x: F32Array | None, y: F32Array | None) -> float:
    if x is None or y is None or len(x) != len(y):
        return float((x is None) != (y is None) or (x is not None and y is not None))
    whole = float(np.abs(x).sum(dtype=np.float64) + np.abs(y).sum(dtype=np.float64))
    return float(np.abs(x - y).sum(dtype=np.float64)) / whole if whole > 0 else 0.0
