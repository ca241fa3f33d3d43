"""Generators of edges: by families, or by topology."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from volumetric.layers.field_checks import check_choice
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.program_declaration import Autowire, Program


def autowire(*, loops: bool = True) -> list[Autowire]:
    """Return a placeholder for all edges by families in a list of edges: ``autowire() + [Edge(...)]``.

    It skips pairs that another edge of the list joins. Edges that would replace results of others add instead:
    *intervene*, and *act* and *write* if several states write one region. Operators by families (reads → writes):

    ============================  ===============
    observation → state           observe
    state → observation           predict
    state → state                 integrate
    state → memory                write
    memory → state                retrieve
    state → action                act
    action → state                intervene
    state → residual              emit_residual
    observation → residual        emit_residual
    residual → state              correct
    other families → the same     attend
    ============================  ===============

    Parameters
    ----------
    loops : also add self-edges
    """
    return [Autowire(loops=loops)]


def dense(regions: Sequence[str], **fields: Any) -> list[Edge]:
    """Return edges between all pairs of regions, including self-edges; `fields` are those of each edge."""
    return [Edge(reads=reads, writes=writes, **fields) for writes in regions for reads in regions]


def isolated(regions: Sequence[str], **fields: Any) -> list[Edge]:
    """Return a self-edge for each region."""
    return [Edge(reads=name, writes=name, **fields) for name in regions]


def hub(centre: str, spokes: Sequence[str], *, back: bool = True, **fields: Any) -> list[Edge]:
    """Return self-edges, edges by which the centre reads all others, and (`back`) edges by which these read it."""
    edges = isolated([centre, *spokes], **fields)
    for name in spokes:
        edges.append(Edge(reads=name, writes=centre, **fields))
        edges += [Edge(reads=centre, writes=name, **fields)] if back else []
    return edges


def chain(regions: Sequence[str], **fields: Any) -> list[Edge]:
    """Return edges by which each region reads itself and the preceding region in the list."""
    ways = [Edge(reads=before, writes=after, **fields) for before, after in pairwise(regions)]
    return isolated(regions, **fields) + ways


def causal(regions: Sequence[str], **fields: Any) -> list[Edge]:
    """Return edges by which each region reads itself (now and one step back), and all others one step back."""
    own = [Edge(reads=name, writes=name, lag=lag, **fields) for name in regions for lag in (0, 1)]
    pairs = [(writes, reads) for writes in regions for reads in regions if reads != writes]
    return own + [Edge(reads=reads, writes=writes, lag=1, **fields) for writes, reads in pairs]


def localised(program: Program, regions: Iterable[str], rule: str = "local") -> Program:
    """Return the program with one rule for all edges between some regions, including self-edges.

    Raises
    ------
    SpecError : a region or the rule is unknown
    """
    own = list(regions)
    for name in own:
        check_choice("localised", name, program.canvas.regions)
    edges = [replace(e, rule=rule, options={}) if e.reads in own and e.writes in own else e for e in program.edges]
    return replace(program, edges=tuple(edges))
