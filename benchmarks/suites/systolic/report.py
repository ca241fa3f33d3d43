"""Rows of the benchmark of clocked networks."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.suites.systolic.run import SystolicRow
from volumetric.bench.tables import number_or_dash, render_table

_HEAD = (
    "cube | streams | role | device | ticks/s (least–most) | by processor time | GFLOP/s | of runs / 3 | torch ticks/s "
    "| times torch"
)


def render_systolic(rows: Sequence[SystolicRow], form: str) -> str:
    """Write `rows`; ends with a newline. Raises `SpecError` for an unknown format."""
    cells: list[list[str]] = []
    for row in rows:
        more = map(number_or_dash, (row.share, row.peer, row.ratio), (2, 0, 2))
        about = f"{row.side}³", str(row.batch), row.role, row.device
        cells.append([*about, *row.shown(), f"{row.gflops:.1f}", *more])
    return render_table([row.values() for row in rows], _HEAD, cells, form, left=4)
