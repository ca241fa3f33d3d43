"""Rows of the training benchmark as a Markdown table, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, fields

from volumetric.bench.training.run import TrainingRow
from volumetric.errors import SpecError


def render_training(rows: Sequence[TrainingRow], form: str) -> str:
    """Write `rows`; ends with a newline. Raises `SpecError` for an unknown format."""
    data = [{**asdict(row), "ratio": row.ratio} for row in rows]
    if form == "json":
        return json.dumps(data, indent=2) + "\n"
    if form == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in data)
    if form == "csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, [*(f.name for f in fields(TrainingRow)), "ratio"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(data)
        return out.getvalue()
    if form != "md":
        raise SpecError(f"unknown output format {form!r}", hint="use one of: md, csv, json, jsonl")
    lines = [
        "| network | device | epochs | s (least–most) | loss | torch s | torch loss | times torch |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        times = f"{row.seconds:.3g} ({row.least:.3g}–{row.most:.3g})"
        theirs = ["-" if value is None else f"{value:.3g}" for value in (row.torch, row.torch_loss, row.ratio)]
        cells = [row.name, row.device, str(row.epochs), times, f"{row.loss:.4f}", *theirs]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
