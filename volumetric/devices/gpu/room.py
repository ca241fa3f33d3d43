"""How many rows a sequence and a call may have."""

from __future__ import annotations

from volumetric.base.errors import DeviceError, GenerationError
from volumetric.graph.binding import tables_of_positions
from volumetric.graph.ops import Graph
from volumetric.run.state import check_room


class Room:
    """Bounds of rows.

    Parameters
    ----------
    graph : the network
    context : tokens that a state can hold
    rows : that a call of the device takes at once
    """

    def __init__(self, graph: Graph, context: int, rows: int) -> None:
        self._context, self._rows, self._whole = context, rows, graph.whole
        self._tables = tables_of_positions(graph)

    def check(self, position: int, new: int) -> None:
        """Raise `GenerationError` unless `new` more rows fit the context and the tables of learned positions."""
        check_room(position, new, self._context)
        for where, positions in self._tables:
            if position + new > positions:
                raise GenerationError(
                    f"{position + new} tokens exceed the {positions} positions that {where} has learned",
                    hint="shorten the prompt or generate fewer tokens",
                )

    def check_together(self, rows: int) -> None:
        """Raise `DeviceError` if rows that must run at once have no room."""
        if self._whole and rows > self._rows:
            raise DeviceError(
                f"layers here look at later rows and need all {rows} rows of a call at once; this GPU has room for "
                f"{self._rows}",
                hint="use shorter calls, or device='cpu'",
            )
