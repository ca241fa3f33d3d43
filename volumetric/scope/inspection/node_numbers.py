"""The numbers of one node of a scene at one row: outputs and states, each an element that can be explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.layers import LayerSpec
from volumetric.network.grid import Coord
from volumetric.program.layer.program_layer import Program
from volumetric.scope.inspection.layer_facts import state_entry
from volumetric.scope.inspection.row_graph import RowGraph

SHOWN: Final = 4096
"""Maximum numbers of a group that are shown."""


@dataclass(frozen=True, slots=True)
class NumberGroup:
    """Numbers of a node.

    Attributes
    ----------
    name : ``"output"``, or a state
    tensor : tensor of the row's graph in which they stand
    places : element of the tensor for each
    shape : of the group
    """

    name: str
    tensor: int
    places: Array
    shape: tuple[int, ...]


def number_groups(graph: RowGraph, spec: LayerSpec, coord: Coord, index: int | None) -> list[NumberGroup]:
    """Return the numbers of a layer, or of one node of a fabric or a region of a program.

    Parameters
    ----------
    index : node within the layer; None: the layer is one node
    """
    at = str(coord)
    states = {key.removeprefix(f"{at}/"): i for key, i in graph.states_after.items() if key.startswith(f"{at}/")}
    if index is None or not states:  # without states each row is a sample with an axis of time
        return [_output(graph, at), *(_whole(graph, name, i) for name, i in states.items())]
    if isinstance(spec, Fabric):
        return _fabric_numbers(graph, spec, at, index, states)
    assert isinstance(spec, Program)
    place = spec.facts.places[index]
    canvas = graph.values[states["canvas"]]
    width = canvas.shape[-1]
    every = np.asarray(place.positions)[:, None] * width + np.arange(width)
    return [NumberGroup("content", states["canvas"], every.ravel(), every.shape)]


def _output(graph: RowGraph, at: str) -> NumberGroup:
    tensor = graph.outputs[at]
    shape = graph.values[tensor].shape
    width = int(np.prod(shape[1:]))
    return NumberGroup("output", tensor, np.arange(graph.row * width, (graph.row + 1) * width), shape[1:] or (1,))


def _whole(graph: RowGraph, name: str, tensor: int) -> NumberGroup:
    shape = graph.values[tensor].shape
    inner = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
    return NumberGroup(name, tensor, np.arange(graph.values[tensor].size), inner)


def _fabric_numbers(graph: RowGraph, spec: Fabric, at: str, index: int, states: Mapping[str, int]) -> list[NumberGroup]:
    facts = spec.facts
    if index >= facts.senders_count:
        output = _output(graph, at)
        for name, (first, last) in spec.ports("outputs").items():
            own = facts.ports[name]
            if own.start <= index - facts.senders_count < own.stop:
                return [NumberGroup(f"output {name}", output.tensor, output.places[first:last], (last - first,))]
    groups: list[NumberGroup] = []
    for name, tensor in states.items():
        entry = state_entry(spec, name, index) if name != "past" else None
        if entry is None:
            continue
        shape = graph.values[tensor].shape[1:]
        places = np.arange(graph.values[tensor].size).reshape(shape)
        own = np.take(places, range(entry[1], entry[2]), entry[0])
        groups.append(NumberGroup("public output" if name == "shown" else name, tensor, own.ravel(), own.shape[1:]))
    return groups


def describe_numbers(graph: RowGraph, groups: list[NumberGroup]) -> list[dict[str, Any]]:
    """Return groups as JSON data: ``name``, ``shape``, ``count``, ``values`` (the first ones, float64)."""
    return [
        {
            "name": group.name,
            "shape": list(group.shape),
            "count": len(group.places),
            "values": graph.values[group.tensor].ravel()[group.places[:SHOWN]].astype(np.float64),
        }
        for group in groups
    ]


def find_number(groups: list[NumberGroup], name: str, index: int) -> tuple[int, int]:
    """Return tensor and element of a number.

    Raises
    ------
    SpecError : there is no such group or number
    """
    for group in groups:
        if group.name == name:
            if not 0 <= index < len(group.places):
                raise SpecError(f"{name} has {len(group.places)} numbers, there is no number {index}")
            return group.tensor, int(group.places[index])
    raise SpecError(f"this node has no {name!r}", hint="one of " + ", ".join(group.name for group in groups))


def describe_held(held: Array) -> list[dict[str, Any]]:
    """Return the output that a layer keeps at a tick, as `describe_numbers` does."""
    values = held.ravel()
    return [{"name": "output", "shape": list(held.shape[1:]), "count": values.size, "values": values[:SHOWN]}]


def trace_held(held: Array, index: int) -> dict[str, Any]:
    """Return the trace of a number that a layer keeps at a tick.

    Raises
    ------
    SpecError : there is no such number
    """
    if not 0 <= index < held.size:
        raise SpecError(f"output has {held.size} numbers, there is no number {index}")
    value = float(held.ravel()[index])
    note = "the layer does not compute at this tick, so it keeps its output of the tick before"
    return {
        "value": value,
        "steps": [{"formula": "y before", "value": value, "op": "kept", "note": note, "operands": []}],
    }
