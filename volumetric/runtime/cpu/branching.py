"""Steps that run others, and what they choose by: recurrent cells over time, and mixtures of branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from volumetric.kernels.cpu.cells import CELL_ARGUMENTS, CELLS, STATE_ARGUMENTS
from volumetric.kernels.cpu.maths import ACTIVATIONS
from volumetric.kernels.cpu.mixing import ACTIVATE_ARGUMENTS, LARGEST_ARGUMENTS, MIX_ARGUMENTS
from volumetric.runtime.cpu.table import Record, arguments
from volumetric.runtime.graph.ops import Node

if TYPE_CHECKING:
    from volumetric.runtime.cpu.program import Form, Program


def _recurrence(program: Program, node: Node, form: Form) -> list[Record]:
    """The product with the hidden states of all pieces and the cell, for each step of time."""
    layout, states = program.layout, program.graph.states(node)
    wide = program.graph.tensors[node.inputs[0]].width
    units = program.graph.tensors[node.outputs[0]].width
    rows = dict(zip(states, (layout.hidden, layout.held), strict=False))
    moves = [
        arguments(STATE_ARGUMENTS, state=layout.state_place(key), slot=rows[name], size=units)
        for name, key in states.items()
    ]
    product = program.products(node, form, layout.hidden, layout.from_hidden)
    given = arguments(
        CELL_ARGUMENTS,
        from_x=layout.slot(node.inputs[0]),
        from_h=layout.from_hidden,
        y=layout.slot(node.outputs[0]),
        h=layout.hidden,
        c=layout.held,
        size=units,
    )
    cell = Record(name="cell", constants=(CELLS.index(node.attrs["cell"]),), arguments=given)
    return [
        *(Record(name="recall", arguments=one) for one in moves),
        Record(name="loop", arguments=(), body=(*product, cell), note=f"{wide}x{units}"),
        *(Record(name="retain", arguments=one) for one in moves),
    ]


def _keep_largest(program: Program, node: Node, form: Form) -> list[Record]:
    given = arguments(
        LARGEST_ARGUMENTS,
        input=program.layout.slot(node.inputs[0]),
        output=program.layout.slot(node.outputs[0]),
        width=program.graph.tensors[node.inputs[0]].width,
        k=node.attrs["k"],
    )
    return [Record(name="keep_largest", arguments=given, tail=node.tail)]


def _mix(program: Program, node: Node, form: Form) -> list[Record]:
    weights, *branches = map(program.layout.slot, node.inputs)
    given = arguments(
        MIX_ARGUMENTS,
        weights=weights,
        branches=program.weights.keep(("mix", tuple(branches)), lambda: np.array(branches, np.int64)),
        count=len(branches),
        output=program.layout.slot(node.outputs[0]),
        width=program.graph.tensors[node.outputs[0]].width,
    )
    return [Record(name="mix", arguments=given, tail=node.tail)]


def _activate(program: Program, node: Node, form: Form) -> list[Record]:
    slots = [program.layout.slot(i) for i in node.inputs]
    given = arguments(
        ACTIVATE_ARGUMENTS,
        input=slots[0],
        factor=slots[1] if len(slots) == 2 else -1,
        output=program.layout.slot(node.outputs[0]),
        width=program.graph.tensors[node.outputs[0]].width,
    )
    code = ACTIVATIONS.index(node.attrs["activation"])
    return [Record(name="activate", constants=(code,), arguments=given, tail=node.tail)]


BRANCHING: Mapping[str, Callable[[Program, Node, Form], list[Record]]] = MappingProxyType(
    {"recurrence": _recurrence, "keep_largest": _keep_largest, "mix": _mix, "activate": _activate}
)
"""Operation → what appends its steps, for products of a form."""
