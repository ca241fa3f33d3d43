"""Rows of the benchmark of cells."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.suites.stacks.run import StackRow
from volumetric.bench.tables import number_or_dash, render_table

_HEAD = (
    "cell | role | resets | device | rows/s (least–most) | by processor time | µs a row | time with resets | peer "
    "| its rows/s | times the peer | by processor time"
)


def render_stacks(rows: Sequence[StackRow], form: str) -> str:
    """Write `rows`; ends with a newline. Raises `SpecError` for an unknown format."""
    cells: list[list[str]] = []
    for row in rows:
        own = [row.cell, row.role, "yes" if row.resets else "no", row.device, *row.shown()]
        peer = map(number_or_dash, (row.peer, row.ratio, row.busy_ratio), (0, 2, 2))
        cells.append([*own, f"{1e6 / row.rate:,.2f}", number_or_dash(row.cost, 2), row.peer_name or "-", *peer])
    return render_table([row.values() for row in rows], _HEAD, cells, form, left=4)
