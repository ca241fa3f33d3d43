"""Steps that run others, and what they choose by: recurrent cells over time, and mixtures of branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from volumetric.kernels.cpu.cells import CELL_ARGUMENTS, CELLS, STATE_ARGUMENTS
from volumetric.kernels.cpu.mixing import LARGEST_ARGUMENTS, MIX_ARGUMENTS
from volumetric.runtime.cpu.table import Record, arguments
from volumetric.runtime.plan import Step

if TYPE_CHECKING:
    from volumetric.runtime.cpu.program import Form, Program


def _recurrence(program: Program, step: Step, form: Form) -> list[Record]:
    """The product with the hidden states of all pieces and the cell, for each step of time."""
    layout, wide = program.layout, program.plan.values[step.inputs[0]].width
    units = program.plan.values[step.outputs[0]].width
    rows = dict(zip(step.states, (layout.hidden, layout.held), strict=False))
    moves = [
        arguments(STATE_ARGUMENTS, state=layout.state_place(key), slot=rows[name], size=units)
        for name, key in step.states.items()
    ]
    product = program.products(step, form, layout.hidden, layout.from_hidden)
    given = arguments(
        CELL_ARGUMENTS,
        from_x=layout.slot(step.inputs[0]),
        from_h=layout.from_hidden,
        y=layout.slot(step.outputs[0]),
        h=layout.hidden,
        c=layout.held,
        size=units,
    )
    cell = Record(name="cell", constants=(CELLS.index(step.attrs["cell"]),), arguments=given)
    return [
        *(Record(name="recall", arguments=one) for one in moves),
        Record(name="loop", arguments=(), body=(*product, cell), note=f"{wide}x{units}"),
        *(Record(name="retain", arguments=one) for one in moves),
    ]


def _keep_largest(program: Program, step: Step, form: Form) -> list[Record]:
    given = arguments(
        LARGEST_ARGUMENTS,
        input=program.layout.slot(step.inputs[0]),
        output=program.layout.slot(step.outputs[0]),
        width=program.plan.values[step.inputs[0]].width,
        k=step.attrs["k"],
    )
    return [Record(name="keep_largest", arguments=given, tail=step.tail)]


def _mix(program: Program, step: Step, form: Form) -> list[Record]:
    weights, *branches = map(program.layout.slot, step.inputs)
    given = arguments(
        MIX_ARGUMENTS,
        weights=weights,
        branches=program.weights.keep(("mix", tuple(branches)), lambda: np.array(branches, np.int64)),
        count=len(branches),
        output=program.layout.slot(step.outputs[0]),
        width=program.plan.values[step.outputs[0]].width,
    )
    return [Record(name="mix", arguments=given, tail=step.tail)]


BRANCHING: Mapping[str, Callable[[Program, Step, Form], list[Record]]] = MappingProxyType(
    {"recurrence": _recurrence, "keep_largest": _keep_largest, "mix": _mix}
)
"""Operation → what appends its steps, for products of a form."""
