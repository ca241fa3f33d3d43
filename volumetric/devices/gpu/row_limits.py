"""Limits on the rows of a sequence and of a call."""

from __future__ import annotations

from typing import Final, NamedTuple

from volumetric.base.errors import DeviceError, GenerationError
from volumetric.graph.binding import tables_of_positions
from volumetric.graph.ops import Graph
from volumetric.run.sequence_state import check_capacity


class CallLimits(NamedTuple):
    """Most rows of a call, and of its tail, for which memory is allocated; None: what the GPU has room for."""

    rows: int | None = None
    tail_rows: int | None = None


UNLIMITED: Final = CallLimits()


class RowLimits:
    """Limits on rows.

    Parameters
    ----------
    graph : the network
    context : maximum tokens of a state
    rows : maximum rows of a device call
    """

    def __init__(self, graph: Graph, context: int, rows: int) -> None:
        self._context, self._rows, self._whole = context, rows, graph.whole_sequences
        self._tables = tables_of_positions(graph)

    def check(self, position: int, new: int) -> None:
        """Raise `GenerationError` unless `new` more rows fit the context and the tables of learned positions."""
        check_capacity(position, new, self._context)
        for where, positions in self._tables:
            if position + new > positions:
                raise GenerationError(
                    f"{position + new} tokens exceed the {positions} positions that {where} has learned",
                    hint="shorten the prompt or generate fewer tokens",
                )

    def check_together(self, rows: int) -> None:
        """Raise `DeviceError` if rows that must run together do not fit."""
        if self._whole and rows > self._rows:
            raise DeviceError(
                f"layers here read later rows and need all {rows} rows of a call at once; this GPU has room for "
                f"{self._rows}",
                hint="use shorter calls, or device='cpu'",
            )
