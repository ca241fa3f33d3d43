"""Steps of recurrent cells: a product and the cell for each time step."""

from __future__ import annotations

from typing import Any

from volumetric.devices.cpu.kernels.row_cells import CELL_ARGUMENTS, CELLS, STATE_ARGUMENTS
from volumetric.devices.cpu.rows.products import products
from volumetric.devices.cpu.rows.row_step_builder import RowStepBuilder, rule
from volumetric.graph.ops import Node


@rule("recurrence")
def recurrence(builder: RowStepBuilder, node: Node) -> None:
    """The product with the hidden states of all sequences and the cell, for each time step."""
    x, y = node.inputs[0], node.outputs[0]
    wide, units = builder.width(x), builder.width(y)
    hidden, cell_state, from_hidden = (
        builder.temporary(4 * units),
        builder.temporary(4 * units),
        builder.temporary(4 * wide),
    )
    keys = list(builder.graph.states(node).values())
    moves = [
        {"state": builder.settings.state_place(key), "slot": slot, "size": units}
        for key, slot in zip(keys, (hidden, cell_state), strict=False)
    ]
    for move in moves:
        builder.add("recall", STATE_ARGUMENTS, reads=(), writes=(move["slot"],), **move)
    first = len(builder.steps)
    products(builder, node, hidden, from_hidden)
    arguments: dict[str, Any] = {
        "writes": (y, hidden, cell_state),
        "from_x": x,
        "from_h": from_hidden,
        "y": y,
        "h": hidden,
    }
    arguments |= {"c": cell_state, "size": units}
    builder.add("cell", CELL_ARGUMENTS, CELLS.index(node.attrs["cell"]), reads=(x, from_hidden), **arguments)
    builder.loop_over_time(first, f"{wide}x{units}")
    for move in moves:
        builder.add("retain", STATE_ARGUMENTS, reads=(move["slot"],), writes=(), **move)
