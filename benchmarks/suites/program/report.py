"""Rows of the benchmark of programs."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.suites.program.run import ProgramRow
from volumetric.bench.tables import number_or_dash, render_table

_HEAD = (
    "regions | edges | weights of | role | device | streams | rows | steps/s (least–most) | by processor time "
    "| µs an edge | of firing | set-up s | package | times the package | by processor time | apart"
)


def render_programs(rows: Sequence[ProgramRow], form: str) -> str:
    """Write `rows`; ends with a newline. Raises `SpecError` for an unknown format."""
    cells = [
        [
            f"{row.regions:,}",
            f"{row.edges:,}",
            row.share,
            row.role,
            row.device,
            str(row.batch),
            str(row.rows),
            *row.shown(1),
            f"{row.edge_us:,.1f}",
            "-" if row.of_firing is None else f"{100 * row.of_firing:.1f} %",
            f"{row.setup:.2f}",
            *(number_or_dash(value, 2) for value in (row.peer, row.ratio, row.busy_ratio)),
            "-" if row.apart is None else f"{row.apart:.0e}",
        ]
        for row in rows
    ]
    return render_table([row.values() for row in rows], _HEAD, cells, form, left=5)
