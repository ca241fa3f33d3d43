"""What a layer is, in words and numbers: fields, formula, shapes, parameters, states, clock."""

from __future__ import annotations

import dataclasses
import inspect
from math import prod
from typing import Any, Final

import numpy as np

from volumetric.base._typing import ROWS, Shape
from volumetric.clocked import Clocked
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_entries import param_entries, state_entries
from volumetric.layers import LayerSpec
from volumetric.layers.node_layer import NodeEntries
from volumetric.network import Network, Params
from volumetric.network.grid import Coord
from volumetric.program.layer.program_facts import Place
from volumetric.program.layer.program_layer import Program
from volumetric.scope.inspection.parameter_blocks import matrix_shape, parameter_statistics
from volumetric.scope.inspection.row_groups import part_names

_FIELDS: Final = 40
_TEXT: Final = 120
_PARAMS: Final = 400
"""Maximum number of parameters of a layer that are listed."""


def layer_facts(machine: Network | Clocked, params: Params, coord: Coord, *, statistics: bool = True) -> dict[str, Any]:
    """Return the facts of a layer as JSON data.

    Parameters
    ----------
    statistics : read the weights for their histograms
    """
    network = machine.network if isinstance(machine, Clocked) else machine
    spec = network.layers[coord]
    facts: dict[str, Any] = {
        "coord": str(coord),
        "kind": spec.kind,
        "fields": _fields(spec),
        "about": _about(spec),
        "formula": _formula(spec),
        "in": _shape(network.reads[coord]),
        "out": _shape(network.shapes[coord]),
        "disabled": coord in network.disabled,
        "weights": sum(prod(p.shape) for p in spec.params()),
        "parameters": [
            _parameter(network, params, coord, spec, p.name, statistics=statistics) for p in spec.tensors()[:_PARAMS]
        ],
        "leftOut": max(0, len(spec.tensors()) - _PARAMS),
        "states": [
            {"name": state.name, "shape": list(state.shape), "kind": state.kind} for state in _states(network, coord)
        ],
        "children": [[path, child.kind] for path, child in spec.children().items()][:_FIELDS],
    }
    if isinstance(machine, Clocked):
        facts["clock"] = str(machine.clocks[coord]) if coord in machine.clocks else "every tick"
    return facts


def _parameter(
    network: Network, params: Params, coord: Coord, spec: LayerSpec, name: str, *, statistics: bool
) -> dict[str, Any]:
    key = f"{coord}/{name}"
    store = params[network.resolve(key)]
    facts: dict[str, Any] = {
        "name": name,
        "shape": list(store.shape),
        "matrix": list(matrix_shape(store.shape)),
        "dtype": store.dtype,
        "bits": round(store.nbytes * 8 / max(1, store.size), 3),
    }
    if network.resolve(key) != key:
        facts["shared"] = network.resolve(key)
    if statistics:
        facts["statistics"] = parameter_statistics(store)
    parts = part_names(spec, name)
    return facts if parts is None else {**facts, "parts": parts}


def fabric_nodes(spec: Fabric) -> dict[str, Any]:
    """Return the facts of a fabric's nodes as arrays over nodes.

    Returns
    -------
    dict
        ``ids``, ``coords`` ``[nodes, axes]``, ``in`` and ``out`` (numbers of edges), ``populations`` (name, first, past
        the last, cell, share), and ``entries``: parameter → ``axis``, ``width`` and ``place`` (each node's own entry
        along the axis, or -1)
    """
    facts = spec.facts
    count, first = len(facts.order), facts.inputs
    incoming = np.zeros(count, np.int32)
    incoming[first:] = np.diff(facts.starts)
    outgoing = np.bincount(facts.senders, minlength=count).astype(np.int32)
    entries: dict[str, Any] = {}
    for name, of in param_entries(spec).items():
        place = np.full(count, -1, np.int32)
        _, here, there = np.intersect1d(facts.order, of.nodes, return_indices=True)
        place[here] = of.places[there]
        entries[name] = {"axis": of.axis, "width": of.width, "place": place}
    populations = [
        [p.name, own.start + first, own.stop + first, type(p.cell).__name__.lower(), p.share]
        for p in spec.populations
        for own in [facts.populations[p.name]]
    ]
    return {
        "ids": facts.order.astype(np.int64),
        "coords": facts.coords.astype(np.float32),
        "in": incoming,
        "out": outgoing,
        "populations": populations,
        "entries": entries,
    }


def program_nodes(spec: Program) -> list[dict[str, Any]]:
    """Return the facts of a program's regions: ``facts`` (pairs of texts), ``parameters`` (names of their own)."""
    names = [p.name for p in spec.params()]
    return [_region(spec, place, names) for place in spec.facts.places]


def _region(spec: Program, place: Place, names: list[str]) -> dict[str, Any]:
    region = place.region
    wires = [wire for wire in spec.facts.wires if place.index in (wire.reads, wire.writes)]
    every = "every row" if region.period == 1 else f"every {region.period} rows"
    pairs = [
        ["family", region.family],
        ["carrier", place.carrier],
        ["box", " × ".join(f"{low}…{high - 1}" for low, high in region.box)],
        ["positions", str(len(place.positions))],
        ["clock", every if region.clock is None else str(region.clock)],
        *(["edge", f"{wire.name}: {wire.rule}"] for wire in wires[:_FIELDS]),
    ]
    starts = [f"regions.{place.name}.", f"codes.region.{place.name}", *(f"edges.{wire.name}." for wire in wires)]
    ports = spec.facts.program.ports.items()
    starts += [f"ports.{name}." for name, port in ports if getattr(port, "region", None) == place.name]
    return {"facts": pairs, "parameters": [name for name in names if name.startswith(tuple(starts))]}


def entry_of(of: NodeEntries, node: int) -> tuple[int, int, int] | None:
    """Return axis, first and past the last entry of a node, or None."""
    at = (of.nodes == node).nonzero()[0]
    if not len(at):
        return None
    first = int(of.places[at[0]]) * of.width
    return of.axis, first, first + of.width


def state_entry(spec: Fabric, state: str, index: int) -> tuple[int, int, int] | None:
    """Return axis, first and past the last entry of a fabric's node in a state, or None."""
    return entry_of(state_entries(spec)[state], int(spec.facts.order[index]))


def _states(network: Network, coord: Coord):
    return network.layers[coord].states((ROWS, *network.reads[coord][1:]))


def _shape(shape: Shape) -> list[str]:
    return ["rows" if n == ROWS else str(n) for n in shape]


def _fields(spec: LayerSpec) -> list[list[str]]:
    """Return the fields that are not at their defaults, as text."""
    pairs: list[list[str]] = []
    for field in dataclasses.fields(spec)[:_FIELDS]:  # pyright: ignore[reportArgumentType]  (specs are dataclasses)
        value = getattr(spec, field.name)
        if field.name == spec.children_field or (field.default is not dataclasses.MISSING and value == field.default):
            continue
        text = str(value)
        pairs.append([field.name, text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"])
    return pairs


def _about(spec: LayerSpec) -> str:
    doc = inspect.getdoc(type(spec)) or ""
    return " ".join(doc.split("\n\n")[0].replace("`", "").split())


def _formula(spec: LayerSpec) -> str:
    """Return the equations of a layer from its documentation, or ""."""
    _, there, rest = (inspect.getdoc(type(spec)) or "").partition("::\n\n")
    lines: list[str] = []
    for line in rest.split("\n") if there else ():
        if line.strip() and not line.startswith(" "):
            break
        lines.append(line)
    return inspect.cleandoc("\n".join(lines)).strip()[:1200]
