"""Rows of the training benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.suites.training.run import TrainingRow
from volumetric.bench.tables import render_table

_HEAD = "network | device | epochs | s (least–most) | loss | torch s | torch loss | times torch"


def render_training(rows: Sequence[TrainingRow], form: str) -> str:
    """Write `rows`; ends with a newline. Raises `SpecError` for an unknown format."""
    cells: list[list[str]] = []
    for row in rows:
        times = f"{row.seconds:.3g} ({row.least:.3g}–{row.most:.3g})"
        theirs = ["-" if value is None else f"{value:.3g}" for value in (row.torch, row.torch_loss, row.ratio)]
        cells.append([row.name, row.device, str(row.epochs), times, f"{row.loss:.4f}", *theirs])
    return render_table([{**asdict(row), "ratio": row.ratio} for row in rows], _HEAD, cells, form, left=2)
