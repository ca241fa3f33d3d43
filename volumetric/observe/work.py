"""What programs cost: the arithmetic of each region, edge and port, and of what fired."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.graph.build import GraphBuilder
from volumetric.graph.products import flops_of
from volumetric.layers.base import ParamSpec
from volumetric.layers.program.attention import attend
from volumetric.layers.program.carriers import bound, carrier_params, filtered, remembered
from volumetric.layers.program.declared import Program
from volumetric.layers.program.facts import Facts, Place, facts_of
from volumetric.layers.program.parameters import read_width
from volumetric.layers.program.ports import In, Out
from volumetric.layers.program.tasks import Task, tasks_of
from volumetric.observe.firing import Firing


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a program computes for a stream, in floating-point operations of products.

    A product of matrices ``[n, k]`` and ``[k, m]`` has ``2 n k m``. What goes element by element is not counted.

    Attributes
    ----------
    regions : each time that a region computes: its carrier, and slots through which it is read
    edges : each time that an edge does. Each has maps of its own queries, keys and values, also where edges that share
        parameters (``share="rule"``) have these computed once
    ports : at each row: inputs and outputs are computed whatever fires
    """

    regions: Mapping[str, int]
    edges: Mapping[str, int]
    ports: Mapping[str, int]

    @property
    def most(self) -> int:
        """Of a row in which all regions and edges compute once."""
        return sum(sum(of.values()) for of in (self.regions, self.edges, self.ports))

    def done(self, firing: Firing) -> Array:
        """Return what was computed in each row of each stream, int64 ``[B, T]``."""
        regions, edges = (np.array([*of.values()], np.int64) for of in (self.regions, self.edges))
        return firing.regions @ regions + firing.edges @ edges + sum(self.ports.values())


@lru_cache(maxsize=32)
def work_of(program: Program) -> Work:
    """Return what the parts of a program cost, as counted from the nodes of which they are made.

    Raises
    ------
    SpecError : masks or lags do not fit, or rules cannot have their options
    """
    facts = facts_of(program)
    by_wire = {task.wire.index: task for task in tasks_of(facts)}
    edges = [by_wire.get(wire.index) for wire in facts.wires]
    return Work(
        regions={place.name: _region(facts, place) for place in facts.places},
        edges={
            wire.name: 0 if task is None else _edge(facts, task) for wire, task in zip(facts.wires, edges, strict=True)
        },
        ports={name: _port(facts, name) for name, port in program.ports.items() if isinstance(port, In | Out)},
    )


def _edge(facts: Facts, task: Task) -> int:
    d, total = facts.program.canvas.width, 0
    for part in task.parts:
        work = GraphBuilder()
        p = _params(work, task.rule.params(d, task.queries), "", (1,))
        queries = work.stored("queries", (1, 1, part.pairs.queries, d))
        source = work.stored("source", (1, 1, part.pairs.keys, d))
        total += flops_of(work.finish([attend(work, task.rule, p, queries, source, part.pairs)]))
    return total


def _region(facts: Facts, place: Place) -> int:
    d, name = facts.program.canvas.width, f"regions.{place.name}."
    work, made = GraphBuilder(), list[int]()
    p = _params(work, carrier_params(facts, place), name)
    rows = work.stored("rows", (1, len(place.positions), d))
    written = work.stored("written", (1, len(place.positions), 1))
    if place.carrier == "filter":
        made += filtered(work, p, rows, rows, written)
    if place.carrier == "memory":
        held = work.stored("held", (1, *work.shape(p["memory.keys"])))
        made += remembered(work, p, held, held, rows, written)
    if place.region.identity is not None:
        slots = work.stored("slots", (1, *work.shape(p["slots"])))
        made.append(bound(work, p, facts.program.heads, slots, rows))
    return flops_of(work.finish(made)) if made else 0


def _port(facts: Facts, name: str) -> int:
    port = facts.program.ports[name]
    wide = read_width(facts, port) if isinstance(port, Out) else facts.program.canvas.width
    return 2 * wide * (port.dim if isinstance(port, In | Out) else 0)


def _params(work: GraphBuilder, params: tuple[ParamSpec, ...], start: str, lead: Shape = ()) -> dict[str, int]:
    return {of.name.removeprefix(start): work.stored(of.name, (*lead, *of.shape)) for of in params}
