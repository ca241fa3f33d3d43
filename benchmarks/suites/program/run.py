"""Measure programs: rows of streams, and windows that are learned from, ours and the package's in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from benchmarks.suites.program.cases import HEADS, SIDE, Canvas, Fires, Share
from benchmarks.timing import Rates, Row, each, number_or_dash
from benchmarks.torch_peer import TorchPeer
from volumetric.bench.bench_tables import render_table
from volumetric.network import initialise
from volumetric.run.device import Device
from volumetric.train import MSE, SGD, Backprop, Batch, LearnerOptions
from volumetric.train.learner_opening import open_learner

ROWS: Final = 64
"""Rows of a call, unless regions are many."""
ROW_REGIONS: Final = 2048
"""Rows times regions of a call from which it has fewer rows."""
LEARNED: Final = 4
"""Rows of a window that is learned from."""
SMALL: Final = 256
"""Regions up to which updates are measured, too."""
COMPARED: Final = 4
"""Rows after which outputs are compared."""

Role: TypeAlias = Literal["run", "clocked", "quiet", "update"]
_WANTED: tuple[tuple[Share, Role], ...] = (
    ("edge", "run"),
    ("rule", "run"),
    ("edge", "clocked"),
    ("edge", "quiet"),
    ("edge", "update"),
    ("rule", "update"),
)
_RUNS = 4
_BURST_SECONDS = 0.1
_PAUSE = 0.05
"""Seconds after the peer's work, in which its threads spin on and take our cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRow(Row):
    """One program in one role.

    Attributes
    ----------
    edges : each is cross attention of 64 positions over 64, in four heads
    share : weights belong to each ``"edge"``; or all have one set (``"rule"``), as the package does
    role : ``"run"``: no region has a clock; ``"clocked"``: each has one that looks at its own meter and fires at each
        row; ``"quiet"``: likewise, and fires at none; ``"update"``: forward, backward and a step of plain gradient
        descent over windows of four rows
    rows : of a call or window
    rate : of steps, each of all streams
    edge_us : of `rate`: microseconds for an edge of a stream
    of_firing : share of the time of ``"clocked"`` that ``"quiet"`` takes: the median over rounds, of processor
        time, or of wall time where a GPU computes
    setup : seconds from the program to a first result
    peer : the package. It has one set of weights, no clocks in
        what is timed, and takes gradients of the same window but no step
    apart : greatest difference of outputs from the package's after four rows, over their greatest, where both compute
        the same
    """

    regions: int
    edges: int
    batch: int
    share: Share
    role: Role
    rows: int
    edge_us: float
    of_firing: float | None
    setup: float
    apart: float | None = None


@dataclass(slots=True)
class _Run:
    """Something that is timed, in steps a second."""

    share: Share
    role: Role
    setup: float
    rates: Rates


def measure_programs(
    canvases: Sequence[Canvas], device: Device, *, repetitions: int = 5, peer: TorchPeer | None = None
) -> Iterator[ProgramRow]:
    """Yield the rows of each program; bursts of its roles and the package's take turns, after a warm-up."""
    apart_from_host = device.info.kind == "gpu" and not device.info.software
    for canvas in canvases:
        runs = [*_runs(canvas, device)]
        apart = None if peer is None else _apart(canvas, device, peer)
        theirs: dict[str, list[tuple[float, float]]] = {"forward": [], "train": []}
        learns = any(run.role == "update" for run in runs)
        for _ in range(repetitions):
            for run in runs:
                run.rates.run()
            if peer is not None:
                for role in ("forward", "train") if learns else ("forward",):
                    seconds, busy = peer.times(role)
                    steps = LEARNED if role == "train" else 1
                    theirs[role].append((steps / seconds, steps / max(busy, 1e-9)))
                    time.sleep(_PAUSE)
        firing = next(run.rates for run in runs if run.role == "clocked")
        for run in runs:
            rates = run.rates
            beside = theirs["train" if run.role == "update" else "forward"] if run.role in ("run", "update") else []
            rates.theirs, rates.theirs_busy = [rate for rate, _ in beside], [busy for _, busy in beside]
            sides = [(of.ours if apart_from_host else of.busy) for of in (firing, rates)]
            shares = [a / b for a, b in zip(*sides, strict=True)]
            yield ProgramRow(
                regions=canvas.regions,
                edges=len(canvas.edges),
                batch=canvas.batch,
                share=run.share,
                role=run.role,
                rows=rates.units,
                **rates.figures(device),
                edge_us=1e6 / (statistics.median(rates.ours) * len(canvas.edges) * canvas.batch),
                of_firing=statistics.median(shares) if run.role == "quiet" else None,
                setup=run.setup,
                apart=apart if (run.role, run.share) == ("run", "rule") else None,
            )


def _runs(canvas: Canvas, device: Device) -> Iterator[_Run]:
    rows = max(2, min(ROWS, ROW_REGIONS // canvas.regions))
    wanted = _WANTED if canvas.regions <= SMALL else _WANTED[:_RUNS]
    for share, role in wanted:
        began = time.perf_counter()
        run = _learning(canvas, device, share) if role == "update" else _running(canvas, device, share, role, rows)
        run()
        setup = time.perf_counter() - began
        yield _Run(share, role, setup, Rates.warm(each(run), LEARNED if role == "update" else rows, _BURST_SECONDS))


_FIRES: dict[Role, Fires] = {"run": "always", "clocked": "clocked", "quiet": "never"}


def _running(canvas: Canvas, device: Any, share: Share, role: Role, count: int) -> Callable[[], object]:
    network = canvas.program(share, _FIRES[role]).network()
    stream = device.stream(network, initialise(network), batch=canvas.batch)
    return partial(stream.run, canvas.rows(count))


def _learning(canvas: Canvas, device: Device, share: Share) -> Callable[[], object]:
    network = canvas.program(share).network()
    options = LearnerOptions(mode=Backprop(carry=True), loss=MSE(), optimiser=SGD(lr=1e-3))
    learner = open_learner(device)(network, initialise(network), options)
    rows = canvas.rows(LEARNED)
    whole = Batch(rows, np.zeros((*rows.shape[:2], SIDE), np.float32))
    return lambda: learner.step([whole], rate=1e-3)


def _apart(canvas: Canvas, device: Any, peer: TorchPeer) -> float:
    """Hand a program to the package, and tell how far its outputs are from ours."""
    program = canvas.program("rule")
    network = program.network()
    params = initialise(network)
    spec = {"kind": "program", "side": SIDE, "regions": canvas.regions, "heads": HEADS, "rows": LEARNED}
    peer.give(spec | {"edges": [*map(list, canvas.edges)]}, canvas.arrays(params, program))
    theirs = canvas.read(params, program, peer.repeat(COMPARED))
    ours = device.stream(network, params, batch=canvas.batch).run(canvas.rows(COMPARED))[:, -1]
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


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
