"""Rows of the benchmark of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

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
        tokens = f"{row.tokens:,.0f} ({row.least:,.0f}–{row.most:,.0f})"
        own = [row.cell, row.role, "yes" if row.resets else "no", row.device, tokens, f"{row.busy:,.0f}"]
        peer = [
            row.peer_name or "-",
            number_or_dash(row.peer, 0),
            number_or_dash(row.ratio, 2),
            number_or_dash(row.busy_ratio, 2),
        ]
        cells.append([*own, f"{1e6 / row.tokens:,.2f}", number_or_dash(row.cost, 2), *peer])
    return render_table(
        [{**asdict(row), "ratio": row.ratio, "busy_ratio": row.busy_ratio} for row in rows], _HEAD, cells, form, left=4
    )
