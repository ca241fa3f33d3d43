"""Measuring layers: our programs and PyTorch's in turn, so that a busy machine slows both."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.suites.layers.cases import LayerCase
from benchmarks.suites.layers.limits import Limits, measure_limits
from benchmarks.suites.layers.work import Work, layer_works, values
from benchmarks.timing import bursts, enough, median
from benchmarks.torch_peer import TorchPeer
from volumetric.base.errors import SpecError
from volumetric.bench.bench_tables import render_table
from volumetric.devices.cpu.cpu_count import default_threads
from volumetric.graph import GraphProgram

_BURST_SECONDS = 0.05
"""Runs are timed in bursts of about this length: one wait for the device, many runs."""


def measure_layers(
    cases: Sequence[LayerCase],
    device: Any,
    *,
    repetitions: int = 5,
    peer: TorchPeer | None = None,
    limits: Limits | None = None,
) -> Iterator[LayerRow]:
    """Yield a row for each layer and role.

    Times are those of whole runs until the device has finished; a warm-up, which compiles kernels, does not count.

    Parameters
    ----------
    device : an open device that runs graphs
    repetitions : bursts of runs; the rows give their median and extremes
    peer : PyTorch, measured burst by burst in turn
    limits : what the machine can do; None: measured first

    Raises
    ------
    SpecError : no repetitions
    """
    if repetitions < 1:
        raise SpecError(f"repetitions must be 1 or more, got {repetitions}")
    graphs, info = device.graphs(), device.info
    small = info.kind != "gpu" or info.software
    every = info.kind == "cpu" and info.details.get("threads") == default_threads()  # then NumPy uses as many
    limits = limits or measure_limits(graphs, side=1024 if small else 4096, host=every)
    for case in cases:
        works = layer_works(case, graphs)
        if peer is not None:
            peer.load(case, values(case))
        for role, work in works.items():
            ours, theirs = _in_turn(work.program, role, repetitions, peer)
            yield _row(case, role, info.name, work, limits, ours, theirs)


def _in_turn(
    program: GraphProgram, role: str, repetitions: int, peer: TorchPeer | None
) -> tuple[list[float], list[float]]:
    burst = bursts(program)
    count = enough(burst, _BURST_SECONDS)
    ours, theirs = [], []
    for _ in range(repetitions):
        ours.append(burst(count))
        if peer is not None:
            theirs.append(peer.time(role))
    return ours, theirs


def _row(
    case: LayerCase, role: str, device: str, work: Work, limits: Limits, ours: Sequence[float], theirs: Sequence[float]
) -> LayerRow:
    seconds = statistics.median(ours)
    return LayerRow(
        layer=case.name,
        shape="×".join(map(str, case.shape)),
        role=role,
        device=device,
        seconds=seconds,
        least=min(ours),
        most=max(ours),
        flops=work.flops,
        moved=work.moved,
        of_limit=max(work.flops / limits.flops, work.moved / limits.bandwidth) / seconds,
        torch=median(theirs),
    )


_HEAD = "layer | shape | role | ms (least–most) | rate | of limit | torch ms | times torch"
_COMPUTE_BOUND = 10.0  # operations a byte from which on the rate of products says more than that of bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """One layer in one role.

    Attributes
    ----------
    role : ``"forward"``, or ``"train"``: forward and backward together
    seconds, least, most : median and extremes of the repetitions
    flops, moved : operations and bytes of a run, at least
    of_limit : the better of the two rates over what this machine reaches in a probe; above 1 where caches help
    torch : median seconds of PyTorch in the same run, or None without it
    """

    layer: str
    shape: str
    role: str
    device: str
    seconds: float
    least: float
    most: float
    flops: float
    moved: float
    of_limit: float
    torch: float | None

    @property
    def ratio(self) -> float | None:
        """How many times as fast as PyTorch."""
        return None if self.torch is None else self.torch / self.seconds

    @property
    def rate(self) -> str:
        """GFLOP/s of a layer that computes a lot for each byte, else GB/s."""
        if self.flops > _COMPUTE_BOUND * self.moved:
            return f"{self.flops / self.seconds / 1e9:.1f} GFLOP/s"
        return f"{self.moved / self.seconds / 1e9:.1f} GB/s"


def geometric_mean(rows: Sequence[LayerRow]) -> float | None:
    """Return the geometric mean of the ratios to PyTorch, or None without any."""
    ratios = [row.ratio for row in rows if row.ratio is not None]
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios)) if ratios else None


def render_layers(rows: Sequence[LayerRow], form: str) -> str:
    """Write `rows`; ends with a newline. Raises `SpecError` for an unknown format."""
    cells: list[list[str]] = []
    for row in rows:
        times = f"{1e3 * row.seconds:.3g} ({1e3 * row.least:.3g}–{1e3 * row.most:.3g})"
        peer = "-" if row.torch is None else f"{1e3 * row.torch:.3g}"
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        cells.append([row.layer, row.shape, row.role, times, row.rate, f"{100 * row.of_limit:.0f} %", peer, ratio])
    text = render_table([{**asdict(row), "ratio": row.ratio} for row in rows], _HEAD, cells, form, left=3)
    mean, ratios = geometric_mean(rows), [row.ratio for row in rows if row.ratio is not None]
    if form == "md" and mean is not None:
        text += f"\nGeometric mean {mean:.2f} times PyTorch over {len(ratios)} rows; the least is {min(ratios):.2f}.\n"
    return text
