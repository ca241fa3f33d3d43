"""Measuring layers: our programs and PyTorch's in turn, so that a busy machine slows both."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.suites.layers.cases import LayerCase
from benchmarks.suites.layers.limits import Limits, measure_limits
from benchmarks.suites.layers.report import LayerRow
from benchmarks.suites.layers.work import Work, layer_works, values
from benchmarks.timing import bursts, enough, median
from benchmarks.torch_peer import TorchPeer
from volumetric.errors import SpecError
from volumetric.graph import GraphProgram
from volumetric.runtime.cpu.cores import default_threads

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
