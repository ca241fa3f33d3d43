"""Benchmark rows as a Markdown table, CSV, JSON or JSON lines."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from volumetric.bench.bench_tables import render_table
from volumetric.bench.case_runs import Case
from volumetric.run.step_times import StepTime

Format = Literal["md", "csv", "json", "jsonl"]
_STEP_HEAD = ["test", "step", "count", "µs", "of the call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a benchmark.

    Attributes
    ----------
    model : name of the model
    size, params : bytes and number of its weights
    device, dtype : device, and the scheme of most weights
    threads : CPU threads; None on other devices
    test : name of the case
    tps, tps_std : mean and sample standard deviation of the tokens per second; 0 for a single repetition
    samples : tokens per second of each repetition
    state_per_token : bytes of keys and values per token of context on the device
    steps : time of each step of a call, with a profile
    version : version of volumetric
    """

    model: str
    size: int
    params: int
    device: str
    description: str
    dtype: str
    threads: int | None
    test: str
    prompt: int
    generate: int
    depth: int
    batch: int
    tps: float
    tps_std: float
    samples: tuple[float, ...]
    version: str
    state_per_token: int = 0
    steps: tuple[StepTime, ...] = ()

    @classmethod
    def of(cls, case: Case, samples: Sequence[float], **about: Any) -> Row:
        """Summarise the repetitions of one case; `about` has the fields of model and device."""
        return cls(
            test=case.name,
            **asdict(case),
            tps=statistics.fmean(samples),
            tps_std=statistics.stdev(samples) if len(samples) > 1 else 0.0,
            samples=tuple(samples),
            **about,
        )


def render(rows: Sequence[Row], form: str) -> str:
    """Format `rows`, with a final newline. CSV has a table of steps after an empty line.

    Raises
    ------
    SpecError : an unknown format
    """
    if form == "md":
        return _markdown(rows)
    values = [asdict(row) for row in rows]
    if form == "csv":
        values = [{name: row[name] for name in row if name not in ("samples", "steps")} for row in values]
    text = render_table(values, "", (), form, left=0)
    steps = [dict(zip(_STEP_HEAD, line, strict=True)) for row in rows for line in _step_cells(row)]
    return f"{text}\n{render_table(steps, '', (), form, left=0)}" if form == "csv" and steps else text


def _markdown(rows: Sequence[Row]) -> str:
    table = [["model", "size", "params", "device", "dtype", "threads", "test", "t/s"]]
    table += [
        [
            row.model,
            f"{row.size / 2**20:.2f} MiB",
            f"{row.params / 1e6:.2f} M",
            row.device,
            row.dtype,
            "-" if row.threads is None else str(row.threads),
            row.test,
            f"{row.tps:.2f} ± {row.tps_std:.2f}",
        ]
        for row in rows
    ]
    text = _aligned(table, numeric=(False, True, True, False, False, True, True, True))
    cells = [line for row in rows for line in _step_cells(row)]
    if cells:
        text += "\n" + _aligned([_STEP_HEAD, *cells], numeric=(False, False, True, True, True))
    return text


def _aligned(table: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    """Markdown with aligned columns; `numeric` ones are right-aligned."""
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    rule = [("-" * (w - 1) + ":") if right else "-" * w for w, right in zip(widths, numeric, strict=True)]
    padded = (
        [cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(line, widths, numeric, strict=True)]
        for line in (table[0], rule, *table[1:])
    )
    return "".join(f"| {' | '.join(line)} |\n" for line in padded)


def _step_cells(row: Row) -> list[list[str]]:
    """One line for each kind of step, with its share of the whole call; the last line is the call."""
    whole = row.steps[-1].seconds if row.steps else 0.0
    return [
        [
            row.test,
            step.label,
            str(step.count),
            f"{1e6 * step.seconds:.1f}",
            f"{step.seconds / whole:.1%}" if whole else "-",
        ]
        for step in row.steps
    ]
