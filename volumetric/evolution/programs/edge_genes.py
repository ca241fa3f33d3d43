"""Edges as genes: add, remove and change. Each function returns None if the change is impossible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from volumetric.evolution.programs.program_change import Mark, MutatedProgram, can_close, edge_replaced, stays_as_it_was
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.edge_masks import Tile
from volumetric.program.layer.name_checks import RULES
from volumetric.program.layer.program_declaration import Program

T = TypeVar("T")
_LAGS = 6
"""Longest lag that mutation gives an edge that has none."""
_RULES = tuple(rule for rule in RULES if rule != "none")


def one_of(values: Sequence[T], rng: np.random.Generator) -> T:
    """Return one of some values."""
    return values[int(rng.integers(len(values)))]


def add_edge(program: Program, mark: Mark, rng: np.random.Generator) -> MutatedProgram | None:
    """Let a region read another, through a gate and without initial contribution if that does not change it."""
    names = [*program.canvas.regions]
    reads, writes = one_of(names, rng), one_of(names, rng)
    rule = one_of([rule for rule in _RULES if can_close(rule)], rng)
    lag = int(rng.integers(1, _LAGS + 1)) if program.timing == "stream" and rng.random() < 0.3 else None
    return with_edge(program, reads, writes, rule, mark, lag)


def with_edge(
    program: Program, reads: str, writes: str, rule: str, mark: Mark, lag: int | None = None
) -> MutatedProgram | None:
    """Add an edge named by its historical marking."""
    name = f"e{mark(('program edge', reads, writes, rule, lag))}"
    if any(edge.name == name for edge in program.edges):
        return None
    quiet = stays_as_it_was(program, writes)
    edge = Edge(reads=reads, writes=writes, rule=rule, write="gate" if quiet else "add", lag=lag, name=name)
    return MutatedProgram(program=replace(program, edges=(*program.edges, edge)), closed=(name,) if quiet else ())


def drop_edge(program: Program, mark: Mark, rng: np.random.Generator) -> MutatedProgram | None:
    """Remove an edge."""
    if not program.edges:
        return None
    gone = int(rng.integers(len(program.edges)))
    return MutatedProgram(program=replace(program, edges=program.edges[:gone] + program.edges[gone + 1 :]))


def change_edge(program: Program, mark: Mark, rng: np.random.Generator) -> MutatedProgram | None:
    """Change rule, way of writing, weight, lag, mask or ends of an edge; parameters that fit stay."""
    if not program.edges:
        return None
    at = int(rng.integers(len(program.edges)))
    edge = program.edges[at]
    changed = one_of(_CHANGES, rng)(program, edge, rng)
    if changed == edge:
        return None
    return MutatedProgram(program=edge_replaced(program, at, changed))


def _rule(program: Program, edge: Edge, rng: np.random.Generator) -> Edge:
    return replace(edge, rule=one_of(_RULES, rng), options={})


def _write(program: Program, edge: Edge, rng: np.random.Generator) -> Edge:
    return replace(edge, write=one_of(("add", "gate", "replace"), rng))


def _weight(program: Program, edge: Edge, rng: np.random.Generator) -> Edge:
    return replace(edge, weight=round(float((edge.weight or 1.0) * np.exp(rng.normal(0, 0.5))), 6))


def _lag(program: Program, edge: Edge, rng: np.random.Generator) -> Edge:
    if edge.lag is None:
        return replace(edge, lag=int(rng.integers(1, _LAGS + 1)))
    lag = edge.lag + one_of((-2, -1, 1, 2), rng)
    return replace(edge, lag=None if lag < 1 else lag)


def _mask(program: Program, edge: Edge, rng: np.random.Generator) -> Edge:
    if edge.mask is not None:
        return replace(edge, mask=None)
    return replace(edge, mask=Tile(tuple(int(rng.integers(1, side + 1)) for side in program.canvas.shape)))


def _reads(program: Program, edge: Edge, rng: np.random.Generator) -> Edge:
    return replace(edge, reads=one_of([*program.canvas.regions], rng))


def _writes(program: Program, edge: Edge, rng: np.random.Generator) -> Edge:
    return replace(edge, writes=one_of([*program.canvas.regions], rng))


_CHANGES: tuple[Callable[[Program, Edge, np.random.Generator], Edge], ...] = (
    _rule, _write, _weight, _weight, _lag, _lag, _mask, _reads, _writes,
)  # fmt: skip
