"""Steps of recurrent cells: a product and the cell for each time step."""

from __future__ import annotations

from typing import Any

from volumetric.devices.cpu.kernels.cells import CELL_ARGUMENTS, CELLS, STATE_ARGUMENTS
from volumetric.devices.cpu.rows.draft import RowDraft, rule
from volumetric.devices.cpu.rows.products import products
from volumetric.graph.ops import Node


@rule("recurrence")
def recurrence(draft: RowDraft, node: Node) -> None:
    """The product with the hidden states of all sequences and the cell, for each time step."""
    x, y = node.inputs[0], node.outputs[0]
    wide, units = draft.width(x), draft.width(y)
    hidden, cell_state, from_hidden = draft.temporary(4 * units), draft.temporary(4 * units), draft.temporary(4 * wide)
    keys = list(draft.graph.states(node).values())
    moves = [
        {"state": draft.settings.state_place(key), "slot": slot, "size": units}
        for key, slot in zip(keys, (hidden, cell_state), strict=False)
    ]
    for move in moves:
        draft.add("recall", STATE_ARGUMENTS, reads=(), writes=(move["slot"],), **move)
    first = len(draft.steps)
    products(draft, node, hidden, from_hidden)
    arguments: dict[str, Any] = {
        "writes": (y, hidden, cell_state),
        "from_x": x,
        "from_h": from_hidden,
        "y": y,
        "h": hidden,
    }
    arguments |= {"c": cell_state, "size": units}
    draft.add("cell", CELL_ARGUMENTS, CELLS.index(node.attrs["cell"]), reads=(x, from_hidden), **arguments)
    draft.loop(first, f"{wide}x{units}")
    for move in moves:
        draft.add("retain", STATE_ARGUMENTS, reads=(move["slot"],), writes=(), **move)
