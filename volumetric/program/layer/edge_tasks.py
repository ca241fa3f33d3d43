"""Computations of edges and their parameters: a rule over queries and keys for each part of an edge."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from volumetric.base._typing import Array
from volumetric.layers.layer_spec import ParamSpec
from volumetric.program.layer.attention import Attention, Pairs, rule_of
from volumetric.program.layer.attention.head_rules import gate
from volumetric.program.layer.frames import EdgePart
from volumetric.program.layer.program_facts import Facts, Place, Wire

GATE = "open"
"""Parameter of an edge that writes through a gate."""


@dataclass(frozen=True, eq=False, slots=True)
class TaskPart:
    """A part of an edge.

    Attributes
    ----------
    pairs : queries and keys
    written, read : indices into the positions that the edge writes, and into the rows that it reads
    receives : bool, which of `written` get a result; for the others the part has no effect
    share : share of the result
    """

    pairs: Pairs
    written: Array
    read: Array
    receives: Array
    share: float


@dataclass(frozen=True, eq=False, slots=True)
class EdgeTask:
    """Computation of an edge.

    Attributes
    ----------
    wire : the edge
    place : region that it writes
    source : index of the region that it reads, and number of steps back
    rule : rule with all its options
    owner : prefix of its parameters, common to all edges that share them
    parts : parts that are computed separately
    shares : sum of the shares of the parts with a result for a position, ``[written]``; 0: the position is not written
    is_prediction : it writes a residual region and reads no observation: its result is a prediction, which is
        subtracted to get the error
    """

    wire: Wire
    place: Place
    source: tuple[int, int]
    rule: Attention
    owner: str
    parts: tuple[TaskPart, ...]
    shares: Array
    is_prediction: bool

    @property
    def queries(self) -> int:
        """Maximum number of positions written at once."""
        return max(part.pairs.queries for part in self.parts)


@lru_cache(maxsize=32)
def tasks_of(facts: Facts) -> tuple[EdgeTask, ...]:
    """Return the computations of edges, in order, without edges that never write (weight 0, or all shares 0).

    Raises `SpecError` if a rule does not support its options, or this width.
    """
    owners: dict[Hashable, str] = {}
    tasks = (_task(facts, wire, owners) for wire in facts.wires)
    return tuple(task for task in tasks if task.wire.weight and task.shares.any())


def params_of(facts: Facts) -> tuple[ParamSpec, ...]:
    """Return the distinct parameters of all edges: ``<owner>.<name>``, and gates."""
    specs: dict[str, ParamSpec] = {}
    width = facts.program.canvas.width
    for task in tasks_of(facts):
        specs |= {f"{task.owner}.{of.name}": of for of in task.rule.params(width, task.queries)}
        if task.wire.write == "gate":
            specs[gate_of(task)] = gate()
    return tuple(dataclasses.replace(of, name=name) for name, of in specs.items())


def names_of(facts: Facts, task: EdgeTask) -> dict[str, str]:
    """Return the parameters of an edge's rule: name in the rule → name in the program."""
    own = task.rule.params(facts.program.canvas.width, task.queries)
    return {of.name: f"{task.owner}.{of.name}" for of in own}


def gate_of(task: EdgeTask) -> str:
    """Return the name of the gate through which an edge writes."""
    return f"edges.{task.wire.name}.{GATE}"


def _task(facts: Facts, wire: Wire, owners: dict[Hashable, str]) -> EdgeTask:
    program, place, read = facts.program, facts.places[wire.writes], facts.places[wire.reads]
    rule = rule_of(wire.rule, wire.edge.options, wire.heads)
    parts = tuple(_reads(program.parity, rule, wire, part, place, read) for part in wire.parts)
    shares = np.zeros(wire.shape[0])
    for part in parts:
        shares[part.written[part.receives]] += part.share
    lag = wire.edge.lag or 0
    task = EdgeTask(
        wire=wire,
        place=place,
        source=(wire.reads, lag if program.timing == "stream" else 0),
        rule=rule,
        owner=f"edges.{wire.name}",
        parts=parts,
        shares=shares,
        is_prediction=place.carrier == "residual" and read.region.family != "observation",
    )
    if program.share == "edge" or not parts:
        return task
    # Parameters may depend on the number of positions.
    alike = (rule, rule.params(program.canvas.width, task.queries))
    count = sum(1 for other in owners if isinstance(other, tuple) and type(other[0]) is type(rule))
    owner = owners.setdefault(alike, f"rules.{rule.name}" + (f".{count}" if count else ""))
    return dataclasses.replace(task, owner=owner)


def _reads(parity: bool, rule: Attention, wire: Wire, part: EdgePart, place: Place, read: Place) -> TaskPart:
    mask = None if wire.mask is None else wire.mask[np.ix_(part.written, part.read)]
    places = (place.coords[part.written], read.coords[part.read]) if read.through == "positions" else None
    pairs = Pairs(len(part.written), len(part.read), mask, places)
    receives = rule.written_queries(pairs)
    if parity and rule.name == "none":
        receives = np.ones_like(receives)
    return TaskPart(pairs, part.written, part.read, receives, part.share)
