"""Measure cells: windows and single rows, ours and the peer's in turn."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from benchmarks.suites.stacks.cases import CellCase, Role
from benchmarks.timing import Rates, Row, bursts, each, number_or_dash
from benchmarks.torch_peer import TorchPeer, described
from volumetric.base.errors import DeviceError
from volumetric.bench.bench_tables import render_table
from volumetric.network import Params, initialise

ROLES: Final[tuple[Role, ...]] = ("forward", "train")
NO_PACKAGE: Final = "No module named"
"""In what the peer answers where it has PyTorch and not the package."""
_BURST_SECONDS = 0.05
_PAUSE = 0.1
"""Seconds after the peer's work, in which its threads spin on and take our cores."""

Mode: TypeAlias = Literal["forward", "train", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackRow(Row):
    """One cell in one role.

    Attributes
    ----------
    role : ``"forward"``; ``"train"``: forward and backward, to the parameters and the input; ``"decode"``: one row of
        one stream, through `Device.stream`
    resets : whether sequences begin anew within the window
    rate : of rows
    cost : with resets: how many times as long as without them; the median over rounds
    peer_name : what the peer runs: ``"cortical"``, or ``"torch"``: the equations in PyTorch's own operations, where
        nothing resets
    """

    cell: str
    role: Mode
    resets: bool
    cost: float | None = None
    peer_name: str | None = None


@dataclass(slots=True)
class _Run:
    """Something that is timed, in rows a second."""

    role: Mode
    resets: bool
    rates: Rates

    @property
    def theirs_name(self) -> str:
        """What the peer calls it."""
        return f"{self.role} with resets" if self.resets else self.role


def measure_stacks(
    cases: Sequence[CellCase], device: Any, *, repetitions: int = 5, peer: TorchPeer | None = None
) -> Iterator[StackRow]:
    """Yield five rows of each cell. Bursts of runs take turns with the peer's, after a warm-up."""
    for case in cases:
        params = initialise(case.network)
        runs = [*_windows(case, params, device), _decoding(case, params, device)]
        name = None if peer is None else _give(peer, case, params)
        for _ in range(repetitions):
            for run in runs:
                run.rates.run()
                if peer is not None and (name == "cortical" or run.theirs_name in ROLES):
                    run.rates.run_peer(peer, run.theirs_name, _PAUSE)
        plain = {run.role: run.rates for run in runs if not run.resets}
        for run in runs:
            rates = run.rates
            pairs = zip(plain[run.role].busy, rates.busy, strict=True)
            yield StackRow(
                cell=case.kind,
                role=run.role,
                resets=run.resets,
                **rates.figures(device),
                cost=statistics.median(a / b for a, b in pairs) if run.resets else None,
                peer_name=name if rates.theirs else None,
            )


def _windows(case: CellCase, params: Params, device: Any) -> Iterator[_Run]:
    graphs = device.graphs()
    store = graphs.store()
    for key, value in (case.arrays(params) | {"resets": case.resets()}).items():
        store.write(key, value)
    for resets in (False, True):
        for role in ROLES:
            burst = bursts(graphs.compile(case.graph(role, resets=resets), store))
            yield _Run(role, resets, Rates.warm(burst, case.batch * case.rows, _BURST_SECONDS))


def _decoding(case: CellCase, params: Params, device: Any) -> _Run:
    stream = device.stream(case.network, params, batch=1)
    row = case.arrays(params)["x"][:1, :1]
    burst = each(lambda: stream.run(row))
    return _Run("decode", False, Rates.warm(burst, 1, _BURST_SECONDS))


def _give(peer: TorchPeer, case: CellCase, params: Params) -> str:
    """Hand a cell to the peer, as the package has it or, without the package, as PyTorch's own operations."""
    arrays = case.arrays(params)
    try:
        peer.give(
            {"kind": "cortical", "cell": case.kind, "resets": case.resets().astype(int).tolist()},
            {name: arrays[name] for name in ("x", "gy")},
        )
    except DeviceError as error:
        if NO_PACKAGE not in str(error):
            raise
        peer.give(described(case.spec), arrays)
        return "torch"
    return "cortical"


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
