"""Firing of a program: computations of regions and edges in each row, values of meters, and cost."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.base.notebook_html import drawn_bundle
from volumetric.devices.named_devices import AnyDevice, open_device
from volumetric.graph.build import GraphBuilder
from volumetric.graph.flops import flops_of
from volumetric.layers.layer_spec import ParamSpec
from volumetric.network import INPUT, Network, Params
from volumetric.program.layer.attention import attend
from volumetric.program.layer.carriers import bind_slots, carrier_params, step_filter, step_memory
from volumetric.program.layer.edge_tasks import EdgeTask, tasks_of
from volumetric.program.layer.ports import In, Out
from volumetric.program.layer.program_declaration import Program as Declared
from volumetric.program.layer.program_facts import Facts, Place, facts_of
from volumetric.program.layer.program_layer import Program
from volumetric.program.layer.program_params import read_width
from volumetric.program.layer.watch_outputs import EDGES, METERS, REGIONS, STRENGTH, meter_names
from volumetric.run.streams import RowStream, open_stream
from volumetric.run.streams.stream_io import outputs_by_port

_CALL = 1024
"""Rows per call; longer runs are split."""
_COPIES: WeakKeyDictionary[RowStream, RowStream] = WeakKeyDictionary()
"""Streams → watched copies, which are compiled once per stream and freed with it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Firing:
    """Activity of a program in each row of some streams.

    Attributes
    ----------
    program : the program
    outputs : result of `stream.run` for these rows
    regions : number of computations of each region, in order; 0 if it did not fire; int64 ``[B, T, regions]``
    edges : number of times that each edge read and wrote, int64 ``[B, T, edges]``; always 0 for an edge without a write
    strength : root mean square of each region's content after the row, float32 ``[B, T, regions]``
    meters : ``region.kind`` → value for clocks after the row, float32 ``[B, T]``
    resets : 1 if a stream was reset before the row, ``[B, T]``
    """

    program: Declared
    outputs: Array | dict[str, Array]
    regions: Array
    edges: Array
    strength: Array
    meters: dict[str, Array]
    resets: Array

    def __repr__(self) -> str:
        streams, rows, regions = self.regions.shape
        return f"<Firing: {rows} rows of {streams} streams, {regions} regions, {self.edges.shape[-1]} edges>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the raster of the first stream for notebooks, beside its text."""
        return drawn_bundle("firing", self)

    def region(self, name: str) -> Array:
        """Return the computations of a region in each row, ``[B, T]``. Raises `SpecError` for an unknown name."""
        return self.regions[..., _place([*self.program.canvas.regions], name, "region")]

    def edge(self, name: str) -> Array:
        """Return the computations of an edge in each row, ``[B, T]``. Raises `SpecError` for an unknown name."""
        return self.edges[..., _place([edge.name or "" for edge in self.program.edges], name, "edge")]


def watchable(network: Network) -> Program | None:
    """Return the program of a network, if it is the last layer and the only output; else None."""
    if network.inputs or network.outputs or not network.layers:
        return None
    *_, (coord, last) = network.layers.items()
    return last if isinstance(last, Program) and coord not in network.disabled else None


def watched_network(network: Network) -> Network:
    """Return the network with its last layer, a program, `watched`; weights and states do not change."""
    *_, (coord, last) = network.layers.items()
    assert isinstance(last, Program)
    return replace(network, layers={**network.layers, coord: replace(last, watched=True)})


def fired(
    machine: RowStream | Network,
    x: Array | Mapping[str, Array],
    *,
    params: Params | None = None,
    device: AnyDevice = "auto",
    resets: Array | None = None,
) -> Firing:
    """Run rows through a program; return its outputs and what fired.

    The outputs are those of an ordinary run. Each row also returns a few numbers, and strengths are computed.

    Parameters
    ----------
    machine : streams, which continue; or a network, whose streams start here on `device` with `params`
    x : ``[B, T, …]``, or a dict by input or port
    resets : ``[B, T]``, 1 resets a stream before that row

    Raises
    ------
    SpecError : the last layer is no program, or `params` are missing
    ShapeError : rows do not match the network's inputs
    """
    network = machine if isinstance(machine, Network) else machine.network
    spec = watchable(network)
    if spec is None or spec.watched:
        raise SpecError("fired needs a network whose last layer is a program", hint="program.network() builds one")
    batch = _batch(x, resets)
    if isinstance(machine, RowStream):
        rows = _run(machine, network, x, resets)
    elif params is None:
        raise SpecError("a network needs params to run", hint="pass them: fired(network, x, params=…)")
    else:
        watched = open_stream(open_device(device), watched_network(machine), params, batch=batch)
        assert isinstance(watched, RowStream)
        with closing(watched):
            rows = _run_parts(watched, x, resets)
    width = max(end for _, end in spec.ports("outputs").values())
    columns = replace(spec, watched=True).ports("outputs")
    part = {name: rows[..., slice(*columns[name])] for name in (REGIONS, EDGES, STRENGTH, METERS)}
    return Firing(
        program=spec.program,
        outputs=outputs_by_port(network, x, {"output": rows[..., :width]}),
        regions=part[REGIONS].astype(np.int64),
        edges=part[EDGES].astype(np.int64),
        strength=part[STRENGTH],
        meters={name: part[METERS][..., i] for i, name in enumerate(meter_names(spec.facts))},
        resets=np.zeros(rows.shape[:2], np.int64) if resets is None else np.asarray(resets),
    )


def _batch(x: Array | Mapping[str, Array], resets: Array | None) -> int:
    """Return the number of streams of rows. Raises `ShapeError` unless they are ``[B, T, …]``."""
    inputs = dict(x) if isinstance(x, Mapping) else {INPUT: x}
    for name, value in (inputs if resets is None else {**inputs, "resets": resets}).items():
        if np.ndim(value) < 2:
            raise ShapeError(f"{name}: expected [B, T, …], got {list(np.shape(value))}")
    if not inputs:
        raise ShapeError("no input has rows", hint="pass rows for every input")
    return len(next(iter(inputs.values())))


def _run(stream: RowStream, network: Network, x: Array | Mapping[str, Array], resets: Array | None) -> Array:
    """Run rows through a watched copy, and move the stream to its state."""
    copy = _COPIES.get(stream)
    if copy is None:
        copy = _COPIES[stream] = stream.tap({}, watched_network(network))
    else:
        copy.live_as(stream)
        copy.restore(stream.save())
    rows = _run_parts(copy, x, resets)
    stream.restore(copy.save())
    return rows


def _run_parts(copy: RowStream, x: Array | Mapping[str, Array], resets: Array | None) -> Array:
    """Run rows through watched streams, a part at a time."""
    inputs = x if isinstance(x, Mapping) else {INPUT: np.asarray(x)}
    count = max((np.shape(value)[1] for value in inputs.values() if np.ndim(value) > 1), default=0)
    parts: list[Array] = []
    for at in range(0, max(count, 1), _CALL):
        some = {name: value[:, at : at + _CALL] for name, value in inputs.items()}
        now = None if resets is None else np.asarray(resets)[:, at : at + _CALL]
        outputs = copy.run(some, resets=now)
        parts.append(outputs if not isinstance(outputs, dict) else np.concatenate([*outputs.values()], 2))
    return np.concatenate(parts, 1)


def _place(names: list[str], name: str, what: str) -> int:
    if name not in names:
        raise SpecError(f"the program has no {what} {name!r}", hint="there are " + ", ".join(names)[:500])
    return names.index(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Cost of a program for a stream, in floating-point operations of matrix products.

    A product of matrices ``[n, k]`` and ``[k, m]`` has ``2 n k m``. Elementwise operations do not count.

    Attributes
    ----------
    regions : cost of one computation of each region: its carrier, and the slots through which it is read
    edges : cost of one computation of each edge. Projections to queries, keys and values count for each edge, although
        edges that share parameters (``share="rule"``) compute them once
    ports : cost per row of inputs and outputs, which are computed regardless of clocks
    """

    regions: Mapping[str, int]
    edges: Mapping[str, int]
    ports: Mapping[str, int]

    @property
    def most(self) -> int:
        """Cost of a row in which all regions and edges compute once."""
        return sum(sum(of.values()) for of in (self.regions, self.edges, self.ports))

    def cost_of(self, firing: Firing) -> Array:
        """Return the cost of each row of each stream, int64 ``[B, T]``."""
        regions, edges = (np.array([*of.values()], np.int64) for of in (self.regions, self.edges))
        return firing.regions @ regions + firing.edges @ edges + sum(self.ports.values())


@lru_cache(maxsize=32)
def work_of(program: Declared) -> Work:
    """Return the cost of the parts of a program, counted from their graph nodes.

    Raises
    ------
    SpecError : masks or lags do not fit, or a rule has unsupported options
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


def _edge(facts: Facts, task: EdgeTask) -> int:
    d, total = facts.program.canvas.width, 0
    for part in task.parts:
        work = GraphBuilder()
        p = _params(work, task.rule.params(d, task.queries), "", (1,))
        queries = work.stored_tensor("queries", (1, 1, part.pairs.queries, d))
        source = work.stored_tensor("source", (1, 1, part.pairs.keys, d))
        total += flops_of(work.finish([attend(work, task.rule, p, queries, source, part.pairs)]))
    return total


def _region(facts: Facts, place: Place) -> int:
    d, name = facts.program.canvas.width, f"regions.{place.name}."
    work, outputs = GraphBuilder(), list[int]()
    p = _params(work, carrier_params(facts, place), name)
    rows = work.stored_tensor("rows", (1, len(place.positions), d))
    written = work.stored_tensor("written", (1, len(place.positions), 1))
    if place.carrier == "filter":
        outputs += step_filter(work, p, rows, rows, written)
    if place.carrier == "memory":
        memory = work.stored_tensor("held", (1, *work.shape(p["memory.keys"])))
        outputs += step_memory(work, p, memory, memory, rows, written)
    if place.region.identity is not None:
        slots = work.stored_tensor("slots", (1, *work.shape(p["slots"])))
        outputs.append(bind_slots(work, p, facts.program.heads, slots, rows))
    return flops_of(work.finish(outputs)) if outputs else 0


def _port(facts: Facts, name: str) -> int:
    port = facts.program.ports[name]
    wide = read_width(facts, port) if isinstance(port, Out) else facts.program.canvas.width
    return 2 * wide * (port.dim if isinstance(port, In | Out) else 0)


def _params(work: GraphBuilder, params: tuple[ParamSpec, ...], start: str, lead: Shape = ()) -> dict[str, int]:
    return {of.name.removeprefix(start): work.stored_tensor(of.name, (*lead, *of.shape)) for of in params}
