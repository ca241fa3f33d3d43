"""Rows of the benchmark of servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from volumetric.bench.serve.run import ServeRow
from volumetric.bench.tables import render_table

_HEAD = (
    "server | clients | requests/s | tokens/s | first token ms p50 / p95 / p99 "
    "| between pieces ms p50 / p95 / p99 / most | prompt reused | failed"
)


def render_serve(rows: Sequence[ServeRow], form: str) -> str:
    """Write `rows`; ends with a newline. Raises `SpecError` for an unknown format."""
    cells = [
        [
            row.url,
            str(row.clients),
            f"{row.requests:.2f}",
            f"{row.tokens:,.1f}",
            _times(row.first50, row.first95, row.first99),
            _times(row.gap50, row.gap95, row.gap99, row.gap_most),
            f"{row.cached:.0%}",
            str(row.failed),
        ]
        for row in rows
    ]
    return render_table([asdict(row) for row in rows], _HEAD, cells, form, left=1)


def _times(*seconds: float) -> str:
    return " / ".join(f"{1000 * one:,.0f}" if one >= 0.1 else f"{1000 * one:.1f}" for one in seconds)
