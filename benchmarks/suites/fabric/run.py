"""Measure fabrics: rows that streams run, few and many in a call, and windows that are learned from."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from benchmarks.timing import Rates, Row, each
from volumetric import fabric
from volumetric.base import rng
from volumetric.base._typing import F32Array
from volumetric.bench.bench_tables import render_table
from volumetric.fabric import Blueprint, DotProduct, Input, Interface, Output, Population, lattice2d
from volumetric.fabric.cells import SLSTM
from volumetric.run.device import Device
from volumetric.train import MSE, SGD, Backprop, Batch, LearnerOptions
from volumetric.train.learner_opening import open_learner

ROWS: Final = 64
"""Rows of a call, unless nodes are very many."""
ROW_NODES: Final = 1 << 19
"""Rows times nodes of a call from which it has fewer rows."""
MANY: Final = 4096
"""Rows of a long call."""
LEARNED: Final = 16
"""Rows of a window that is learned from."""
PRIVATE: Final = 4096
"""Nodes up to which each cell has weights of its own; more have one set."""
SMALL: Final = 1024
"""Nodes up to which long calls and updates are measured, too."""

_BURST_SECONDS = 0.1

Role: TypeAlias = Literal["run", "long", "update"]


@dataclass(frozen=True, slots=True)
class Sheet:
    """``side²`` nodes of sLSTM cells that read their eight neighbours, for `batch` streams."""

    side: int
    batch: int
    hidden: int = 32

    @property
    def rows_of_call(self) -> int:
        """Rows of a short call."""
        return min(ROWS, 1 << (ROW_NODES // self.side**2).bit_length() - 1)

    @property
    def share(self) -> str:
        """Whose weights are one."""
        return "none" if self.side**2 <= PRIVATE else "all"

    @property
    def model(self) -> fabric.Model:
        """The network and its weights."""
        h = self.hidden
        core = Population(cell=SLSTM(hidden=h), share=self.share)
        return fabric.compile(
            Blueprint(
                graph=lattice2d.Graph(width=self.side, height=self.side, populations={"core": core}),
                inputs={"input": Input(h)},
                outputs={"output": Output(h)},
                interface=Interface(h, h),
                message=DotProduct(head_dim=h),
            )
        )

    def rows(self, count: int) -> F32Array:
        """Normal noise, ``[streams, count, hidden]``."""
        return rng.generator(3).standard_normal((self.batch, count, self.hidden), np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricRow(Row):
    """One fabric in one role.

    Attributes
    ----------
    role : ``"run"``: calls of 64 rows or, of more than 8,192 nodes, fewer; ``"long"``: of 4,096; ``"update"``: forward,
        loss, backward and the step of plain gradient descent over windows of 16 rows
    rows : of a call or window
    rate : of steps, each of all nodes and streams
    node_ns : of `rate`: nanoseconds for a node of a stream
    node_bytes : weights of all nodes, and states of all streams, over the nodes
    setup : seconds until there was a first result: weights brought to the device, programs compiled, and run once
    """

    side: int
    nodes: int
    share: str
    batch: int
    role: Role
    rows: int
    node_ns: float
    node_bytes: float
    setup: float


def measure_fabrics(sheets: Sequence[Sheet], device: Device, *, repetitions: int = 5) -> Iterator[FabricRow]:
    """Yield the rows of each fabric; bursts of its roles take turns, after a warm-up."""
    for sheet in sheets:
        model = sheet.model
        facts, nodes = model.facts(), sheet.side**2
        held = (4 * facts["parameters"] + sheet.batch * facts["state_bytes"]) / nodes
        made: dict[Role, tuple[int, Callable[[], Callable[[], object]]]] = {
            "run": (sheet.rows_of_call, partial(_running, sheet, model, device, sheet.rows_of_call))
        }
        if nodes <= SMALL:
            made["long"] = MANY, partial(_running, sheet, model, device, MANY)
            made["update"] = LEARNED, partial(_learning, sheet, model, device)
        setup = dict[Role, float]()
        runs = dict[Role, Callable[[], object]]()
        for role, (_, make) in made.items():
            began = time.perf_counter()
            run = make()
            run()
            runs[role], setup[role] = run, time.perf_counter() - began
        rates: dict[Role, Rates] = {
            role: Rates.warm(each(run), made[role][0], _BURST_SECONDS) for role, run in runs.items()
        }
        for _ in range(repetitions):
            for found in rates.values():
                found.run()
        for role, found in rates.items():
            yield FabricRow(
                side=sheet.side,
                nodes=nodes,
                share=sheet.share,
                batch=sheet.batch,
                role=role,
                rows=found.units,
                **found.figures(device),
                node_ns=1e9 / (statistics.median(found.ours) * nodes * sheet.batch),
                node_bytes=held,
                setup=setup[role],
            )


def _running(sheet: Sheet, model: fabric.Model, device: Any, count: int) -> Callable[[], object]:
    stream, rows = device.stream(model.network, model.params, batch=sheet.batch), sheet.rows(count)
    return lambda: stream.run(rows)


def _learning(sheet: Sheet, model: fabric.Model, device: Device) -> Callable[[], object]:
    options = LearnerOptions(mode=Backprop(carry=True), loss=MSE(), optimiser=SGD(lr=1e-3))
    learner = open_learner(device)(model.network, model.params, options)
    rows = sheet.rows(LEARNED)
    whole = Batch(rows, np.zeros_like(rows))
    return lambda: learner.step([whole], rate=1e-3)


def render_fabrics(rows: Sequence[FabricRow], form: str) -> str:
    """Write `rows`; ends with a newline. Raises `SpecError` for an unknown format."""
    head = (
        "nodes | share | streams | role | device | rows | steps/s (least–most) | by processor time | "
        "ns a node and stream | bytes a node | set-up s"
    )
    cells = [
        [
            f"{row.nodes:,}",
            row.share,
            str(row.batch),
            row.role,
            row.device,
            f"{row.rows:,}",
            *row.shown(),
            f"{row.node_ns:,.1f}",
            f"{row.node_bytes:,.0f}",
            f"{row.setup:.2f}",
        ]
        for row in rows
    ]
    return render_table([row.values() for row in rows], head, cells, form, left=5)
